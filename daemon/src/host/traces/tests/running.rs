//! True processes below the real `/proc`.

use super::super::*;
use super::soon;
use crate::host::sleeper::{Sleeper, in_memory, sleep};
use crate::procfs::stat::Stat;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

impl Sleeper {
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
            let Ok(traces) = look::read(self.key(), root) else {
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

#[test]
fn of_a_process_everything_is_read() {
    let mut sleeper = Sleeper::start("sleep", &["600", "1"]);
    let traces = sleeper.traces("sleep");
    let libraries = traces.libraries.clone().unwrap();
    let expected = Traces {
        executable: Some(sleep().to_str().unwrap().to_owned()),
        arguments: Some(["sleep", "600", "1"].map(String::from).to_vec()),
        libraries: Some(libraries),
        sent: Sending::Shared,
        unseen: vec![],
    };
    assert_eq!(traces, expected);
}

#[test]
fn an_executable_that_has_no_name_any_more_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("worker");
    // A descriptor that this process had open for writing would be inherited by children that
    // other tests fork, and executing the copy would fail with ETXTBSY.
    let copied = Command::new("cp").arg(sleep()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let called = copy.to_str().unwrap();
    let mut sleeper = Sleeper::start(&copy, &["600"]);
    assert_eq!(sleeper.traces(called).executable.as_deref(), Some(called));
    std::fs::remove_file(&copy).unwrap();
    let deleted = sleeper.traces(called).executable;
    assert_eq!(deleted, Some(format!("{called} (deleted)")));
}

#[test]
fn an_executable_in_memory_is_told_so() {
    let (_memory, path) = in_memory();
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
    let reader = TraceReader::new("/proc".into());
    for process in [key, other] {
        assert_eq!(reader.of(process), None);
    }
    reader.settle(soon());
    assert!(reader.of(key).is_some());
    assert_eq!(reader.of(other), None);
    drop(sleeper);
    let ended = look::read(key, Path::new("/proc"));
    assert_eq!(ended, Err("there is none".to_owned()));
}

#[test]
fn of_one_whose_first_thread_alone_has_ended_it_is_told_that_nothing_is_known() {
    let program = "import ctypes, threading, time\n\
                   threading.Thread(target=time.sleep, args=(600,)).start()\n\
                   ctypes.CDLL(None).pthread_exit(None)";
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let sleeper = Sleeper::start("python3", &["-c", program]);
    let directory = format!("/proc/{}", sleeper.0.id());
    let until = soon();
    while Stat::read(Path::new(&directory)).unwrap().state != 'Z' {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert!(Stat::read(Path::new(&directory)).unwrap().threads > 1);
    let traces = look::read(sleeper.key(), Path::new("/proc")).unwrap();
    assert_eq!((traces.arguments, traces.libraries), (None, None));
    let why = "its arguments: its first thread has ended".to_owned();
    assert!(traces.unseen.contains(&why), "{:?}", traces.unseen);
}

#[test]
fn who_has_ended_and_is_not_buried_has_no_arguments_and_unknown_libraries() {
    let mut sleeper = Sleeper::start("true", &[]);
    let directory = format!("/proc/{}", sleeper.0.id());
    while Stat::read(Path::new(&directory)).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let traces = look::read(sleeper.key(), Path::new("/proc")).unwrap();
    sleeper.0.wait().unwrap();
    assert_eq!(traces.arguments, Some(vec![]));
    assert_eq!((traces.executable, traces.libraries), (None, None));
    assert_eq!(traces.unseen.len(), 2);
}
