//! Tests of plans and operations over the parts of a daemon, without its server.

mod fd_budget;
mod kills;

use super::*;
use crate::authority::TestSettings;
use crate::clock::SystemClock;
use crate::fd_scan::full_scan::ScanResult;
use crate::host::users::{SystemNameService, Users};
use crate::store::Retention;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::kill::{
    KillScope, KillSelector, KillSignal, KillTarget, Outcome, PlannedAction, Reaper, Stage,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, Signal};

const OPERATORS: u32 = 800;

fn caller(uid: u32) -> Caller {
    Caller {
        uid,
        groups: [uid].into(),
        contained: false,
        limit_group: LimitGroup::Person(uid),
    }
}

fn contained_root() -> Caller {
    Caller {
        contained: true,
        ..caller(0)
    }
}

/// The parts of a daemon, and the path of its store.
struct TestDaemon {
    enforcer: KillService,
    settings: TestSettings,
    _directory: tempfile::TempDir,
}

fn enforcer(will_not_act: Option<&str>) -> TestDaemon {
    enforcer_below("/proc".into(), will_not_act)
}

fn enforcer_below(procfs: std::path::PathBuf, will_not_act: Option<&str>) -> TestDaemon {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3_600);
    let store = Store::start(
        directory.path().to_owned(),
        "boot".into(),
        Retention::HOUR,
        None,
    )
    .unwrap();
    let (_, state) = state::channel("box".into(), hour);
    let (settings, authority) =
        TestSettings::new_with_users(Users::new(SystemNameService::for_this_host()));
    let environment = KillEnvironment {
        authority,
        state,
        full_scan: Arc::new(|_| Box::pin(async { ScanResult::Complete })),
        process_tables: ProcessTableReader::new(procfs, "/".into(), ""),
        store,
        clock: Arc::new(SystemClock::start()),
        poll_now: Arc::new(|| ()),
        disabled_reason: will_not_act.map(str::to_owned),
        stopping: Arc::default(),
        stopped_processes: StoppedProcesses::default(),
    };
    TestDaemon {
        enforcer: KillService::new(environment),
        settings,
        _directory: directory,
    }
}

fn plan() -> Arc<KillPlan> {
    Arc::new(KillPlan {
        at: Timestamp(7),
        ..KillPlan::default()
    })
}

impl TestDaemon {
    fn keep(&self, caller: &Caller) -> PlanId {
        let plans = &self.enforcer.plans;
        plans.insert(
            (KillOwner::from_caller(caller), caller.limit_group),
            plan(),
            Instant::now(),
        )
    }

    fn make(
        &self,
        caller: &Caller,
        request: KillRequest,
    ) -> Result<(Option<PlanId>, Arc<KillPlan>), Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(self.enforcer.plan(caller, request))
    }

    fn is_over(&self, id: OperationId) -> bool {
        let soon = Instant::now() + Duration::from_secs(30);
        let under_way = self.enforcer.operations.wait_until_idle(soon);
        let stage = self
            .enforcer
            .operations
            .get(id)
            .unwrap()
            .report
            .borrow()
            .stage;
        under_way == 0 && matches!(stage, Stage::Done | Stage::Interrupted)
    }
}

#[test]
fn plan_runs_once_for_its_owner() {
    let parts = enforcer(None);
    let alice = caller(1000);
    let id = parts.keep(&alice);
    let refused = |caller| parts.enforcer.execute(&caller, id);
    assert_eq!(refused(caller(1001)), Err(Refusal::Expired));
    assert_eq!(refused(caller(0)), Err(Refusal::Expired));
    assert_eq!(parts.enforcer.get_plan(&alice, id), Ok(plan()));
    let operation = parts.enforcer.execute(&alice, id).unwrap();
    assert_eq!(parts.enforcer.execute(&alice, id), Err(Refusal::Expired));
    assert_eq!(parts.enforcer.get_plan(&alice, id), Err(Refusal::Expired));
    assert!(parts.is_over(operation));
}

#[test]
fn contained_root_cannot_take_roots_plan() {
    let parts = enforcer(None);
    let id = parts.keep(&caller(0));
    let carried_out = parts.enforcer.execute(&contained_root(), id);
    assert_eq!(carried_out, Err(Refusal::Expired));
    assert_eq!(parts.enforcer.get_plan(&caller(0), id), Ok(plan()));
}

#[test]
fn owner_and_root_can_follow() {
    let parts = enforcer(None);
    let alice = caller(1000);
    let id = parts.keep(&alice);
    let id = parts.enforcer.execute(&alice, id).unwrap();
    let follows = |caller| {
        let followed = parts.enforcer.follow(&caller, id);
        followed.map(|followed| (followed.is_own, followed.plan))
    };
    let nothing = Refusal::NoMatch("no such operation, or it belongs to another user".to_owned());
    assert_eq!(follows(alice), Ok((true, plan())));
    assert_eq!(follows(caller(0)), Ok((false, plan())));
    assert_eq!(follows(caller(1001)), Err(nothing.clone()));
    // No group of operators is configured here.
    let operator = Caller {
        groups: [OPERATORS].into(),
        ..caller(1001)
    };
    assert_eq!(follows(operator), Err(nothing));
    assert!(parts.is_over(id));
}

#[test]
fn refuses_when_disabled_or_stopping() {
    let root = caller(0);
    let parts = enforcer(Some("these are not the host's pids"));
    let id = parts.keep(&root);
    let why = Refusal::Unavailable("these are not the host's pids".to_owned());
    let made = parts.make(&root, KillRequest::default());
    assert_eq!(made, Err(why.clone()));
    assert_eq!(parts.enforcer.execute(&root, id), Err(why));

    let parts = enforcer(None);
    let id = parts.keep(&root);
    parts.enforcer.stop(Duration::ZERO);
    let why = Refusal::Unavailable("gpukilld is stopping".to_owned());
    assert_eq!(parts.enforcer.execute(&root, id), Err(why));
    assert!(parts.enforcer.environment.is_stopping());
}

#[test]
fn plans_of_one_person_are_serialized() {
    let parts = enforcer(None);
    let alice = caller(1000);
    let alone = parts.make(&alice, KillRequest::default());
    assert_ne!(alone, Err(Refusal::Busy));
    let held = parts.enforcer.planning.take(alice.limit_group, false);
    assert!(held.is_some());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let made = runtime.block_on(async {
        let ask = || parts.enforcer.plan(&alice, KillRequest::default());
        let mut three = std::pin::pin!(futures::future::join_all([ask(), ask(), ask()]));
        assert!(futures::poll!(three.as_mut()).is_pending());
        drop(held);
        three.await
    });
    assert_eq!(made, [alone.clone(), alone.clone(), alone]);
}

/// A request by root for any process.
fn any_process(pid: u32) -> KillRequest {
    KillRequest {
        selector: KillSelector {
            pids: vec![pid],
            ..KillSelector::default()
        },
        any_process: true,
        signal_timeout_ms: 5_000,
        ..KillRequest::default()
    }
}

#[test]
fn empty_or_dry_run_plan_has_no_id() {
    let parts = enforcer(None);
    let root = caller(0);
    let (id, plan) = parts.make(&root, any_process(std::process::id())).unwrap();
    assert_eq!(id, None);
    assert!(
        matches!(plan.targets[0].action, PlannedAction::Protected(_)),
        "{plan:?}"
    );

    let sleeper = OrphanSleeper::new();
    let tried = parts.make(
        &root,
        KillRequest {
            dry_run: true,
            ..any_process(sleeper.pid)
        },
    );
    let planned = parts.make(&root, any_process(sleeper.pid));
    let (tried, planned) = (tried.unwrap(), planned.unwrap());
    assert_eq!(tried.0, None);
    assert_eq!(tried.1.targets, planned.1.targets);
    assert!(
        matches!(planned.1.targets[0].action, PlannedAction::End(_)),
        "{planned:?}"
    );
    let id = planned.0.unwrap();
    assert_eq!(parts.enforcer.get_plan(&root, id), Ok(planned.1));
}

/// An idle process that is no child of the daemon: children of the daemon are protected. Ended
/// when dropped.
struct OrphanSleeper {
    pid: u32,
    handle: OwnedFd,
}

impl OrphanSleeper {
    fn new() -> Self {
        let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", script]).output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let pid: i32 = output.trim().parse().unwrap();
        // For a moment it is a copy of the shell.
        let name = format!("/proc/{pid}/comm");
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        let raw = rustix::process::Pid::from_raw(pid).unwrap();
        let handle = rustix::process::pidfd_open(raw, PidfdFlags::empty()).unwrap();
        Self {
            pid: pid.unsigned_abs(),
            handle,
        }
    }

    fn has_ended(&self) -> bool {
        let mut handle = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut handle, Some(&Timespec::default())).unwrap() == 1
    }
}

impl Drop for OrphanSleeper {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

#[test]
fn executed_plan_ends_its_targets() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = OrphanSleeper::new();
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let operation = parts.enforcer.execute(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    assert_eq!(report.stage, Stage::Done);
    let outcomes = report.outcomes.iter();
    let outcomes: Vec<_> = outcomes.map(|outcome| &outcome.outcome).collect();
    assert!(
        matches!(outcomes[..], [Outcome::Ended(KillSignal::Terminate, _)]),
        "{outcomes:?}"
    );
    assert!(sleeper.has_ended());
}
