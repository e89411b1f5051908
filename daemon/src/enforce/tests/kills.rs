//! Tests of whole kills, of processes of the test.

mod looks;

use super::*;

/// A tree of processes that are no children of the daemon's: a shell that does
/// not end on SIGTERM, but has a child then, and says so by files. All are ended when
/// dropped.
struct Stubborn {
    directory: tempfile::TempDir,
    pid: u32,
    children: std::cell::RefCell<Vec<u32>>,
}

impl Stubborn {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = r#"
            trap 'sleep 1000 & echo $! > heir; : > told' TERM
            trap 'echo >> went-on' CONT
            : > ready
            while :; do
                [ -e fork ] && rm fork && { sleep 1000 & echo $! > born; }
                sleep 0.02
            done"#;
        std::fs::write(directory.path().join("run"), script).unwrap();
        let start = "sh run >/dev/null 2>&1 & echo $!";
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", start]).current_dir(directory.path());
        let told = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        let this = Self {
            pid: told.trim().parse().unwrap(),
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
                && (!["born", "heir"].contains(&name) || text.ends_with('\n'))
            {
                return text;
            }
            assert!(Instant::now() < deadline, "no file {name}");
            std::thread::yield_now();
        }
    }

    /// A child of it, which ends on SIGTERM.
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

impl Drop for Stubborn {
    fn drop(&mut self) {
        let heir = std::fs::read_to_string(self.directory.path().join("heir"));
        let heir = heir.ok().and_then(|heir| heir.trim().parse().ok());
        let children = self.children.take().into_iter().chain(heir);
        for pid in children.chain([self.pid]) {
            let pid = i32::try_from(pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            let _ = rustix::process::kill_process(pid.unwrap(), Signal::KILL);
        }
    }
}

/// Whether one process had SIGTERM, and no SIGKILL since the admin protects it by then.
fn is_withheld(endings: &[&Ending]) -> bool {
    let [Ending::Failed(why)] = endings else {
        return false;
    };
    why.starts_with("SIGKILL withheld: the admin protects what ")
        && why.ends_with("; it goes on after SIGTERM")
}

#[test]
fn what_is_protected_since_its_first_signal_gets_no_second_one() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = Stubborn::new();
    let request = KillRequest {
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
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let endings: Vec<_> = report.outcomes.iter().map(|it| &it.ending).collect();
    assert!(is_withheld(&endings), "{endings:?}");
    assert!(!matches!(stubborn.state(), 'Z' | 'T'));
}

#[test]
fn what_came_to_a_tree_since_it_was_planned_is_ended_with_it() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = Stubborn::new();
    let request = KillRequest {
        scope: KillScope::Tree,
        force: true,
        patience_ms: 200,
        ..any_process(stubborn.pid)
    };
    let (id, planned) = parts.make(&root, request).unwrap();
    let born = stubborn.fork();
    assert!(planned.targets.iter().all(|target| target.key.pid != born));
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    for pid in [stubborn.pid, born] {
        let outcome = report.outcomes.iter().find(|it| it.key.pid == pid);
        let ending = outcome.map(|it| &it.ending);
        assert!(
            matches!(ending, Some(Ending::Ended(..))),
            "{pid}: {report:?}"
        );
    }
}

#[test]
fn nobody_stays_stopped_when_a_kill_is_broken_off_or_the_daemon_ends() {
    let stubborn = Stubborn::new();
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
    let frozen = &parts.enforcer.means.frozen;
    // It is noted nowhere.
    let nobody = gpukill_proto::snapshot::ProcessKey {
        pid: 0,
        start_ticks: 0,
    };
    let stopped = frozen.stop(nobody, &handle);
    stopped.again();
    becomes(true);
    drop(stopped);
    becomes(false);
    let stopped = frozen.stop(nobody, &handle);
    stopped.again();
    becomes(true);
    parts.enforcer.stop(Duration::ZERO);
    becomes(false);
    stopped.again();
    // It could not, if it were stopped.
    stubborn.fork();
}

#[test]
fn a_handle_on_another_than_procfs_shows_by_the_pid_gets_no_signal() {
    // As `/proc` of another PID namespace than ours: what our kernel calls so is
    // called otherwise there.
    let procfs = tempfile::tempdir().unwrap();
    let handles = procfs.path().join("self/fdinfo");
    std::fs::create_dir_all(&handles).unwrap();
    for number in 0..1_024 {
        std::fs::write(handles.join(number.to_string()), "pos:\t0\nPid:\t2\n").unwrap();
    }
    let sleeper = Sleeper::new();
    let name = sleeper.pid.to_string();
    let process = std::path::Path::new("/proc").join(&name);
    std::os::unix::fs::symlink(process, procfs.path().join(&name)).unwrap();
    let parts = enforcer_below(procfs.path().to_owned(), None);
    let root = caller(0);
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    let endings: Vec<_> = report.outcomes.iter().map(|it| &it.ending).collect();
    assert!(matches!(endings[..], [Ending::Failed(_)]), "{endings:?}");
    assert!(!sleeper.has_ended());
}

/// What became of these processes.
fn endings(parts: &Parts, id: OperationId, pids: &[u32]) -> Vec<Option<Ending>> {
    let report = parts.enforcer.follow(&caller(0), id).unwrap().report;
    let report = report.borrow();
    let of = |pid: &u32| {
        let outcome = report.outcomes.iter().find(|it| it.key.pid == *pid);
        outcome.map(|outcome| outcome.ending.clone())
    };
    pids.iter().map(of).collect()
}

#[test]
fn what_is_born_while_others_have_their_time_is_ended_and_what_refuses_survives() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = Stubborn::new();
    let before = stubborn.fork();
    let request = KillRequest {
        scope: KillScope::Tree,
        patience_ms: 4_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    let born: u32 = stubborn.await_file("heir").trim().parse().unwrap();
    assert!(parts.is_over(operation));
    let endings = endings(&parts, operation, &[before, stubborn.pid, born]);
    let is_expected = matches!(
        endings[..],
        [
            Some(Ending::Ended(KillSignal::Terminate, _)),
            Some(Ending::Survived(KillSignal::Terminate, _)),
            Some(Ending::Ended(KillSignal::Terminate, _)),
        ]
    );
    assert!(is_expected, "{endings:?}");
}

#[test]
fn a_kill_that_the_end_of_the_daemon_interrupts_says_so() {
    let parts = enforcer(None);
    let root = caller(0);
    let stubborn = Stubborn::new();
    let request = KillRequest {
        force: true,
        patience_ms: 600_000,
        ..any_process(stubborn.pid)
    };
    let (id, _) = parts.make(&root, request).unwrap();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    stubborn.await_file("told");
    parts.enforcer.stop(Duration::from_secs(30));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    assert_eq!(report.borrow().stage, Stage::Interrupted);
    let endings = endings(&parts, operation, &[stubborn.pid]);
    assert!(
        matches!(
            endings[..],
            [Some(Ending::Survived(KillSignal::Terminate, _))]
        ),
        "{endings:?}"
    );
    assert_ne!(stubborn.state(), 'Z');
}

#[test]
fn a_kill_that_cannot_be_recorded_goes_ahead_and_says_so() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = Sleeper::new();
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    parts.enforcer.means.store.clone().close();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    assert!(report.borrow().unrecorded.is_some());
    assert!(sleeper.has_ended());
}

#[test]
fn what_had_ended_is_gone_when_it_was_reaped_and_else_is_not() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = Sleeper::new();
    let (_, made) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let reaper = Reaper {
        pid: 1,
        name: Reading::Unsupported,
    };
    let there = KillTarget {
        fate: Fate::Zombie(reaper.clone()),
        ..made.targets[0].clone()
    };
    // Larger than any pid.
    let mut reaped = there.clone();
    reaped.key.pid = (1 << 22) + 1;
    let plan = KillPlan {
        targets: vec![there, reaped],
        ..KillPlan::clone(&made)
    };
    let plans = &parts.enforcer.plans;
    let id = plans.keep(
        (Owner::of(&root), root.limit_group),
        Arc::new(plan),
        Instant::now(),
    );
    let operation = parts.enforcer.carry_out(&root, id).unwrap();
    assert!(parts.is_over(operation));
    assert_eq!(
        endings(&parts, operation, &[sleeper.pid, (1 << 22) + 1]),
        [Some(Ending::Zombie(reaper)), Some(Ending::Gone)]
    );
    assert!(!sleeper.has_ended());
}
