//! Workers that kept the descriptors of a training that has ended: the command
//! on the screen ends them.

use super::{Box, GIB, user_called};
use gpukill_tests::harness::{Daemon, NOBODY, becomes, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The name of whoever has the workers: where the test is root somebody else, as
/// what a system's user left behind is in no command.
fn us() -> String {
    match rustix::process::geteuid() {
        root if root.is_root() => user_called(NOBODY),
        user => user_called(user.as_raw()),
    }
}

/// A shell that leads a group, and a worker that it left behind.
struct Family {
    shell: u32,
    worker: u32,
}

impl Family {
    /// A shell opens `/dev/full` and starts a worker, which has it too. The
    /// shell stays until its input is closed.
    fn start() -> (Self, std::process::Child) {
        let mut command = Command::new("sh");
        // The worker says its pid, and keeps nothing else of the shell.
        let script = "exec 5</dev/full; sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; read _";
        command.args(["-c", script]).process_group(0);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY);
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
        // The shell's child is a shell until it has become a worker.
        eventually("the worker", || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", family.worker));
            (name.ok()?.trim() == "sleep").then_some(())
        });
        (family, child)
    }

    /// Lets the shell end, as a training does that is killed; who takes in its
    /// worker.
    fn end_shell(&self, mut child: std::process::Child) -> u32 {
        drop(child.stdin.take());
        let _ = child.wait();
        eventually("the worker has another parent", || {
            let parent = parent(self.worker)?;
            (parent != self.shell).then_some(parent)
        })
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let worker = Pid::from_raw(i32::try_from(self.worker).unwrap());
        // The test may have ended it.
        let _ = kill_process(worker.unwrap(), Signal::KILL);
    }
}

fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Whether nothing runs under this pid any more.
fn is_over(pid: u32) -> bool {
    stat(pid).is_none_or(|fields| fields[0] == "Z")
}

/// Does what the screen says, as whoever reads it would, while the driver frees the
/// memory of the worker when that has ended; what the client says then, without how
/// long it took.
fn follow(it: &Box, worker: u32) -> Vec<String> {
    let verdict = it.verdict();
    let last = verdict.lines().last().unwrap();
    let command = last.strip_prefix("To free it: gpukillctl ");
    let arguments: Vec<&str> = command.expect("a command").split(' ').collect();
    assert_eq!(arguments, ["kill", &worker.to_string()]);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the worker is gone", || is_over(worker).then_some(()));
            it.play(0, &json!([]));
        });
        it.stage.ctl(&arguments)
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

fn is_free(it: &Box, daemon: Daemon) {
    it.play(0, &json!([]));
    becomes(&json!([]), || it.roles());
    becomes(&json!([]), || it.findings());
    becomes(&" nobody has it open\n".to_owned(), || it.screen());
    daemon.stop();
}

/// The roles of two, whichever pid is smaller.
fn by_pid(mut roles: [(u32, &str); 2]) -> Value {
    roles.sort_unstable();
    json!(roles)
}

#[test]
fn the_printed_command_ends_the_worker_that_a_killed_training_left() {
    let it = Box::new();
    let (family, shell) = Family::start();
    let Family { worker, shell: of } = family;
    let adopter = family.end_shell(shell);
    it.procfs.link(worker);
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();

    let expected = json!([["orphans", [worker], "end", [worker]]]);
    becomes(&expected, || it.findings());
    let held = it.held();
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
    assert_eq!(super::pick(&held["holders"], &fields), row);
    assert_eq!(held["mem_unattributed_bytes"], 35 * GIB);
    assert_eq!(held["unseen"], json!(null));

    let us = us();
    let mut verdict = format!(
        "Most likely 1 orphaned worker of {us} keeps its memory.\n  \
           - {worker} (sleep of {us}) has it open, and the driver does not list it\n  \
           - its process group's leader {of} is gone\n"
    );
    if adopter == 1 {
        verdict += "  - its parent is 1, which takes in the children of those that end\n";
    }
    verdict += &format!("To free it: gpukillctl kill {worker}\n");
    becomes(&verdict, || it.verdict());
    let said = follow(&it, worker);
    assert_eq!(
        said.last().unwrap(),
        "memory: GPU 0 gave back 35.0 of 35.0 GiB"
    );
    is_free(&it, daemon);
}

#[test]
fn a_worker_is_told_of_which_training_it_was_where_that_was_listed() {
    let it = Box::new();
    let (family, shell) = Family::start();
    let Family { worker, shell: of } = family;
    it.procfs.link(worker);
    it.procfs.link(of);
    it.play(35 * GIB, &json!([{"pid": of, "memory": 35 * GIB}]));
    let daemon = it.start();
    // While the training runs nothing is unexplained, whoever has it open.
    becomes(&by_pid([(of, "user"), (worker, "unlisted")]), || it.roles());
    assert_eq!(it.findings(), json!([]));

    family.end_shell(shell);
    it.play(35 * GIB, &json!([]));
    // Whose memory it is can be known only when the driver's own time is over.
    let expected = json!([
        ["orphans", [worker], "end", [worker]],
        ["tearing_down", [of], "wait", []],
    ]);
    becomes(&expected, || it.findings());
    let held = it.held();
    assert_eq!(held["holders"][0]["orphan_of"], of);
    assert_eq!(
        held["holders"][0]["orphaned_at"],
        held["ended"][0]["ended_at"]
    );
    let ended = super::pick(&held["ended"], &["pid", "proc_name", "used_mem_bytes"]);
    assert_eq!(ended, json!([[of, "sh", 35 * GIB]]));
    let said = held["findings"][0]["evidence"].as_array().unwrap();
    assert_eq!(said[1], format!("its process group's leader {of} is gone"));
    let ended = format!("{of} (sh of {}) ended ", us());
    assert!(said[2].as_str().unwrap().starts_with(&ended), "{said:?}");
    drop(family);
    eventually("the worker is gone", || is_over(worker).then_some(()));
    is_free(&it, daemon);
}

#[test]
fn a_worker_of_a_training_that_only_let_go_of_the_gpu_is_no_orphan() {
    let it = Box::new();
    let (family, shell) = Family::start();
    let Family { worker, shell: of } = family;
    it.procfs.link(worker);
    it.procfs.link(of);
    it.play(35 * GIB, &json!([{"pid": of, "memory": 35 * GIB}]));
    let daemon = it.start();
    becomes(&by_pid([(of, "user"), (worker, "unlisted")]), || it.roles());
    // The driver lists it no more, and it runs on.
    it.play(35 * GIB, &json!([]));
    becomes(&json!([[of, "unlisted"], [worker, "unlisted"]]), || {
        it.roles()
    });
    let mut both = [of, worker];
    both.sort_unstable();
    assert_eq!(it.findings(), json!([["unlisted", both, null, []]]));
    assert_eq!(it.held()["ended"], json!([]));
    // Then it does end.
    family.end_shell(shell);
    becomes(&json!([[worker, "orphan"]]), || it.roles());
    let ended = super::pick(&it.held()["ended"], &["pid", "proc_name"]);
    assert_eq!(ended, json!([[of, "sh"]]));
    daemon.stop();
}
