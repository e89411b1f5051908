//! Tests with real processes below `/proc`.

use super::super::*;
use super::soon;
use crate::host::test_process::{TestProcess, sleep_in_memory, sleep_path};
use crate::procfs::stat::Stat;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

impl TestProcess {
    /// Its evidence once it has this name and has loaded its libraries: before that it is the
    /// test's own image, and then its loader.
    fn evidence(&mut self, called: &str) -> ProcessEvidence {
        self.evidence_below(Path::new("/proc"), called).unwrap()
    }

    /// `None` where it ends before that.
    fn evidence_below(&mut self, root: &Path, called: &str) -> Option<ProcessEvidence> {
        let until = soon();
        while Instant::now() < until {
            if self.0.try_wait().unwrap().is_some() {
                return None;
            }
            let Ok(evidence) = reader::read_evidence(self.key(), root) else {
                continue;
            };
            let first = evidence.arguments.iter().flatten().next();
            let mut libraries = evidence.libraries.iter().flatten();
            if first.is_some_and(|first| first == called)
                && libraries.any(|name| name.starts_with("libc.so"))
            {
                return Some(evidence);
            }
        }
        panic!("it did not come to that");
    }
}

#[test]
fn real_process_is_read_completely() {
    let mut sleeper = TestProcess::start("sleep", &["600", "1"]);
    let evidence = sleeper.evidence("sleep");
    let libraries = evidence.libraries.clone().unwrap();
    let expected = ProcessEvidence {
        executable: Some(sleep_path().to_str().unwrap().to_owned()),
        arguments: Some(["sleep", "600", "1"].map(String::from).to_vec()),
        libraries: Some(libraries),
        sent: NetworkSent::Shared,
        unavailable: vec![],
    };
    assert_eq!(evidence, expected);
}

#[test]
fn deleted_executable_is_marked() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("worker");
    // Another process writes the file. A descriptor that is open for writing here would be
    // inherited by children of other tests, and executing the copy would fail with ETXTBSY.
    let copied = Command::new("cp").arg(sleep_path()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let called = copy.to_str().unwrap();
    let mut sleeper = TestProcess::start(&copy, &["600"]);
    assert_eq!(sleeper.evidence(called).executable.as_deref(), Some(called));
    std::fs::remove_file(&copy).unwrap();
    let deleted = sleeper.evidence(called).executable;
    assert_eq!(deleted, Some(format!("{called} (deleted)")));
}

#[test]
fn memory_executable_is_marked() {
    let (_memory, path) = sleep_in_memory();
    let mut sleeper = TestProcess::start(&path, &["600"]);
    let evidence = sleeper.evidence(&path);
    assert_eq!(
        evidence.executable.as_deref(),
        Some("/memfd:worker (deleted)")
    );
}

#[test]
fn separate_network_reports_its_sent_bytes() {
    let mut sleeper = TestProcess::start("unshare", &["--net", "sleep", "600"]);
    // The first process of this host may not be readable.
    let root = tempfile::tempdir().unwrap();
    let pid = sleeper.0.id();
    for (name, process) in [
        ("1", "self"),
        ("self", "self"),
        (&*pid.to_string(), &*pid.to_string()),
    ] {
        symlink(format!("/proc/{process}"), root.path().join(name)).unwrap();
    }
    let Some(evidence) = sleeper.evidence_below(root.path(), "sleep") else {
        eprintln!("skipped: no network namespace may be made here");
        return;
    };
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    let NetworkSent::Own { namespace, bytes } = evidence.sent else {
        panic!("{:?}", evidence.sent);
    };
    assert_eq!(link.to_str(), Some(&*format!("net:[{namespace}]")));
    // It has only `lo`, or what the kernel adds, and none of it is up.
    assert_eq!(bytes, 0);
}

#[test]
fn reused_pid_gives_no_evidence() {
    let mut sleeper = TestProcess::start("sleep", &["600"]);
    sleeper.evidence("sleep");
    let key = sleeper.key();
    let other = ProcessKey {
        start_ticks: key.start_ticks + 1,
        ..key
    };
    let reader = EvidenceReader::new("/proc".into());
    for process in [key, other] {
        assert_eq!(reader.get(process), None);
    }
    reader.settle(soon());
    assert!(reader.get(key).is_some());
    assert_eq!(reader.get(other), None);
    drop(sleeper);
    let ended = reader::read_evidence(key, Path::new("/proc"));
    assert_eq!(ended, Err("it does not exist".to_owned()));
}

#[test]
fn ended_first_thread_leaves_it_unknown() {
    let program = "import ctypes, threading, time\n\
                   threading.Thread(target=time.sleep, args=(600,)).start()\n\
                   ctypes.CDLL(None).pthread_exit(None)";
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let sleeper = TestProcess::start("python3", &["-c", program]);
    let directory = format!("/proc/{}", sleeper.0.id());
    let until = soon();
    while Stat::read(Path::new(&directory)).unwrap().state != 'Z' {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert!(Stat::read(Path::new(&directory)).unwrap().threads > 1);
    let evidence = reader::read_evidence(sleeper.key(), Path::new("/proc")).unwrap();
    assert_eq!((evidence.arguments, evidence.libraries), (None, None));
    let why = "its arguments: its first thread has ended".to_owned();
    assert!(
        evidence.unavailable.contains(&why),
        "{:?}",
        evidence.unavailable
    );
}

#[test]
fn zombie_has_no_arguments() {
    let mut sleeper = TestProcess::start("true", &[]);
    let directory = format!("/proc/{}", sleeper.0.id());
    while Stat::read(Path::new(&directory)).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let evidence = reader::read_evidence(sleeper.key(), Path::new("/proc")).unwrap();
    sleeper.0.wait().unwrap();
    assert_eq!(evidence.arguments, Some(vec![]));
    assert_eq!((evidence.executable, evidence.libraries), (None, None));
    assert_eq!(evidence.unavailable.len(), 2);
}
