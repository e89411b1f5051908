//! Tests with fake processes.

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

struct FakeEvidenceTree(TempDir);

impl FakeEvidenceTree {
    /// With the host's first process and the test process in network 1.
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

    fn read(&self, pid: u32) -> Result<ProcessEvidence, String> {
        reader::read_evidence(key(pid), self.0.path())
    }

    fn reader(&self) -> EvidenceReader {
        EvidenceReader::new(self.0.path().to_owned())
    }
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey::new(pid, 100)
}

fn stat(directory: &Path, start_ticks: u64, stack: u64) {
    let rest = format!("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {start_ticks} 0 0 0 0 0 {stack}");
    write(directory.join("stat"), format!("9 (x) S 1 {rest}")).unwrap();
}

/// Creates a FIFO: opening one without a writer blocks forever, like a read from a stuck process.
fn fifo(path: &Path) {
    std::fs::remove_file(path).unwrap();
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn only_a_separate_network_has_sent_bytes() {
    let tree = FakeEvidenceTree::new();
    std::fs::remove_file(tree.0.path().join("self/ns/net")).unwrap();
    symlink("net:[2]", tree.0.path().join("self/ns/net")).unwrap();
    let unknown = |why: &str| NetworkSent::Unknown(why.into());
    for (pid, network, expected) in [
        (11, 1, NetworkSent::Shared),
        (12, 2, NetworkSent::Shared),
        (
            13,
            3,
            NetworkSent::Own {
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
    let no_list = unknown("the list of its network devices is malformed");
    assert_eq!(tree.read(13).unwrap().sent, no_list);
    // The host's own network is unknown: it may be this one.
    std::fs::remove_file(tree.0.path().join("1/ns/net")).unwrap();
    let first = unknown("the host's network: it does not exist");
    assert_eq!(tree.read(13).unwrap().sent, first);
    assert_eq!(tree.read(12).unwrap().sent, NetworkSent::Shared);
}

#[test]
fn sent_bytes_are_of_the_network_read() {
    let tree = FakeEvidenceTree::new();
    let directory = tree.process("9", 3, "x\0");
    fifo(&directory.join("net/dev"));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| tree.read(9).map(|evidence| evidence.sent));
        // The reader opens it after it has read the first link.
        let mut devices = std::fs::File::options()
            .write(true)
            .open(directory.join("net/dev"))
            .unwrap();
        std::fs::remove_file(directory.join("ns/net")).unwrap();
        symlink("net:[4]", directory.join("ns/net")).unwrap();
        devices.write_all(DEVICES.as_bytes()).unwrap();
        drop(devices);
        let changes = NetworkSent::Unknown("it changed its network".into());
        assert_eq!(read.join().unwrap(), Ok(changes));
    });
}

#[test]
fn unreadable_parts_have_their_reason() {
    let tree = FakeEvidenceTree::new();
    let directory = tree.process("9", 1, "a\0\0b c\0\0\0");
    write(directory.join("maps"), "hello\n").unwrap();
    std::fs::remove_file(directory.join("exe")).unwrap();
    let evidence = reader::read_evidence(key(9), tree.0.path()).unwrap();
    let expected = ProcessEvidence {
        executable: None,
        arguments: Some(["a", "", "b c"].map(String::from).to_vec()),
        libraries: None,
        sent: NetworkSent::Shared,
        unavailable: vec![
            "its executable: it does not exist".into(),
            "its libraries: the list of mappings is malformed".into(),
        ],
    };
    assert_eq!(evidence, expected);
}

#[test]
fn arguments_are_kept_while_they_fit() {
    let (long, many) = (
        Some("it is longer than 32 KiB"),
        Some("it has more than 1,024 arguments"),
    );
    // Replaced invalid UTF-8 takes three bytes.
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
        let line = reader::split_arguments(&bytes.repeat(times));
        let kept: usize = line.arguments.iter().map(String::len).sum();
        let summary = (line.arguments.len(), kept, line.cut);
        assert_eq!(summary, (arguments, length, cut), "{times} times {bytes:?}");
    }
}

#[test]
fn truncated_command_line_is_reported() {
    let tree = FakeEvidenceTree::new();
    for (pid, length, missing) in [
        (9, 32 << 10, &[][..]),
        (
            10,
            40 << 10,
            &["the rest of its command line: it is longer than 32 KiB"],
        ),
    ] {
        tree.process(&pid.to_string(), 1, &"x".repeat(length));
        let evidence = tree.read(pid).unwrap();
        assert_eq!(evidence.arguments, Some(vec!["x".repeat(32 << 10)]));
        assert_eq!(evidence.unavailable, missing);
    }
}

#[test]
fn ended_first_thread_leaves_arguments_unknown() {
    let tree = FakeEvidenceTree::new();
    for (pid, state, flags, threads, cmdline, are_known) in [
        (9, 'Z', 0, 2, "", false),
        (10, 'R', 4, 2, "", false),
        (11, 'Z', 0, 1, "", true),
        (12, 'S', 0, 2, "", true),
        // Erased.
        (13, 'S', 0, 1, "\0\0", true),
    ] {
        let directory = tree.process(&pid.to_string(), 1, cmdline);
        let rest = format!("0 0 0 0 {flags} 0 0 0 0 0 0 0 0 0 0 {threads} 0 100 0 0 0 0 0 0");
        write(directory.join("stat"), format!("9 (x) {state} 1 {rest}")).unwrap();
        let evidence = tree.read(pid).unwrap();
        let (arguments, missing) = if are_known {
            (Some(vec![]), vec![])
        } else {
            let why = "its arguments: its first thread has ended".to_owned();
            (None, vec![why])
        };
        assert_eq!(
            (evidence.arguments, evidence.unavailable),
            (arguments, missing),
            "{pid}"
        );
    }
}

#[test]
fn exec_during_the_read_gives_no_evidence() {
    for (start_ticks, stack, expected) in [
        (101, 7_000, "it has ended"),
        (100, 8_000, "it executed another program"),
    ] {
        let tree = FakeEvidenceTree::new();
        let directory = tree.process("9", 1, "x\0");
        fifo(&directory.join("maps"));
        std::thread::scope(|scope| {
            let read = scope.spawn(|| tree.read(9));
            // The reader opens it after it has read the first `stat`.
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
fn stuck_process_delays_no_other() {
    let tree = FakeEvidenceTree::new();
    for pid in [9, 10, 11, 12, 13] {
        tree.process(&pid.to_string(), 1, "x\0");
        if pid != 12 {
            fifo(&tree.0.path().join(format!("{pid}/maps")));
        }
    }
    let reader = tree.reader();
    assert_eq!(reader.fault(), None);
    for pid in [9, 12] {
        assert_eq!(reader.get(key(pid)), None);
    }
    let expect_text = |expected: &str| {
        let until = soon();
        while reader.fault().as_deref() != Some(expected) {
            assert!(Instant::now() < until, "{:?}", reader.fault());
            std::thread::yield_now();
        }
    };
    expect_text(
        "no verdict on process 9: its evidence cannot be read, it may be stuck in a driver",
    );
    assert!(reader.get(key(12)).is_some());
    // It counts as stuck now: the deadline is not waited for.
    reader.settle(Instant::now() + Duration::from_secs(3_600));
    for pid in [10, 11, 13] {
        reader.get(key(pid));
    }
    expect_text(
        "no verdict on process 9, 10, 11, 13: its evidence cannot be read, it may be stuck in a \
         driver, and no other is read until one of them continues",
    );
}

#[test]
fn all_watched_processes_get_an_answer() {
    let tree = FakeEvidenceTree::new();
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
            let is_taken = reader.get(key(*pid)).is_some() && room > 0;
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
fn drops_unwanted_and_forgotten_evidence() {
    let tree = FakeEvidenceTree::new();
    let directory = tree.process("9", 1, "before\0");
    tree.process("10", 1, "x\0");
    let reader = tree.reader();
    let first = |pid: u32| {
        reader.get(key(pid));
        reader.settle(soon());
        let evidence = reader.get(key(pid))?;
        evidence.arguments.as_ref()?.first().cloned()
    };
    assert_eq!(first(9).as_deref(), Some("before"));
    write(directory.join("cmdline"), "after\0").unwrap();
    assert_eq!(first(9).as_deref(), Some("before"));
    reader.forget(key(9));
    assert_eq!(first(9).as_deref(), Some("after"));
    assert_eq!(first(10).as_deref(), Some("x"));
    reader.keep_only(|process| process.pid == 9);
    assert!(reader.get(key(9)).is_some());
    assert_eq!(reader.get(key(10)), None);
}
