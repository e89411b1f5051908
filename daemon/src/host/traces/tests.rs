//! True processes below the real `/proc`, and made-up ones.

use super::*;
use crate::procfs::stat::Stat;
use std::ffi::OsStr;
use std::fs::{create_dir_all, write};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A process that is killed when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stderr(Stdio::null());
        loop {
            match command.spawn() {
                Ok(child) => return Self(child),
                // Another test has forked while we wrote it, and not executed yet.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn key(&self) -> ProcessKey {
        let pid = self.0.id();
        let stat = Stat::read(Path::new(&format!("/proc/{pid}"))).unwrap();
        ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        }
    }

    /// Its traces, once it is called so and has loaded what it needs: before that it is
    /// ours, and then its loader.
    fn traces(&mut self, called: &str) -> Traces {
        self.traces_below(Path::new("/proc"), called).unwrap()
    }

    /// `None` where it ends before that.
    fn traces_below(&mut self, root: &Path, called: &str) -> Option<Traces> {
        let until = soon();
        while Instant::now() < until {
            if self.0.try_wait().unwrap().is_some() {
                return None;
            }
            let Ok(traces) = look::read(self.key(), false, root) else {
                continue;
            };
            let first = traces.arguments.iter().flatten().next();
            let mut libraries = traces.libraries.iter().flatten();
            if first.is_some_and(|first| first == called)
                && libraries.any(|name| name.starts_with("libc.so"))
            {
                return Some(traces);
            }
        }
        panic!("it did not come to that");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where `sleep` lies.
fn sleep() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).map(|place| place.join("sleep"));
    places
        .find_map(|place| place.canonicalize().ok())
        .expect("sleep is in PATH")
}

#[test]
fn of_a_process_everything_is_read() {
    let mut sleeper = Sleeper::start("sleep", &["600", "1"]);
    let traces = sleeper.traces("sleep");
    let libraries = traces.libraries.clone().unwrap();
    let expected = Traces {
        executable: Some(sleep().to_str().unwrap().to_owned()),
        arguments: Some(["sleep", "600", "1"].map(String::from).to_vec()),
        libraries: Some(libraries),
        sha256: None,
        sent: Sending::Shared,
        unseen: vec![],
    };
    assert_eq!(traces, expected);
}

#[test]
fn an_executable_that_has_no_name_any_more_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("worker");
    std::fs::copy(sleep(), &copy).unwrap();
    let called = copy.to_str().unwrap();
    let mut sleeper = Sleeper::start(&copy, &["600"]);
    assert_eq!(sleeper.traces(called).executable.as_deref(), Some(called));
    std::fs::remove_file(&copy).unwrap();
    let deleted = sleeper.traces(called).executable;
    assert_eq!(deleted, Some(format!("{called} (deleted)")));
}

#[test]
fn an_executable_in_memory_is_told_so() {
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsRawFd as _;
    let memory = memfd_create("worker", MemfdFlags::CLOEXEC).unwrap();
    let mut memory = std::fs::File::from(memory);
    memory.write_all(&std::fs::read(sleep()).unwrap()).unwrap();
    // What is open for writing cannot be executed.
    let path =
        |file: &std::fs::File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let read_only = std::fs::File::open(path(&memory)).unwrap();
    drop(memory);
    let path = path(&read_only);
    let mut sleeper = Sleeper::start(&path, &["600"]);
    let traces = sleeper.traces(&path);
    assert_eq!(
        traces.executable.as_deref(),
        Some("/memfd:worker (deleted)")
    );
}

#[test]
fn a_process_with_a_network_of_its_own_is_told_by_what_that_has_sent() {
    let mut sleeper = Sleeper::start("unshare", &["--net", "sleep", "600"]);
    // The first process of this box may be nobody's to look at.
    let root = tempfile::tempdir().unwrap();
    let pid = sleeper.0.id();
    for (name, process) in [
        ("1", "self"),
        ("self", "self"),
        (&*pid.to_string(), &*pid.to_string()),
    ] {
        symlink(format!("/proc/{process}"), root.path().join(name)).unwrap();
    }
    let Some(traces) = sleeper.traces_below(root.path(), "sleep") else {
        eprintln!("skipped: no network namespace may be made here");
        return;
    };
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    let Sending::Own { namespace, bytes } = traces.sent else {
        panic!("{:?}", traces.sent);
    };
    assert_eq!(link.to_str(), Some(&*format!("net:[{namespace}]")));
    // It has `lo` alone, or what the kernel puts beside it, and none of it is up.
    assert_eq!(bytes, 0);
}

#[test]
fn whoever_has_the_pid_of_another_is_not_it() {
    let mut sleeper = Sleeper::start("sleep", &["600"]);
    sleeper.traces("sleep");
    let key = sleeper.key();
    let other = ProcessKey {
        start_ticks: key.start_ticks + 1,
        ..key
    };
    let reader = TraceReader::start("/proc".into()).unwrap();
    for process in [key, other] {
        assert_eq!(reader.of(process, false), None);
    }
    reader.settle(soon());
    assert!(reader.of(key, false).is_some());
    assert_eq!(reader.of(other, false), None);
    drop(sleeper);
    let ended = look::read(key, false, Path::new("/proc"));
    assert_eq!(ended, Err("there is none".to_owned()));
}

#[test]
fn who_has_ended_and_is_not_buried_has_no_arguments_and_unknown_libraries() {
    let mut sleeper = Sleeper::start("true", &[]);
    let directory = format!("/proc/{}", sleeper.0.id());
    while Stat::read(Path::new(&directory)).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let traces = look::read(sleeper.key(), false, Path::new("/proc")).unwrap();
    sleeper.0.wait().unwrap();
    assert_eq!(traces.arguments, Some(vec![]));
    assert_eq!((traces.executable, traces.libraries), (None, None));
    assert_eq!(traces.unseen.len(), 2);
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
        look::read(key(pid), false, self.0.path())
    }

    fn reader(&self) -> TraceReader {
        TraceReader::start(self.0.path().to_owned()).unwrap()
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
fn what_cannot_be_read_is_told_with_its_reason() {
    let tree = Tree::new();
    let directory = tree.process("9", 1, "a\0\0b c\0\0\0");
    write(directory.join("maps"), "hello\n").unwrap();
    std::fs::remove_file(directory.join("exe")).unwrap();
    let traces = look::read(key(9), true, tree.0.path()).unwrap();
    let expected = Traces {
        executable: None,
        arguments: Some(["a", "", "b c"].map(String::from).to_vec()),
        libraries: None,
        sha256: None,
        sent: Sending::Shared,
        unseen: vec![
            "its executable: there is none".into(),
            "its libraries: the list of what is mapped is not one".into(),
            "the hash of its executable: gpukilld computes none".into(),
        ],
    };
    assert_eq!(traces, expected);
}

#[test]
fn arguments_are_kept_as_far_as_there_is_room() {
    let long = |bytes: &[u8], count: usize| look::split(&bytes.repeat(count));
    assert_eq!(long(b"\0", 100), Vec::<String>::new());
    assert_eq!(long(b"a\0", 2_000).len(), 1_024);
    // What is no UTF-8 takes three bytes.
    let argument = [&[0xff; 1_023][..], b"\0"].concat();
    let kept: usize = long(&argument, 32).iter().map(String::len).sum();
    assert_eq!(kept, 10 * 3 * 1_023);
    let tree = Tree::new();
    tree.process("9", 1, &"x".repeat(40 << 10));
    let arguments = tree.read(9).unwrap().arguments.unwrap();
    assert_eq!(arguments, ["x".repeat(32 << 10)]);
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
    for pid in [9, 10, 11, 12] {
        tree.process(&pid.to_string(), 1, "x\0");
        if pid != 12 {
            fifo(&tree.0.path().join(format!("{pid}/maps")));
        }
    }
    let reader = tree.reader();
    assert_eq!(reader.fault(), None);
    for pid in [9, 12] {
        assert_eq!(reader.of(key(pid), false), None);
    }
    let told = |expected: &str| {
        let until = soon();
        while reader.fault().as_deref() != Some(expected) {
            assert!(Instant::now() < until, "{:?}", reader.fault());
            std::thread::yield_now();
        }
    };
    told("no verdict on process 9: what it is cannot be read, it may be stuck in a driver");
    assert!(reader.of(key(12), false).is_some());
    // Known to be stuck now: not even the deadline is waited for.
    reader.settle(Instant::now() + Duration::from_secs(3_600));
    // Two threads for each that is asked for with its hash and without.
    reader.of(key(9), true);
    reader.of(key(10), false);
    reader.of(key(11), false);
    told(
        "no verdict on process 9, 10, 11: what it is cannot be read, it may be stuck in a driver, \
         and no other is read until one of them goes on",
    );
}

#[test]
fn what_is_known_is_forgotten_when_nobody_wants_it_or_it_is_another_program() {
    let tree = Tree::new();
    let directory = tree.process("9", 1, "before\0");
    tree.process("10", 1, "x\0");
    let reader = tree.reader();
    let first = |pid: u32| {
        reader.of(key(pid), false);
        reader.settle(soon());
        let traces = reader.of(key(pid), false)?;
        traces.arguments.as_ref()?.first().cloned()
    };
    assert_eq!(first(9).as_deref(), Some("before"));
    write(directory.join("cmdline"), "after\0").unwrap();
    assert_eq!(first(9).as_deref(), Some("before"));
    reader.forget(key(9));
    assert_eq!(first(9).as_deref(), Some("after"));
    assert_eq!(first(10).as_deref(), Some("x"));
    reader.keep_only(|process| process.pid == 9);
    assert!(reader.of(key(9), false).is_some());
    assert_eq!(reader.of(key(10), false), None);
}
