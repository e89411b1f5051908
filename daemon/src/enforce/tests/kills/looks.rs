//! What each of the looks is for that an act takes at a process: the one at its
//! opening, and the one before it is stopped.

use super::*;
use std::path::Path;

#[test]
fn what_is_protected_since_its_first_signal_is_not_stopped_either() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = Stubborn::new();
    let request = KillRequest {
        scope: KillScope::Tree,
        force: true,
        patience_ms: 3_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    stubborn.await_file("told");
    let us = rustix::process::getuid().as_raw().to_string();
    parts.settings.protect_users(vec![us]);
    assert!(parts.is_over(operation));
    // It has taken all its signals when it does something else.
    stubborn.fork();
    let endings = endings(&parts, operation, &[stubborn.pid]);
    let of_it: Vec<_> = endings.iter().flatten().collect();
    assert!(is_withheld(&of_it), "{endings:?}");
    // Once for its signal, which a stopped one could not take.
    assert_eq!(stubborn.await_file("went-on").lines().count(), 1);
}

/// A process that is no child of the daemon's and has a child when the file `go`
/// is written to. It does not ask how that ended.
fn parent_to_be(directory: &Path) -> Sleeper {
    let script = "mkfifo go
        sh -c 'read line < go; sleep 0.5 & echo $! > born; exec sleep 1000' >/dev/null 2>&1 &
        echo $!";
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", script]).current_dir(directory);
    let told = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    let pid: i32 = told.trim().parse().unwrap();
    let raw = rustix::process::Pid::from_raw(pid).unwrap();
    let handle = rustix::process::pidfd_open(raw, PidfdFlags::empty()).unwrap();
    Sleeper {
        pid: pid.unsigned_abs(),
        handle,
    }
}

/// Waits until somebody's pid stands in the file, and they are a zombie.
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
fn what_came_since_the_plan_and_has_ended_is_nobodys_news() {
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
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let told: Vec<u32> = report.outcomes.iter().map(|it| it.key.pid).collect();
    assert_eq!(told, [parent.pid], "{report:?}");
    assert!(parent.has_ended());
}

#[test]
fn what_uses_no_gpu_any_more_is_not_ended() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = Sleeper::new();
    let (_, made) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    // As if it had used one when that was planned.
    let mut plan = KillPlan::clone(&made);
    plan.request.any_process = false;
    let plans = &parts.enforcer.plans;
    let id = plans.keep(
        (Owner::of(&root), root.limit_group),
        Arc::new(plan),
        Instant::now(),
    );
    let operation = parts.enforcer.carry_out(&root, id).unwrap();
    assert!(parts.is_over(operation));
    let why = "it does not use a GPU any more";
    assert_eq!(
        endings(&parts, operation, &[sleeper.pid]),
        [Some(Ending::Changed(why.into()))]
    );
    assert!(!sleeper.has_ended());
}
