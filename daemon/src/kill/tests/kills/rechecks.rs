//! Tests of each check of a process during a kill: when its handle is opened, and before it is
//! stopped or gets its signal.

use super::*;
use std::io::Write as _;
use std::os::unix::fs::symlink;
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

#[test]
fn withdrawn_kill_sends_no_second_signal() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let request = KillRequest {
        force: true,
        signal_timeout_ms: 3_000,
        ..any_process(stubborn.pid)
    };
    let (_, plan) = parts.make(&root, request).unwrap();
    let signalled = stubborn.directory.path().join("signalled");
    let withdrawal_reason = || signalled.exists().then_some("the guard was switched off");
    let authorization = executor::KillAuthorization {
        caller: &root,
        request_text: String::new(),
        must_be_recorded: false,
        late_member_users: None,
        required_uid: None,
        withdrawal_reason: &withdrawal_reason,
    };
    let environment = &parts.enforcer.environment;
    let published: PublishedPoll = environment.state.borrow().clone();
    let (report, followed) = watch::channel(Arc::new(KillReport {
        version: 0,
        stage: Stage::Ending,
        outcomes: Vec::new(),
        memory: Vec::new(),
        respawned: Vec::new(),
        unchecked: None,
        unrecorded: None,
    }));
    executor::execute(&plan, &authorization, environment, &published, &report);
    let last = followed.borrow();
    let outcomes: Vec<_> = last.outcomes.iter().map(|it| &it.outcome).collect();
    let why = "SIGKILL withheld: the guard was switched off; it still runs after SIGTERM";
    assert_eq!(outcomes, [&Outcome::Failed(why.into())]);
    assert!(!matches!(stubborn.state(), 'Z' | 'T'));
}

/// A directory for this process below `procfs`, with the real files except `status`.
fn link_all_but_status(procfs: &Path, pid: u32) -> std::path::PathBuf {
    let name = pid.to_string();
    let (real, directory) = (Path::new("/proc").join(&name), procfs.join(&name));
    std::fs::create_dir(&directory).unwrap();
    for file in ["cgroup", "cmdline", "comm", "exe", "ns", "stat", "task"] {
        symlink(real.join(file), directory.join(file)).unwrap();
    }
    directory
}

#[test]
fn signal_follows_its_own_recheck_at_once() {
    let root = caller(0);
    let (first, second) = (OrphanSleeper::new(), OrphanSleeper::new());
    let procfs = tempfile::tempdir().unwrap();
    let real = |name: &str| Path::new("/proc").join(name);
    for name in ["self".to_owned(), first.pid.to_string()] {
        symlink(real(&name), procfs.path().join(&name)).unwrap();
    }
    let directory = link_all_but_status(procfs.path(), second.pid);
    let status = directory.join("status");
    let text = std::fs::read(real(&second.pid.to_string()).join("status")).unwrap();
    std::fs::write(&status, &text).unwrap();
    let parts = enforcer_below(procfs.path().to_owned(), None);
    let planned = |sleeper: &OrphanSleeper| parts.make(&root, any_process(sleeper.pid)).unwrap().1;
    let mut plan = KillPlan::clone(&planned(&first));
    plan.targets.extend(planned(&second).targets.clone());
    // Each read of `status` of the second process waits here.
    let pipe = |name: &str| {
        let path = directory.join(name);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        let mode = mode | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        path
    };
    let (opening, recheck, later) = (pipe("opening"), pipe("recheck"), directory.join("later"));
    std::fs::write(&later, &text).unwrap();
    std::fs::rename(pipe("table"), &status).unwrap();
    let id = parts.enforcer.plans.insert(
        (KillOwner::from_caller(&root), root.limit_group),
        Arc::new(plan),
        Instant::now(),
    );
    let operation = parts.enforcer.execute(&root, id).unwrap();
    for (next, is_recheck) in [(opening, false), (recheck, false), (later, true)] {
        // Opens when the file is being read.
        let mut writer = std::fs::OpenOptions::new()
            .write(true)
            .open(&status)
            .unwrap();
        std::fs::rename(next, &status).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_recheck && !first.has_ended() {
            let why = "the first process has no signal while the second is rechecked";
            assert!(Instant::now() < deadline, "{why}");
            std::thread::yield_now();
        }
        writer.write_all(&text).unwrap();
    }
    assert!(parts.is_over(operation));
    let outcomes = outcomes(&parts, operation, &[first.pid, second.pid]);
    let ended = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Ended(..)));
    assert!(outcomes.iter().all(ended), "{outcomes:?}");
}
