//! Tests of process metadata, over the test process and fake ones.

use super::*;
use crate::host::users::{NameService, SystemNameService, UserRecord};
use gpukill_proto::model::{DeviceId, GpuProcess, Job, OwnerKind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

fn processes(root: &Path) -> ProcessReader {
    let containers = ContainerCache::new(root.into(), "");
    let accounts = SlurmAccounts::new();
    ProcessReader::new(
        root.into(),
        CommandLineCache::new(),
        containers,
        accounts,
        root.into(),
    )
}

/// The row of a process once everything about it is known.
fn row(processes: &mut ProcessReader, users: &Users, pid: u32, now: Timestamp) -> GpuProcess {
    let mut metadata = processes.identify(&[pid].into(), now, users);
    let soon = Instant::now() + Duration::from_secs(10);
    processes.settle(&mut metadata, users, soon);
    let device = DeviceId("GPU-0".into());
    let mut row = GpuProcess::unknown(device, pid, now, &Reading::Withheld);
    metadata[&pid].fill_row(&mut row, users);
    row
}

struct FakeProcesses(tempfile::TempDir);

impl FakeProcesses {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("stat"), "cpu 1\nbtime 1000\n").unwrap();
        Self(root)
    }

    /// Creates a process with this name, parent, start, and processor time.
    fn process(&self, pid: u32, name: &str, parent: u32, start: u64, ticks: u64) {
        let zeros = "0 ".repeat(6);
        let stat =
            format!("{pid} ({name}) S {parent} 0 0 0 {zeros}{ticks} 0 0 0 0 0 0 0 {start} 0 3");
        // The name is the third field from the end of the leading part.
        self.file(pid, "stat", &stat);
        self.file(
            pid,
            "status",
            "Uid:\t1000\t1001\t1002\t1003\nNSpid:\t7\t1\n",
        );
        self.file(pid, "cgroup", "0::/\n");
        self.file(pid, "cmdline", name);
    }

    fn file(&self, pid: u32, file: &str, text: &str) {
        let directory = self.0.path().join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(file), text).unwrap();
    }

    fn processes(&self) -> ProcessReader {
        processes(self.0.path())
    }
}

#[test]
fn test_process_keeps_its_metadata() {
    let users = Users::new(SystemNameService::for_this_host());
    let mut processes = processes(Path::new("/proc"));
    let now = Timestamp::from(std::time::SystemTime::now());
    let pid = std::process::id();
    let found = row(&mut processes, &users, pid, now);
    let us = rustix::process::getuid().as_raw();
    assert_eq!(found.uid, Reading::Value(us));
    assert_eq!(found.owner.known().unwrap().uid, Some(us));
    assert_eq!(found.namespace_owner, Reading::Value(None));
    assert_eq!(found.inner_pid, Reading::Value(None));
    let started_at = *found.started_at.known().unwrap();
    assert!(
        now.since(started_at) < Duration::from_secs(3600),
        "{found:?}"
    );
    assert!(found.command.known().is_some());
    assert!(found.host_memory.known().unwrap().0 > 1 << 20);
    let parent = rustix::process::getppid().unwrap().as_raw_pid();
    assert_eq!(i64::from(found.parents[0].key.pid), i64::from(parent));
    // No field was left unset.
    assert!(
        !format!("{found:?}").contains("Withheld, name"),
        "{found:?}"
    );
    let again = row(&mut processes, &users, pid, now);
    assert_eq!((again.job, again.location), (found.job, found.location));
    let none = processes.identify(&[u32::MAX].into(), now, &users);
    assert!(none.is_empty());
    assert_eq!(processes.absent_pids(), &[u32::MAX].into());
}

#[test]
fn unreadable_process_is_not_absent() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(7, "x", 0, 5, 0);
    tree.file(8, "stat", "8 (x");
    let mut processes = tree.processes();
    let found = processes.identify(&[7, 8, 9].into(), Timestamp(0), &users);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [7]);
    assert_eq!(processes.absent_pids(), &[9].into());
}

#[test]
fn all_identifying_fields_are_filled() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(7, "x", 0, 5, 0);
    let row = row(&mut tree.processes(), &users, 7, Timestamp(0));
    let left: Vec<&str> = [
        ("start_ticks", row.start_ticks.reason()),
        ("started_at", row.started_at.reason()),
        ("uid", row.uid.reason()),
        ("user", row.user.reason()),
        ("owner", row.owner.reason()),
        ("login_uid", row.login_uid.reason()),
        ("namespace_owner", row.namespace_owner.reason()),
        ("name", row.name.reason()),
        ("executable", row.executable.reason()),
        ("command", row.command.reason()),
        ("inner_pid", row.inner_pid.reason()),
        ("container", row.location.container.reason()),
        ("unit", row.location.unit.reason()),
        ("session", row.location.session.reason()),
        ("terminal", row.location.terminal.reason()),
        ("scheduler", row.location.scheduler.reason()),
        ("job", row.job.reason()),
        ("host_memory", row.host_memory.reason()),
        ("cpu", row.cpu.reason()),
    ]
    .into_iter()
    .filter(|(_, reason)| *reason == Reading::<()>::Withheld.reason())
    .map(|(field, _)| field)
    .collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(row.inner_pid, Reading::Value(Some(1)));
    let page = rustix::param::page_size() as u64;
    assert_eq!(row.host_memory, Reading::Value(Bytes(3 * page)));
    assert_eq!(row.owner.known().unwrap().kind, OwnerKind::User);
}

#[test]
fn another_start_time_is_another_process() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    let mut processes = tree.processes();
    tree.process(7, "first", 0, 500, 0);
    let first = row(&mut processes, &users, 7, Timestamp(0));
    assert_eq!(first.uid, Reading::Value(1000));
    assert_eq!(first.command, Reading::Value("first".into()));
    tree.process(7, "second", 0, 900, 0);
    let second = row(&mut processes, &users, 7, Timestamp(1));
    assert_ne!(first.key(), second.key());
    assert_eq!(second.command, Reading::Value("second".into()));
    let hz = i64::try_from(rustix::param::clock_ticks_per_second()).unwrap();
    assert_eq!(
        second.started_at,
        Reading::Value(Timestamp(1_000_000 + 900_000 / hz))
    );
}

#[test]
fn rereads_when_old_or_after_exec_or_orphaning() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    let mut processes = tree.processes();
    let mut unit_at = |now: i64| {
        let row = row(&mut processes, &users, 7, Timestamp(now));
        row.location
            .unit
            .known()
            .unwrap()
            .as_ref()
            .unwrap()
            .name
            .clone()
    };
    let set = |unit: &str| tree.file(7, "cgroup", &format!("0::/system.slice/{unit}.service\n"));
    tree.process(7, "x", 5, 500, 0);
    set("a");
    assert_eq!(unit_at(0), "a.service");
    set("b");
    assert_eq!(unit_at(19_999), "a.service");
    assert_eq!(unit_at(20_000), "b.service");
    // Its parent has ended.
    tree.process(7, "x", 1, 500, 0);
    set("c");
    assert_eq!(unit_at(20_001), "c.service");
    // It executes another program.
    tree.process(7, "y", 1, 500, 0);
    set("d");
    assert_eq!(unit_at(20_002), "d.service");
    // The clock was set back.
    set("e");
    assert_eq!(unit_at(5), "e.service");
}

#[test]
fn unchanged_process_is_read_less_often() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    let mut processes = tree.processes();
    let mut user_at = |seconds: i64| {
        let row = row(&mut processes, &users, 7, Timestamp(seconds * 1_000));
        *row.uid.known().unwrap()
    };
    let stat = |stack: u32, session: u32| {
        let zeros = "0 ".repeat(7);
        let text = format!("7 (x) S 5 0 {session} {zeros}0 0 0 0 0 0 0 0 500 0 3 0 0 0 {stack}");
        tree.file(7, "stat", &text);
    };
    tree.process(7, "x", 5, 500, 0);
    stat(40, 0);
    let become_user = |uid: u32| tree.file(7, "status", &format!("Uid:\t{uid}\t1\t1\t1\n"));
    become_user(1);
    // Read at 0, 20, 60 and 140 s, and every 80 s from then on.
    for at in [0, 20, 60, 140, 220, 300] {
        assert_eq!(user_at(at), 1);
    }
    become_user(2);
    assert_eq!(user_at(379), 1);
    assert_eq!(user_at(380), 2);
    // It has changed its user, and may do so again.
    become_user(3);
    assert_eq!((user_at(399), user_at(400)), (2, 3));
    // Its end is no change.
    become_user(4);
    stat(0, 0);
    assert_eq!(user_at(401), 3);
    // It executes another program with the same name, and starts another session.
    for (stack, session) in [(41, 0), (41, 9)] {
        become_user(stack + session);
        stat(stack, session);
        assert_eq!(user_at(402), stack + session);
    }
}

#[test]
fn exec_shows_the_new_command_line() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    let mut processes = tree.processes();
    tree.process(7, "x", 0, 500, 0);
    let before = row(&mut processes, &users, 7, Timestamp(0));
    tree.process(7, "y", 0, 500, 0);
    let after = row(&mut processes, &users, 7, Timestamp(1));
    assert_eq!(before.key(), after.key());
    assert_eq!(before.command, Reading::Value("x".into()));
    assert_eq!(after.command, Reading::Value("y".into()));
}

#[test]
fn possible_jupyter_leaves_job_unknown() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(6, "python3", 1, 200, 0);
    tree.process(7, "python3", 6, 300, 0);
    let mut processes = tree.processes();
    let metadata = processes.identify(&[7].into(), Timestamp(0), &users);
    let job = metadata[&7].details.job.clone();
    assert_eq!(job, Reading::Failed("not read yet".into()));
}

#[test]
fn tree_below_jupyter_is_one_job() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(5, "python3", 1, 100, 0);
    tree.file(5, "cmdline", "/a b/python3\0-W\0ignore\0-m\0jupyterlab\0");
    tree.process(6, "python3", 5, 200, 0);
    tree.file(6, "cmdline", "python3\0-m\0ipykernel_launcher\0");
    tree.process(7, "python3", 6, 300, 0);
    let row = row(&mut tree.processes(), &users, 7, Timestamp(0));
    let kernel = ProcessKey::new(6, 200);
    assert_eq!(row.job, Reading::Value(Job::Tree(kernel)));
    let parents: Vec<u32> = row.parents.iter().map(|parent| parent.key.pid).collect();
    assert_eq!(parents, [6, 5]);
}

#[test]
fn editor_server_is_no_part_of_a_job() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(5, "MainThread", 1, 100, 0);
    let node = "/home/a/.vscode-server/bin/1/node";
    std::os::unix::fs::symlink(node, tree.0.path().join("5/exe")).unwrap();
    tree.process(6, "python3", 5, 200, 0);
    let row = row(&mut tree.processes(), &users, 6, Timestamp(0));
    let itself = ProcessKey::new(6, 200);
    assert_eq!(row.job, Reading::Value(Job::Tree(itself)));
}

#[test]
fn reused_pid_is_left_out() {
    let users = Users::new(SystemNameService::for_this_host());
    let tree = FakeProcesses::new();
    tree.process(40, "python", 1, 100, 0);
    let directory = tree.0.path().join("40");
    // Opening it blocks until the test writes: `stat` has been read by then.
    let status = directory.join("status");
    std::fs::remove_file(&status).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&status).status();
    assert!(made.unwrap().success());
    let mut processes = tree.processes();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pipe = std::fs::OpenOptions::new()
                .write(true)
                .open(&status)
                .unwrap();
            tree.file(
                40,
                "stat",
                "40 (bash) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 900 0 3",
            );
            io::Write::write_all(&mut pipe, b"Uid:\t0\t0\t0\t0\n").unwrap();
        });
        processes.identify(&[40].into(), Timestamp(2_000_000), &users)
    });
    assert!(found.is_empty(), "{found:?}");
    // Whichever process was listed with the PID, its current process is another one.
    assert_eq!(processes.absent_pids(), &[40].into());
}

/// A name service that answers only when the test allows it.
struct GatedNameService(Mutex<Receiver<()>>);

impl NameService for GatedNameService {
    fn user(&self, _: u32) -> Result<Option<UserRecord>, String> {
        let _ = self.0.lock().unwrap().recv();
        Ok(Some(UserRecord {
            name: "alice".into(),
            home: "/home/alice".into(),
        }))
    }
}

#[test]
fn late_user_name_is_filled_in() {
    let tree = FakeProcesses::new();
    tree.process(7, "python", 0, 1, 0);
    let scope = format!("libpod-{}.scope", "a".repeat(64));
    let group = format!("user.slice/user-1000.slice/user@1000.service/user.slice/{scope}");
    tree.file(7, "cgroup", &format!("0::/{group}\n"));

    let (sender, receiver) = channel();
    let users = Users::new(GatedNameService(Mutex::new(receiver)));
    let mut processes = tree.processes();
    let now = Timestamp(2_000_000);
    let name = |metadata: &BTreeMap<u32, ProcessMetadata>| {
        let container = metadata[&7].details.location.container.known().cloned();
        container.flatten().unwrap().name
    };
    let mut metadata = processes.identify(&[7].into(), now, &users);
    let in_a_moment = Instant::now() + Duration::from_millis(20);
    processes.settle(&mut metadata, &users, in_a_moment);
    assert_eq!(name(&metadata), Reading::Failed("not resolved yet".into()));
    // All other requests were answered long before the name.
    while processes.command_lines.0.changes() == 0 {
        std::thread::yield_now();
    }
    processes.settle(&mut metadata, &users, Instant::now());
    assert_eq!(name(&metadata), Reading::Failed("not resolved yet".into()));
    drop(sender);
    users.settle(Instant::now() + Duration::from_secs(10));
    // The next poll knows the user's home directory, which has no such files.
    let expected = Reading::Failed("no file of its runtime names it".into());
    let deadline = Instant::now() + Duration::from_secs(10);
    while name(&metadata) != expected {
        assert!(Instant::now() < deadline, "{:?}", name(&metadata));
        metadata = processes.identify(&[7].into(), now, &users);
        processes.settle(&mut metadata, &users, Instant::now());
    }
}
