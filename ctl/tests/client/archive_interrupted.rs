//! `audit archive` is killed at each of its steps: the manifest names only files that are
//! complete, and the next run completes the archive.

use crate::archive::{ArchiveBox, hours, midnight, three_days};
use crate::fake_store::FakeStore;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What must hold after a run was killed. A complete manifest has `count` entries.
fn assert_next_run_completes(archive: &ArchiveBox, count: usize, what: &str) {
    let before = archive.checked_manifest();
    assert!(before.len() <= count, "{what}");
    let last = archive.archived("--verify");
    let unchanged = format!("{} archived before", before.len());
    assert!(
        before.is_empty() || last.ends_with(&unchanged),
        "{what}: {last}"
    );
    assert_eq!(archive.checked_manifest().len(), count, "{what}");
    assert!(!archive.has_partial_files(), "{what}");
}

#[test]
fn killed_at_any_moment() {
    let archive = ArchiveBox::new(three_days());
    let start = Instant::now();
    archive.archived("");
    let whole = start.elapsed();
    for part in 1..=8 {
        let archive = ArchiveBox::new(three_days());
        let mut run = archive.command("").stdout(Stdio::null()).spawn();
        let run = run.as_mut().expect("it runs");
        let moment = whole * part / 8;
        std::thread::sleep(moment);
        run.kill().expect("it is a child");
        run.wait().expect("it ends");
        assert_next_run_completes(&archive, 12, &format!("after {moment:?}"));
    }
}

/// A day with one kind of rows, so that a run has few steps.
fn one_day() -> FakeStore {
    let mut store = FakeStore {
        host: "box",
        ..FakeStore::default()
    };
    store.sample(midnight(1).plus_seconds(hours(3)), 0);
    store.now = midnight(2).plus_seconds(hours(3));
    store.written_at = Some(store.now);
    store
}

/// The system calls with which a step begins, and each of the names that a machine may have for
/// them.
const STEPS: [&str; 5] = [
    "?mkdir,?mkdirat",
    "?unlink,?unlinkat",
    "?fsync",
    "?rename,?renameat,?renameat2",
    "?flock",
];

/// strace ends the program with SIGKILL when it enters a step for the nth time.
#[test]
fn killed_at_each_step() {
    let traced = |archive: &ArchiveBox, calls: &str, count: u32| {
        let command = archive.command("");
        let inject = format!("inject={calls}:signal=KILL:when={count}");
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        strace.args(["-e", &inject]).arg(command.get_program());
        strace.args(command.get_args());
        for (name, value) in command.get_envs() {
            strace.env(name, value.unwrap_or_default());
        }
        strace.stdin(Stdio::null()).output()
    };
    let probe = traced(&ArchiveBox::new(one_day()), "?fsync", 1);
    if !probe.is_ok_and(|output| output.status.signal() == Some(9)) {
        eprintln!("skipped: no strace, or it may not trace");
        return;
    }
    let mut kills = 0;
    for calls in STEPS {
        for count in 1.. {
            let archive = ArchiveBox::new(one_day());
            let output = traced(&archive, calls, count).expect("it runs");
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.signal(), Some(9), "{calls} {count}");
            assert_next_run_completes(&archive, 3, &format!("{calls} {count}"));
            kills += 1;
        }
    }
    assert!(kills > 15, "{kills}");
}
