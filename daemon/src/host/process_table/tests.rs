//! Tests of the process table over a fake `/proc`.

mod real;

use super::*;
use crate::host::users::{NameService, UserRecord};
use gpukill_policy::access::Uids;
use gpukill_policy::job::ProcessLineage;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::model::{Job, ProcessKey, Unit};
use gpukill_proto::reading::Reading;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::Command;

pub(super) struct FakeProcessTree(tempfile::TempDir);

impl FakeProcessTree {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Creates a process of user 1000 with this PID, name, parent and start.
    pub(super) fn process(&self, pid: u32, name: &str, parent: u32, start: u64) {
        self.stat(pid, &format!("{name}) S {parent} 77 88 0"), 0, 1, start);
        self.file(pid, "status", "Uid:\t1000\t1001\t1002\t1003\n");
        self.file(pid, "cgroup", "0::/\n");
        self.file(pid, "cmdline", name);
    }

    /// Writes `stat`: `first` is from the name to the terminal.
    fn stat(&self, pid: u32, first: &str, flags: u32, threads: u32, start: u64) {
        let zeros = "0 ".repeat(10);
        let stat = format!("{pid} ({first} -1 {flags} {zeros}{threads} 0 {start} 0 3");
        self.file(pid, "stat", &stat);
    }

    pub(super) fn file(&self, pid: u32, file: &str, text: &str) {
        let file = self.0.path().join(pid.to_string()).join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn link(&self, pid: u32, file: &str, target: &str) {
        let file = self.0.path().join(pid.to_string()).join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        symlink(target, file).unwrap();
    }

    /// Makes a process stuck: reading its command line blocks until the test writes to the file.
    pub(super) fn stick(&self, pid: u32) -> PathBuf {
        let cmdline = self.0.path().join(pid.to_string()).join("cmdline");
        std::fs::remove_file(&cmdline).unwrap();
        let made = Command::new("mkfifo").arg(&cmdline).status();
        assert!(made.unwrap().success());
        cmdline
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn roots(&self) -> ReadRoots<'_> {
        ReadRoots {
            procfs: self.0.path(),
            host_root: self.0.path(),
            view: namespace::cgroup_view(self.0.path()),
            own_users: None,
            uid_min: 1000,
        }
    }

    pub(super) fn reader(&self) -> ProcessTableReader {
        let root = self.root().to_owned();
        ProcessTableReader::new(root.clone(), root, "")
    }
}

/// A name service with one user.
pub(super) struct AliceNameService;

impl NameService for AliceNameService {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, String> {
        Ok((uid == 1000).then(|| UserRecord {
            name: "alice".into(),
            home: "/home/alice".into(),
        }))
    }
}

fn read_processes(reader: &ProcessTableReader) -> ProcessTable {
    let users = Users::new(AliceNameService);
    reader.read_all(&users).unwrap()
}

fn key(pid: u32, start_ticks: u64) -> ProcessKey {
    ProcessKey { pid, start_ticks }
}

/// The expected info of a process made by [`FakeProcessTree::process`].
fn found(pid: u32, name: &str, parent: u32, start: u64) -> ProcessInfo {
    ProcessInfo {
        lineage: ProcessLineage {
            key: key(pid, start),
            uid: Some(1000),
            uid_min: 1000,
            namespace_creator: None,
            name: name.to_owned(),
            group: 77,
            session: 88,
            on_terminal: false,
            executable: None,
            arguments: None,
            unit: None,
        },
        parent,
        is_kernel_thread: false,
        state: ProcessState::Sleeping,
        uids: Reading::Value(Uids {
            real: 1000,
            effective: 1001,
            saved: 1002,
        }),
        namespace_owner: Reading::Unsupported,
        namespace_root: None,
        pid_namespace: None,
        is_namespace_init: false,
        owner: Reading::Value("alice".into()),
        person_name: Reading::Value("alice".into()),
        command: Reading::Value(name.to_owned()),
        container: Reading::Value(None),
        job: Reading::Value(Job::Tree(key(pid, start))),
        program: Reading::Failed("not known yet".into()),
        at_seat: Reading::Unsupported,
    }
}

#[test]
fn entry_has_all_known_facts() {
    let tree = FakeProcessTree::new();
    tree.process(7, "train", 1, 500);
    tree.link(7, "exe", "/opt/train");
    tree.file(7, "cgroup", "0::/system.slice/train.service\n");
    let unit = Unit {
        name: "train.service".into(),
        manager: None,
    };
    let plain = found(7, "train", 1, 500);
    let expected = ProcessInfo {
        lineage: ProcessLineage {
            executable: Some("/opt/train".into()),
            unit: Some(unit.clone()),
            ..plain.lineage.clone()
        },
        job: Reading::Value(Job::Unit { unit, uid: 1000 }),
        ..plain
    };
    assert_eq!(
        read_processes(&tree.reader()),
        [(7, expected.clone())].into()
    );
    let not_requested = || Reading::Failed("not requested".into());
    let alone = ProcessInfo {
        owner: not_requested(),
        person_name: not_requested(),
        command: not_requested(),
        job: Reading::Failed("not requested".into()),
        program: Reading::Failed("not requested".into()),
        ..expected
    };
    assert_eq!(tree.reader().read_one(7).unwrap(), alone);
    let error = tree.reader().read_one(8).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn skips_non_processes_and_ended_ones() {
    let tree = FakeProcessTree::new();
    tree.process(7, "a", 1, 500);
    for name in ["self", "007", "+8", "0", "4294967296"] {
        std::fs::create_dir(tree.0.path().join(name)).unwrap();
    }
    // Its directory exists, its files do not.
    std::fs::create_dir(tree.0.path().join("9")).unwrap();
    let pids: Vec<u32> = read_processes(&tree.reader()).into_keys().collect();
    assert_eq!(pids, [7]);
}

#[test]
fn lists_processes_again_while_some_are_missed() {
    // Each listing has its PIDs; those up to 9 can be read.
    let read = |listings: &[&[u32]]| {
        let mut rest = listings.iter().cycle();
        let mut reads = Vec::new();
        let found = read_listed(
            || Ok((rest.next().unwrap().to_vec(), false)),
            |pid| {
                reads.push(pid);
                (pid <= 9).then_some(())
            },
        );
        let found = found.unwrap();
        let pids: Vec<u32> = found.by_pid.into_keys().collect();
        (pids, found.is_outrun, reads)
    };
    assert_eq!(read(&[&[1, 2]]), (vec![1, 2], false, vec![2, 1]));
    let replaced = read(&[&[1, 10], &[1, 11], &[1, 2]]);
    assert_eq!(replaced, (vec![1, 2], false, vec![10, 1, 11, 2]));
    // It is listed each time.
    assert_eq!(read(&[&[1, 10]]), (vec![1], false, vec![10, 1]));
    let mut next = 10;
    let endless = read_listed(
        || {
            next += 1;
            Ok((vec![1, next], false))
        },
        |pid| (pid == 1).then_some(()),
    );
    let endless = endless.unwrap();
    assert!(endless.is_outrun);
    assert_eq!(endless.by_pid.into_keys().collect::<Vec<u32>>(), [1]);
}

#[test]
fn uninterruptible_process_is_reported() {
    let tree = FakeProcessTree::new();
    let state = |first: &str, threads| {
        tree.process(7, "x", 1, 500);
        tree.stat(7, first, 0, threads, 500);
        tree.file(7, "wchan", "nv_wait");
        let found = tree.reader().read_one(7).unwrap();
        found.state
    };
    let stuck = ProcessState::Uninterruptible(Some("nv_wait".into()));
    assert_eq!(state("x) D 1 7 7 0", 1), stuck);
    assert_eq!(state("x) T 1 7 7 0", 1), ProcessState::Stopped);
    assert_eq!(state("x) Z 1 7 7 0", 1), ProcessState::Zombie);
    // Only its first thread has ended.
    assert_eq!(state("x) Z 1 7 7 0", 3), ProcessState::Sleeping);
}

#[test]
fn kernel_thread_is_known_by_its_flag() {
    let tree = FakeProcessTree::new();
    tree.process(7, "kworker/0:1", 2, 500);
    assert!(!tree.reader().read_one(7).unwrap().is_kernel_thread);
    tree.stat(7, "kworker/0:1) I 2 0 0 0", 0x0420_8060, 1, 500);
    assert!(tree.reader().read_one(7).unwrap().is_kernel_thread);
}

#[test]
fn ended_first_thread_leaves_another_visible() {
    let tree = FakeProcessTree::new();
    tree.process(7, "python", 1, 500);
    tree.stat(7, "python) Z 1 77 88 0", 0, 3, 500);
    tree.file(7, "cmdline", "");
    for thread in [7, 8] {
        tree.file(7, &format!("task/{thread}/cmdline"), "");
    }
    tree.file(7, "task/9/cmdline", "python\0train.py\0");
    tree.link(7, "task/9/exe", "/usr/bin/python3");
    let table = read_processes(&tree.reader());
    let found = &table[&7];
    let executable = found.lineage.executable.as_deref();
    assert_eq!(executable, Some("/usr/bin/python3"));
    assert_eq!(found.command, Reading::Value("python train.py".into()));
}

#[test]
fn processes_below_jupyter_are_jobs() {
    let tree = FakeProcessTree::new();
    tree.process(5, "python3", 1, 100);
    tree.file(5, "cmdline", "python3\0-m\0jupyterlab\0");
    tree.process(6, "python3", 5, 200);
    tree.file(6, "cmdline", "python3\0-m\0ipykernel_launcher\0");
    tree.process(7, "worker", 6, 300);
    tree.process(8, "worker", 6, 300);
    // The PID of its parent was reused.
    tree.process(9, "orphan", 8, 250);
    let table = read_processes(&tree.reader());
    let jobs: Vec<Reading<Job>> = table.values().map(|found| found.job.clone()).collect();
    let tree = |pid, start| Reading::Value(Job::Tree(key(pid, start)));
    let kernel = tree(6, 200);
    let expected = [
        tree(5, 100),
        kernel.clone(),
        kernel.clone(),
        kernel,
        tree(9, 250),
    ];
    assert_eq!(jobs, expected);
    let arguments = table[&5].lineage.arguments.clone().unwrap();
    assert_eq!(arguments[..3], ["python3", "-m", "jupyterlab"]);
    assert_eq!(table[&7].lineage.arguments, None);
}

#[test]
fn too_many_ancestors_leave_job_unknown() {
    let tree = FakeProcessTree::new();
    for pid in 2..=260 {
        tree.process(pid, "deep", pid - 1, u64::from(pid));
    }
    let table = read_processes(&tree.reader());
    let top = Reading::Value(Job::Tree(key(2, 2)));
    assert_eq!(table[&258].job, top);
    let unknown = Reading::Failed("it has too many ancestors to read".into());
    assert_eq!(table[&259].job, unknown);
}

#[test]
fn too_many_processes_leave_job_unknown() {
    let tree = FakeProcessTree::new();
    for pid in [5, 6, 7] {
        tree.process(pid, "x", 9, 500);
    }
    let (pids, is_cut) = list_pids(tree.0.path(), 2).unwrap();
    assert_eq!((pids.len(), is_cut), (2, true));
    let (mut pids, is_cut) = list_pids(tree.0.path(), 3).unwrap();
    pids.sort_unstable();
    assert_eq!((pids, is_cut), (vec![5, 6, 7], false));
    let read = |pid| ProcessEntry::read(&tree.roots(), pid);
    let mut member = read(5).unwrap();
    member.info.container = Reading::Value(None);
    let members: BTreeMap<u32, ProcessEntry> = [(5, member)].into();
    let job = |is_cut| {
        JobMembership::new(&members, is_cut)
            .jobs()
            .remove(&5)
            .unwrap()
    };
    let unknown = Reading::Failed("it has too many ancestors to read".into());
    assert_eq!(job(true), unknown);
    assert_eq!(job(false), Reading::Value(Job::Tree(key(5, 500))));
}

#[test]
fn reused_pid_is_left_out() {
    let tree = FakeProcessTree::new();
    tree.process(40, "python", 1, 100);
    // Opening it blocks until the test writes: `stat` has been read by then.
    let status = tree.0.path().join("40/status");
    std::fs::remove_file(&status).unwrap();
    let made = Command::new("mkfifo").arg(&status).status();
    assert!(made.unwrap().success());
    let reader = tree.reader();
    let read = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pipe = std::fs::File::options().write(true).open(&status).unwrap();
            tree.stat(40, "bash) S 1 0 0 0", 0, 1, 900);
            pipe.write_all(b"Uid:\t0\t0\t0\t0\n").unwrap();
        });
        reader.read_one(40)
    });
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn each_read_is_fresh() {
    let tree = FakeProcessTree::new();
    tree.process(7, "x", 1, 500);
    let reader = tree.reader();
    let command = |table: &ProcessTable| table[&7].command.clone();
    assert_eq!(
        command(&read_processes(&reader)),
        Reading::Value("x".into())
    );
    tree.file(7, "cmdline", "y");
    assert_eq!(
        command(&read_processes(&reader)),
        Reading::Value("y".into())
    );
}

#[test]
fn stuck_process_hides_only_its_command_line() {
    let tree = FakeProcessTree::new();
    tree.process(7, "stuck", 1, 500);
    tree.process(8, "fine", 1, 500);
    let cmdline = tree.stick(7);
    let reader = tree.reader();
    for _ in 0..6 {
        let table = read_processes(&reader);
        assert_eq!(table[&7].command, Reading::Failed("not read yet".into()));
        assert_eq!(table[&8].command, Reading::Value("fine".into()));
    }
    // Releases the threads.
    drop(std::fs::File::options().write(true).open(&cmdline));
}

#[test]
fn reread_finds_new_processes_without_waiting() {
    let tree = FakeProcessTree::new();
    tree.process(6, "python3", 1, 400);
    tree.file(6, "cmdline", "python3\0train.py\0");
    tree.process(7, "train", 6, 500);
    let reader = tree.reader();
    let users = Users::new(AliceNameService);
    let before = reader.read_all(&users).unwrap();
    tree.process(8, "worker", 7, 600);
    tree.stick(8);
    // It runs an unknown interpreter, and may separate the processes below it.
    tree.process(9, "python3", 7, 600);
    tree.stick(9);
    tree.process(10, "worker", 9, 700);
    // Its PID was reused.
    tree.process(7, "other", 6, 550);
    // A read of this file would block.
    let nobody_asks = reader.background_reads.block();
    let table = reader.reread_all(&before, &users).unwrap().table;
    drop(nobody_asks);
    let tree_of_6 = || Reading::Value(Job::Tree(key(6, 400)));
    let row = |pid, name, parent, start, job| ProcessInfo {
        command: Reading::Failed("not requested".into()),
        job,
        program: Reading::Failed("not requested".into()),
        ..found(pid, name, parent, start)
    };
    let unknown = Reading::Failed("not read yet".into());
    let expected = [
        (6, before[&6].clone()),
        (7, row(7, "other", 6, 550, tree_of_6())),
        (8, row(8, "worker", 7, 600, tree_of_6())),
        (9, row(9, "python3", 7, 600, tree_of_6())),
        (10, row(10, "worker", 9, 700, unknown)),
    ];
    assert_eq!(
        before[&6].command,
        Reading::Value("python3 train.py".into())
    );
    assert_eq!(table, expected.into());
}
