//! Workers that kept the descriptors of a training that has ended: the command on the
//! screen ends them.

use super::{GIB, HoldersBox, user_name};
use gpukill_tests::harness::{Daemon, NOBODY_UID, eventually, eventually_equals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The name of the user who owns the workers. Where the test runs as root they belong to
/// another user, because no command names the orphans of a system user.
fn workers_user_name() -> String {
    match rustix::process::geteuid() {
        root if root.is_root() => user_name(NOBODY_UID),
        user => user_name(user.as_raw()),
    }
}

/// A shell that leads a process group, and a worker that it started.
struct ShellAndWorker {
    shell: u32,
    worker: u32,
}

impl ShellAndWorker {
    /// Starts a shell that opens `/dev/full` and starts a worker, which inherits the
    /// descriptor. The shell stays until its input is closed.
    fn start() -> (Self, std::process::Child) {
        let mut command = Command::new("sh");
        // The worker prints its pid, and keeps nothing else of the shell.
        let script = "exec 5</dev/full; sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; read _";
        command.args(["-c", script]).process_group(0);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY_UID);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let family = Self {
            shell: child.id(),
            worker: line.trim().parse().unwrap(),
        };
        // The child is a shell until it has executed the worker.
        eventually("the worker", || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", family.worker));
            (name.ok()?.trim() == "sleep").then_some(())
        });
        (family, child)
    }

    /// Ends the shell, as if a training was killed, and returns the process that adopts its
    /// worker.
    fn end_shell(&self, mut child: std::process::Child) -> u32 {
        drop(child.stdin.take());
        let _ = child.wait();
        eventually("the worker has another parent", || {
            let parent = parent_pid(self.worker)?;
            (parent != self.shell).then_some(parent)
        })
    }
}

impl Drop for ShellAndWorker {
    fn drop(&mut self) {
        let worker = Pid::from_raw(i32::try_from(self.worker).unwrap());
        // The test may have ended it already.
        let _ = kill_process(worker.unwrap(), Signal::KILL);
    }
}

fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn parent_pid(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

fn has_ended(pid: u32) -> bool {
    stat_fields(pid).is_none_or(|fields| fields[0] == "Z")
}

/// Runs the command that the screen prints, while the driver frees the memory of the worker
/// as soon as it has ended. Returns the lines that the client prints, without durations.
fn run_printed_command(it: &HoldersBox, worker: u32) -> Vec<String> {
    let verdict = it.text_below_table();
    let last = verdict.lines().last().unwrap();
    let command = last.strip_prefix("To free it: gpukillctl ");
    let arguments: Vec<&str> = command.expect("a command").split(' ').collect();
    assert_eq!(arguments, ["kill", &worker.to_string()]);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the worker is gone", || has_ended(worker).then_some(()));
            it.set_driver_state(0, &json!([]));
        });
        it.test_box.ctl(&arguments)
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let untimed = |line: &str| match line.split_once(" GiB in ") {
        Some((before, _)) => format!("{before} GiB"),
        None => line
            .split_once("  SIGTERM, ")
            .map_or(line, |(before, _)| before)
            .to_owned(),
    };
    ran.stdout.lines().map(untimed).collect()
}

fn assert_gpu_becomes_free(it: &HoldersBox, daemon: Daemon) {
    it.set_driver_state(0, &json!([]));
    eventually_equals(&json!([]), || it.roles());
    eventually_equals(&json!([]), || it.findings());
    eventually_equals(&" nobody has it open\n".to_owned(), || it.screen());
    daemon.stop();
}

fn ordered_roles(mut roles: [(u32, &str); 2]) -> Value {
    roles.sort_unstable();
    json!(roles)
}

#[test]
fn printed_command_ends_orphaned_worker() {
    let it = HoldersBox::new();
    let (family, shell) = ShellAndWorker::start();
    let ShellAndWorker { worker, shell: of } = family;
    let adopter = family.end_shell(shell);
    it.procfs.link_real_process(worker);
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();

    let expected = json!([["orphans", [worker], "end", [worker]]]);
    eventually_equals(&expected, || it.findings());
    let held = it.first_gpu_document();
    let fields = [
        "pid",
        "role",
        "orphan_of",
        "listed",
        "holds",
        "holds_this_gpu",
        "process_group",
        "group_leader_is_here",
        "parent_pid",
        "proc_name",
    ];
    let row = json!([[
        worker,
        "orphan",
        of,
        false,
        ["nvidia7"],
        true,
        of,
        false,
        adopter,
        "sleep"
    ]]);
    assert_eq!(super::select_fields(&held["holders"], &fields), row);
    assert_eq!(held["mem_unattributed_bytes"], 35 * GIB);
    assert_eq!(held["incomplete_reason"], json!(null));

    let us = workers_user_name();
    let mut verdict = format!(
        "Most likely 1 orphaned worker of {us} keeps its memory.\n  \
           - {worker} (sleep of {us}) has the device open, and the driver does not list it\n  \
           - its process group's leader {of} is gone\n"
    );
    if adopter == 1 {
        verdict += "  - its parent is 1, which adopts orphaned processes\n";
    }
    verdict += &format!("To free it: gpukillctl kill {worker}\n");
    eventually_equals(&verdict, || it.text_below_table());
    let output = run_printed_command(&it, worker);
    assert_eq!(
        output.last().unwrap(),
        "memory: GPU 0 gave back 35.0 of 35.0 GiB"
    );
    assert_gpu_becomes_free(&it, daemon);
}

#[test]
fn orphan_is_linked_to_listed_parent() {
    let it = HoldersBox::new();
    let (family, shell) = ShellAndWorker::start();
    let ShellAndWorker { worker, shell: of } = family;
    it.procfs.link_real_process(worker);
    it.procfs.link_real_process(of);
    it.set_driver_state(35 * GIB, &json!([{"pid": of, "memory": 35 * GIB}]));
    let daemon = it.start();
    // While the training runs, its listed memory explains all of it, even though two
    // processes have the GPU open.
    eventually_equals(&ordered_roles([(of, "user"), (worker, "unlisted")]), || {
        it.roles()
    });
    assert_eq!(it.findings(), json!([]));

    family.end_shell(shell);
    it.set_driver_state(35 * GIB, &json!([]));
    // The owner of the memory is unknown until the driver has had its time to release it.
    let expected = json!([
        ["orphans", [worker], "end", [worker]],
        ["tearing_down", [of], "wait", []],
    ]);
    eventually_equals(&expected, || it.findings());
    let held = eventually("the worker is linked to its parent", || {
        let held = it.first_gpu_document();
        (held["holders"][0]["orphan_of"] == of).then_some(held)
    });
    assert_eq!(
        held["holders"][0]["orphaned_at"],
        held["ended"][0]["ended_at"]
    );
    let ended = super::select_fields(&held["ended"], &["pid", "proc_name", "used_mem_bytes"]);
    assert_eq!(ended, json!([[of, "sh", 35 * GIB]]));
    let evidence = held["findings"][0]["evidence"].as_array().unwrap();
    assert_eq!(
        evidence[1],
        format!("its process group's leader {of} is gone")
    );
    let ended = format!("{of} (sh of {}) ended ", workers_user_name());
    assert!(
        evidence[2].as_str().unwrap().starts_with(&ended),
        "{evidence:?}"
    );
    drop(family);
    eventually("the worker is gone", || has_ended(worker).then_some(()));
    assert_gpu_becomes_free(&it, daemon);
}

#[test]
fn worker_of_running_parent_is_no_orphan() {
    let it = HoldersBox::new();
    let (family, shell) = ShellAndWorker::start();
    let ShellAndWorker { worker, shell: of } = family;
    it.procfs.link_real_process(worker);
    it.procfs.link_real_process(of);
    it.set_driver_state(35 * GIB, &json!([{"pid": of, "memory": 35 * GIB}]));
    let daemon = it.start();
    eventually_equals(&ordered_roles([(of, "user"), (worker, "unlisted")]), || {
        it.roles()
    });
    // The driver does not list the training any more, but the process goes on.
    it.set_driver_state(35 * GIB, &json!([]));
    eventually_equals(&json!([[of, "unlisted"], [worker, "unlisted"]]), || {
        it.roles()
    });
    let mut both = [of, worker];
    both.sort_unstable();
    assert_eq!(it.findings(), json!([["unlisted", both, null, []]]));
    assert_eq!(it.first_gpu_document()["ended"], json!([]));
    // Then the training ends.
    family.end_shell(shell);
    eventually_equals(&json!([[worker, "orphan"]]), || it.roles());
    let ended = super::select_fields(&it.first_gpu_document()["ended"], &["pid", "proc_name"]);
    assert_eq!(ended, json!([[of, "sh"]]));
    daemon.stop();
}
