//! Tests of whole kills, over test processes.

mod rechecks;

use super::*;

/// A process tree outside the daemon's children: a shell that ignores SIGTERM but forks a child
/// then, and reports by files. All are ended when dropped.
struct StubbornTree {
    directory: tempfile::TempDir,
    pid: u32,
    children: std::cell::RefCell<Vec<u32>>,
}

impl StubbornTree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = r#"
            trap 'sleep 1000 & echo $! > late; : > signalled' TERM
            trap 'echo >> continued' CONT
            : > ready
            while :; do
                [ -e fork ] && rm fork && { sleep 1000 & echo $! > born; }
                sleep 0.02
            done"#;
        std::fs::write(directory.path().join("run"), script).unwrap();
        let start = "sh run >/dev/null 2>&1 & echo $!";
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", start]).current_dir(directory.path());
        let output = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        let this = Self {
            pid: output.trim().parse().unwrap(),
            directory,
            children: std::cell::RefCell::default(),
        };
        this.await_file("ready");
        this
    }

    fn await_file(&self, name: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(self.directory.path().join(name));
            if let Ok(text) = text
                && (!["born", "late"].contains(&name) || text.ends_with('\n'))
            {
                return text;
            }
            assert!(Instant::now() < deadline, "no file {name}");
            std::thread::yield_now();
        }
    }

    /// Forks a child that ends on SIGTERM.
    fn fork(&self) -> u32 {
        let _ = std::fs::remove_file(self.directory.path().join("born"));
        std::fs::write(self.directory.path().join("fork"), "").unwrap();
        let pid = self.await_file("born").trim().parse().unwrap();
        self.children.borrow_mut().push(pid);
        let name = format!("/proc/{pid}/comm");
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        pid
    }

    fn state(&self) -> char {
        let directory = format!("/proc/{}", self.pid);
        let stat = crate::procfs::stat::Stat::read(std::path::Path::new(&directory));
        stat.unwrap().state
    }
}

impl Drop for StubbornTree {
    fn drop(&mut self) {
        let late = std::fs::read_to_string(self.directory.path().join("late"));
        let late = late.ok().and_then(|late| late.trim().parse().ok());
        let children = self.children.take().into_iter().chain(late);
        for pid in children.chain([self.pid]) {
            let pid = i32::try_from(pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            let _ = rustix::process::kill_process(pid.unwrap(), Signal::KILL);
        }
    }
}

/// Whether a process got SIGTERM but no SIGKILL, because the admin protects it by then.
fn is_withheld(outcomes: &[&Outcome]) -> bool {
    let [Outcome::Failed(why)] = outcomes else {
        return false;
    };
    why.starts_with("SIGKILL withheld: the admin protects processes of ")
        && why.ends_with("; it still runs after SIGTERM")
}

#[test]
fn newly_protected_gets_no_second_signal() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let request = KillRequest {
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
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let outcomes: Vec<_> = report.outcomes.iter().map(|it| &it.outcome).collect();
    assert!(is_withheld(&outcomes), "{outcomes:?}");
    assert!(!matches!(stubborn.state(), 'Z' | 'T'));
}

#[test]
fn late_members_of_a_tree_are_ended() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let request = KillRequest {
        scope: KillScope::Tree,
        force: true,
        signal_timeout_ms: 200,
        ..any_process(stubborn.pid)
    };
    let (id, planned) = parts.make(&root, request).unwrap();
    let born = stubborn.fork();
    assert!(planned.targets.iter().all(|target| target.key.pid != born));
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    for pid in [stubborn.pid, born] {
        let outcome = report.outcomes.iter().find(|it| it.key.pid == pid);
        let outcome = outcome.map(|it| &it.outcome);
        assert!(
            matches!(outcome, Some(Outcome::Ended(..))),
            "{pid}: {report:?}"
        );
    }
}

#[test]
fn none_stays_stopped_after_interruption() {
    let stubborn = StubbornTree::new();
    let pid = i32::try_from(stubborn.pid).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let handle = Arc::new(handle);
    let becomes = |stopped: bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while (stubborn.state() == 'T') != stopped {
            assert!(Instant::now() < deadline, "{}", stubborn.state());
            std::thread::yield_now();
        }
    };
    let parts = enforcer(None);
    let registry = &parts.enforcer.environment.stopped_processes;
    // The file lists no process.
    let nobody = gpukill_proto::model::ProcessKey {
        pid: 0,
        start_ticks: 0,
    };
    let stopped = registry.stop(nobody, &handle);
    stopped.stop();
    becomes(true);
    drop(stopped);
    becomes(false);
    let stopped = registry.stop(nobody, &handle);
    stopped.stop();
    becomes(true);
    parts.enforcer.stop(Duration::ZERO);
    becomes(false);
    stopped.stop();
    // A stopped process could not.
    stubborn.fork();
}

#[test]
fn pid_of_another_namespace_gets_no_signal() {
    // As with the `/proc` of another PID namespace: the same process has another PID there.
    let procfs = tempfile::tempdir().unwrap();
    let handles = procfs.path().join("self/fdinfo");
    std::fs::create_dir_all(&handles).unwrap();
    for number in 0..1_024 {
        std::fs::write(handles.join(number.to_string()), "pos:\t0\nPid:\t2\n").unwrap();
    }
    let sleeper = OrphanSleeper::new();
    let name = sleeper.pid.to_string();
    let process = std::path::Path::new("/proc").join(&name);
    std::os::unix::fs::symlink(process, procfs.path().join(&name)).unwrap();
    let parts = enforcer_below(procfs.path().to_owned(), None);
    let root = caller(0);
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let outcomes: Vec<_> = report.outcomes.iter().map(|it| &it.outcome).collect();
    assert!(matches!(outcomes[..], [Outcome::Failed(_)]), "{outcomes:?}");
    assert!(!sleeper.has_ended());
}

/// The outcomes of these processes.
fn outcomes(parts: &TestDaemon, id: OperationId, pids: &[u32]) -> Vec<Option<Outcome>> {
    let report = parts.enforcer.follow(&caller(0), id).unwrap().report;
    let report = report.borrow();
    let of = |pid: &u32| {
        let outcome = report.outcomes.iter().find(|it| it.key.pid == *pid);
        outcome.map(|outcome| outcome.outcome.clone())
    };
    pids.iter().map(of).collect()
}

#[test]
fn late_children_end_and_stubborn_survive() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let before = stubborn.fork();
    let request = KillRequest {
        scope: KillScope::Tree,
        signal_timeout_ms: 4_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    let born: u32 = stubborn.await_file("late").trim().parse().unwrap();
    assert!(parts.is_over(operation));
    let outcomes = outcomes(&parts, operation, &[before, stubborn.pid, born]);
    let is_expected = matches!(
        outcomes[..],
        [
            Some(Outcome::Ended(KillSignal::Terminate, _)),
            Some(Outcome::Survived(KillSignal::Terminate, _)),
            Some(Outcome::Ended(KillSignal::Terminate, _)),
        ]
    );
    assert!(is_expected, "{outcomes:?}");
}

#[test]
fn interrupted_kill_is_reported() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = StubbornTree::new();
    let request = KillRequest {
        force: true,
        signal_timeout_ms: 600_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    stubborn.await_file("signalled");
    parts.enforcer.stop(Duration::from_secs(30));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    assert_eq!(report.borrow().stage, Stage::Interrupted);
    let outcomes = outcomes(&parts, operation, &[stubborn.pid]);
    assert!(
        matches!(
            outcomes[..],
            [Some(Outcome::Survived(KillSignal::Terminate, _))]
        ),
        "{outcomes:?}"
    );
    assert_ne!(stubborn.state(), 'Z');
}

#[test]
fn unrecorded_kill_goes_ahead() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = OrphanSleeper::new();
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    parts.enforcer.environment.store.clone().close();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    assert!(report.borrow().unrecorded.is_some());
    assert!(sleeper.has_ended());
}

#[test]
fn zombie_is_gone_only_when_reaped() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = OrphanSleeper::new();
    let (_, made) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let reaper = Reaper {
        pid: 1,
        name: Reading::Unsupported,
    };
    let there = KillTarget {
        action: PlannedAction::Zombie(reaper.clone()),
        ..made.targets[0].clone()
    };
    // Larger than any PID.
    let mut reaped = there.clone();
    reaped.key.pid = (1 << 22) + 1;
    let plan = KillPlan {
        targets: vec![there, reaped],
        ..KillPlan::clone(&made)
    };
    let plans = &parts.enforcer.plans;
    let id = plans.insert(
        (KillOwner::from_caller(&root), root.limit_group),
        Arc::new(plan),
        Instant::now(),
    );
    let operation = parts.enforcer.execute(&root, id).unwrap();
    assert!(parts.is_over(operation));
    assert_eq!(
        outcomes(&parts, operation, &[sleeper.pid, (1 << 22) + 1]),
        [Some(Outcome::Zombie(reaper)), Some(Outcome::Gone)]
    );
    assert!(!sleeper.has_ended());
}
