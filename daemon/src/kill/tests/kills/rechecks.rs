//! Tests of each check of a process during a kill: when its handle is opened, and before it is
//! stopped.

use super::*;
use std::path::Path;

#[test]
fn newly_protected_is_not_stopped() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let request = KillRequest {
        scope: KillScope::Tree,
        force: true,
        signal_timeout_ms: 3_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    stubborn.await_file("signalled");
    let us = rustix::process::getuid().as_raw().to_string();
    parts.settings.protect_users(vec![us]);
    assert!(parts.is_over(operation));
    // It has taken all its signals when it does anything else.
    stubborn.fork();
    let outcomes = outcomes(&parts, operation, &[stubborn.pid]);
    let of_it: Vec<_> = outcomes.iter().flatten().collect();
    assert!(is_withheld(&of_it), "{outcomes:?}");
    // Once for its signal, which a stopped process could not take.
    assert_eq!(stubborn.await_file("continued").lines().count(), 1);
}

/// A process outside the daemon's children that forks a child when the file `go` is written, and
/// does not wait for it.
fn parent_to_be(directory: &Path) -> OrphanSleeper {
    let script = "mkfifo go
        sh -c 'read line < go; sleep 0.5 & echo $! > born; exec sleep 1000' >/dev/null 2>&1 &
        echo $!";
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", script]).current_dir(directory);
    let output = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    let pid: i32 = output.trim().parse().unwrap();
    let raw = rustix::process::Pid::from_raw(pid).unwrap();
    let handle = rustix::process::pidfd_open(raw, PidfdFlags::empty()).unwrap();
    OrphanSleeper {
        pid: pid.unsigned_abs(),
        handle,
    }
}

/// Waits until the file has a PID and that process is a zombie.
fn becomes_a_zombie(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_zombie = || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let process = Path::new("/proc").join(text.strip_suffix('\n')?);
        let stat = crate::procfs::stat::Stat::read(&process).ok()?;
        (stat.state == 'Z').then_some(())
    };
    while is_zombie().is_none() {
        assert!(Instant::now() < deadline, "no zombie");
        std::thread::yield_now();
    }
}

#[test]
fn late_member_that_ended_is_not_reported() {
    let parts = enforcer(None);
    let root = caller(0);
    let directory = tempfile::tempdir().unwrap();
    let parent = parent_to_be(directory.path());
    let request = KillRequest {
        scope: KillScope::Tree,
        ..any_process(parent.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    std::fs::write(directory.path().join("go"), "\n").unwrap();
    becomes_a_zombie(&directory.path().join("born"));
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let pids: Vec<u32> = report.outcomes.iter().map(|it| it.key.pid).collect();
    assert_eq!(pids, [parent.pid], "{report:?}");
    assert!(parent.has_ended());
}

#[test]
fn process_off_the_gpu_is_not_ended() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = OrphanSleeper::new();
    let (_, made) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    // Pretends that it used a GPU at the time of the plan.
    let mut plan = KillPlan::clone(&made);
    plan.request.any_process = false;
    let plans = &parts.enforcer.plans;
    let id = plans.insert(
        (KillOwner::from_caller(&root), root.limit_group),
        Arc::new(plan),
        Instant::now(),
    );
    let operation = parts.enforcer.execute(&root, id).unwrap();
    assert!(parts.is_over(operation));
    let why = "it no longer uses a GPU";
    assert_eq!(
        outcomes(&parts, operation, &[sleeper.pid]),
        [Some(Outcome::Changed(why.into()))]
    );
    assert!(!sleeper.has_ended());
}
