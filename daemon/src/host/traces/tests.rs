//! Made-up processes.

mod running;

use super::*;
use std::fs::{create_dir_all, write};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

const MAPS: &str = "7f00-7f10 r-xp 00000000 fd:01 12 /usr/lib/libcuda.so.1\n";

const DEVICES: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  eth0: 1 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0
";

/// Made-up processes.
struct Tree(TempDir);

impl Tree {
    /// With the box's first process and ourselves in network 1.
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.process("1", 1, "init\0");
        tree.process("self", 1, "gpukilld\0");
        tree
    }

    fn process(&self, pid: &str, network: u32, cmdline: &str) -> PathBuf {
        let directory = self.0.path().join(pid);
        for part in ["ns", "net"] {
            create_dir_all(directory.join(part)).unwrap();
        }
        stat(&directory, 100, 7_000);
        symlink(format!("net:[{network}]"), directory.join("ns/net")).unwrap();
        symlink("/opt/worker", directory.join("exe")).unwrap();
        write(directory.join("cmdline"), cmdline).unwrap();
        write(directory.join("maps"), MAPS).unwrap();
        write(directory.join("net/dev"), DEVICES).unwrap();
        directory
    }

    fn read(&self, pid: u32) -> Result<Traces, String> {
        look::read(key(pid), self.0.path())
    }

    fn reader(&self) -> TraceReader {
        TraceReader::new(self.0.path().to_owned())
    }
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: 100,
    }
}

fn stat(directory: &Path, start_ticks: u64, stack: u64) {
    let rest = format!("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {start_ticks} 0 0 0 0 0 {stack}");
    write(directory.join("stat"), format!("9 (x) S 1 {rest}")).unwrap();
}

/// Puts a FIFO there: to open one that nobody writes to waits for ever, as to read from
/// a process that is stuck does.
fn fifo(path: &Path) {
    std::fs::remove_file(path).unwrap();
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn only_a_network_that_is_not_the_boxs_is_told_by_what_it_sent() {
    let tree = Tree::new();
    std::fs::remove_file(tree.0.path().join("self/ns/net")).unwrap();
    symlink("net:[2]", tree.0.path().join("self/ns/net")).unwrap();
    let unknown = |why: &str| Sending::Unknown(why.into());
    for (pid, network, expected) in [
        (11, 1, Sending::Shared),
        (12, 2, Sending::Shared),
        (
            13,
            3,
            Sending::Own {
                namespace: 3,
                bytes: 70,
            },
        ),
    ] {
        tree.process(&pid.to_string(), network, "x\0");
        assert_eq!(tree.read(pid).unwrap().sent, expected);
    }
    let directory = tree.0.path().join("13");
    write(directory.join("net/dev"), "hello\n").unwrap();
    let no_list = unknown("the list of its network's devices is not one");
    assert_eq!(tree.read(13).unwrap().sent, no_list);
    // Whose the box's own network is cannot be told: it may be this one.
    std::fs::remove_file(tree.0.path().join("1/ns/net")).unwrap();
    let first = unknown("the box's own network: there is none");
    assert_eq!(tree.read(13).unwrap().sent, first);
    assert_eq!(tree.read(12).unwrap().sent, Sending::Shared);
}

#[test]
fn what_was_sent_is_told_of_the_network_that_it_was_read_of() {
    let tree = Tree::new();
    let directory = tree.process("9", 3, "x\0");
    fifo(&directory.join("net/dev"));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| tree.read(9).map(|traces| traces.sent));
        // Opened by whoever reads, who has seen the first link by then.
        let mut devices = std::fs::File::options()
            .write(true)
            .open(directory.join("net/dev"))
            .unwrap();
        std::fs::remove_file(directory.join("ns/net")).unwrap();
        symlink("net:[4]", directory.join("ns/net")).unwrap();
        devices.write_all(DEVICES.as_bytes()).unwrap();
        drop(devices);
        let changes = Sending::Unknown("it changes its network".into());
        assert_eq!(read.join().unwrap(), Ok(changes));
    });
}

#[test]
fn what_cannot_be_read_is_told_with_its_reason() {
    let tree = Tree::new();
    let directory = tree.process("9", 1, "a\0\0b c\0\0\0");
    write(directory.join("maps"), "hello\n").unwrap();
    std::fs::remove_file(directory.join("exe")).unwrap();
    let traces = look::read(key(9), tree.0.path()).unwrap();
    let expected = Traces {
        executable: None,
        arguments: Some(["a", "", "b c"].map(String::from).to_vec()),
        libraries: None,
        sent: Sending::Shared,
        unseen: vec![
            "its executable: there is none".into(),
            "its libraries: the list of what is mapped is not one".into(),
        ],
    };
    assert_eq!(traces, expected);
}

#[test]
fn arguments_are_kept_as_far_as_there_is_room() {
    let (long, many) = (
        Some("it is longer than 32 KiB"),
        Some("it has more than 1,024 arguments"),
    );
    // What is no UTF-8 takes three bytes.
    let invalid = [&[0xff; 1_023][..], b"\0"].concat();
    for (bytes, times, arguments, length, cut) in [
        (&b""[..], 1, 0, 0, None),
        (b"\0", 100, 0, 0, None),
        (b"\0", 40 << 10, 0, 0, long),
        (b"a\0", 1_024, 1_024, 1_024, None),
        (b"a\0", 1_025, 1_024, 1_024, many),
        (b"x", 32 << 10, 1, 32 << 10, None),
        (b"x", (32 << 10) + 1, 1, 32 << 10, long),
        (&invalid, 10, 10, 10 * 3 * 1_023, None),
        (&invalid, 11, 10, 10 * 3 * 1_023, long),
    ] {
        let line = look::split(&bytes.repeat(times));
        let kept: usize = line.arguments.iter().map(String::len).sum();
        let told = (line.arguments.len(), kept, line.cut);
        assert_eq!(told, (arguments, length, cut), "{times} times {bytes:?}");
    }
}

#[test]
fn that_there_is_more_of_a_command_line_is_told() {
    let tree = Tree::new();
    for (pid, length, unseen) in [
        (9, 32 << 10, &[][..]),
        (
            10,
            40 << 10,
            &["the rest of its command line: it is longer than 32 KiB"],
        ),
    ] {
        tree.process(&pid.to_string(), 1, &"x".repeat(length));
        let traces = tree.read(pid).unwrap();
        assert_eq!(traces.arguments, Some(vec!["x".repeat(32 << 10)]));
        assert_eq!(traces.unseen, unseen);
    }
}

#[test]
fn of_one_whose_first_thread_alone_has_ended_no_arguments_are_told() {
    let tree = Tree::new();
    for (pid, state, flags, threads, cmdline, are_known) in [
        (9, 'Z', 0, 2, "", false),
        (10, 'R', 4, 2, "", false),
        (11, 'Z', 0, 1, "", true),
        (12, 'S', 0, 2, "", true),
        // Wiped out.
        (13, 'S', 0, 1, "\0\0", true),
    ] {
        let directory = tree.process(&pid.to_string(), 1, cmdline);
        let rest = format!("0 0 0 0 {flags} 0 0 0 0 0 0 0 0 0 0 {threads} 0 100 0 0 0 0 0 0");
        write(directory.join("stat"), format!("9 (x) {state} 1 {rest}")).unwrap();
        let traces = tree.read(pid).unwrap();
        let (arguments, unseen) = if are_known {
            (Some(vec![]), vec![])
        } else {
            let why = "its arguments: its first thread has ended".to_owned();
            (None, vec![why])
        };
        assert_eq!(
            (traces.arguments, traces.unseen),
            (arguments, unseen),
            "{pid}"
        );
    }
}

#[test]
fn what_was_read_while_it_became_another_is_told_of_nobody() {
    for (start_ticks, stack, expected) in [
        (101, 7_000, "it has ended"),
        (100, 8_000, "it executes something else"),
    ] {
        let tree = Tree::new();
        let directory = tree.process("9", 1, "x\0");
        fifo(&directory.join("maps"));
        std::thread::scope(|scope| {
            let read = scope.spawn(|| tree.read(9));
            // Opened by whoever reads, who has seen the first `stat` by then.
            let mut maps = std::fs::File::options()
                .write(true)
                .open(directory.join("maps"))
                .unwrap();
            stat(&directory, start_ticks, stack);
            maps.write_all(MAPS.as_bytes()).unwrap();
            drop(maps);
            assert_eq!(read.join().unwrap(), Err(expected.to_owned()));
        });
    }
}

#[test]
fn one_that_cannot_be_read_delays_nobody_and_is_told() {
    let tree = Tree::new();
    for pid in [9, 10, 11, 12, 13] {
        tree.process(&pid.to_string(), 1, "x\0");
        if pid != 12 {
            fifo(&tree.0.path().join(format!("{pid}/maps")));
        }
    }
    let reader = tree.reader();
    assert_eq!(reader.fault(), None);
    for pid in [9, 12] {
        assert_eq!(reader.of(key(pid)), None);
    }
    let told = |expected: &str| {
        let until = soon();
        while reader.fault().as_deref() != Some(expected) {
            assert!(Instant::now() < until, "{:?}", reader.fault());
            std::thread::yield_now();
        }
    };
    told("no verdict on process 9: what it is cannot be read, it may be stuck in a driver");
    assert!(reader.of(key(12)).is_some());
    // Known to be stuck now: not even the deadline is waited for.
    reader.settle(Instant::now() + Duration::from_secs(3_600));
    for pid in [10, 11, 13] {
        reader.of(key(pid));
    }
    told(
        "no verdict on process 9, 10, 11, 13: what it is cannot be read, it may be stuck in a driver, \
         and no other is read until one of them goes on",
    );
}

#[test]
fn as_many_as_are_watched_all_get_their_answer_though_it_is_taken_in_rounds() {
    let tree = Tree::new();
    let mut left: Vec<u32> = (2..4_098).collect();
    for pid in &left {
        symlink("1", tree.0.path().join(pid.to_string())).unwrap();
    }
    let reader = tree.reader();
    let until = soon();
    while !left.is_empty() {
        assert!(Instant::now() < until, "{} have no answer", left.len());
        let mut room = 500;
        left.retain(|pid| {
            let is_taken = reader.of(key(*pid)).is_some() && room > 0;
            if is_taken {
                room -= 1;
                reader.forget(key(*pid));
            }
            !is_taken
        });
        reader.settle(until);
    }
}

#[test]
fn what_is_known_is_forgotten_when_nobody_wants_it_or_it_is_another_program() {
    let tree = Tree::new();
    let directory = tree.process("9", 1, "before\0");
    tree.process("10", 1, "x\0");
    let reader = tree.reader();
    let first = |pid: u32| {
        reader.of(key(pid));
        reader.settle(soon());
        let traces = reader.of(key(pid))?;
        traces.arguments.as_ref()?.first().cloned()
    };
    assert_eq!(first(9).as_deref(), Some("before"));
    write(directory.join("cmdline"), "after\0").unwrap();
    assert_eq!(first(9).as_deref(), Some("before"));
    reader.forget(key(9));
    assert_eq!(first(9).as_deref(), Some("after"));
    assert_eq!(first(10).as_deref(), Some("x"));
    reader.keep_only(|process| process.pid == 9);
    assert!(reader.of(key(9)).is_some());
    assert_eq!(reader.of(key(10)), None);
}
