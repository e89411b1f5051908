//! Tests of plans and operations, over a daemon's parts without its server.

mod kills;

mod room;

use super::*;
use crate::audit::Keep;
use crate::authority::Settings;
use crate::clock::SystemClock;
use crate::host::users::{System, Users};
use crate::look::Looked;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::kill::{
    Ending, Fate, KillScope, KillSelector, KillSignal, KillTarget, Reaper, Stage,
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

/// The parts of a daemon, and where its store lies.
struct Parts {
    enforcer: Enforcer,
    settings: Settings,
    _directory: tempfile::TempDir,
}

fn enforcer(will_not_act: Option<&str>) -> Parts {
    enforcer_below("/proc".into(), will_not_act)
}

fn enforcer_below(procfs: std::path::PathBuf, will_not_act: Option<&str>) -> Parts {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3_600);
    let store = Store::start(directory.path().to_owned(), "boot".into(), Keep::HOUR, None).unwrap();
    let (_, state) = state::channel("box".into(), hour);
    let (settings, authority) = Settings::read_with(Users::new(System::here()));
    let means = Means {
        authority,
        state,
        look: Arc::new(|_| Box::pin(async { Looked::Whole })),
        crowds: Crowds::new(procfs, "/".into(), ""),
        store,
        clock: Arc::new(SystemClock::starting()),
        hurry: Arc::new(|| ()),
        will_not_act: will_not_act.map(str::to_owned),
        stopping: Arc::default(),
        frozen: Frozen::default(),
    };
    Parts {
        enforcer: Enforcer::new(means),
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

impl Parts {
    fn keep(&self, caller: &Caller) -> PlanId {
        let plans = &self.enforcer.plans;
        plans.keep(
            (Owner::of(caller), caller.limit_group),
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
        let under_way = self.enforcer.operations.settle(soon);
        let stage = self
            .enforcer
            .operations
            .of(id)
            .unwrap()
            .report
            .borrow()
            .stage;
        under_way == 0 && matches!(stage, Stage::Done | Stage::Interrupted)
    }
}

#[test]
fn a_plan_is_carried_out_once_and_by_whoever_made_it() {
    let parts = enforcer(None);
    let alice = caller(1000);
    let id = parts.keep(&alice);
    let refused = |caller| parts.enforcer.carry_out(&caller, id);
    assert_eq!(refused(caller(1001)), Err(Refusal::Expired));
    assert_eq!(refused(caller(0)), Err(Refusal::Expired));
    assert_eq!(parts.enforcer.kept(&alice, id), Ok(plan()));
    let operation = parts.enforcer.carry_out(&alice, id).unwrap();
    assert_eq!(parts.enforcer.carry_out(&alice, id), Err(Refusal::Expired));
    assert_eq!(parts.enforcer.kept(&alice, id), Err(Refusal::Expired));
    assert!(parts.is_over(operation));
}

#[test]
fn root_of_a_container_has_no_plan_of_the_boxs_root() {
    let parts = enforcer(None);
    let id = parts.keep(&caller(0));
    let carried_out = parts.enforcer.carry_out(&contained_root(), id);
    assert_eq!(carried_out, Err(Refusal::Expired));
    assert_eq!(parts.enforcer.kept(&caller(0), id), Ok(plan()));
}

#[test]
fn an_operation_is_followed_by_whoever_began_it_and_by_root() {
    let parts = enforcer(None);
    let alice = caller(1000);
    let id = parts.keep(&alice);
    let id = parts.enforcer.carry_out(&alice, id).unwrap();
    let follows = |caller| {
        let followed = parts.enforcer.follow(&caller, id);
        followed.map(|followed| (followed.is_own, followed.plan))
    };
    let nothing = Refusal::NoMatch("there is no such operation of yours".to_owned());
    assert_eq!(follows(alice), Ok((true, plan())));
    assert_eq!(follows(caller(0)), Ok((false, plan())));
    assert_eq!(follows(caller(1001)), Err(nothing.clone()));
    // The operators' group is not configured here.
    let operator = Caller {
        groups: [OPERATORS].into(),
        ..caller(1001)
    };
    assert_eq!(follows(operator), Err(nothing));
    assert!(parts.is_over(id));
}

#[test]
fn a_daemon_that_does_not_act_says_why_and_one_that_stops_begins_nothing() {
    let root = caller(0);
    let parts = enforcer(Some("these are not the host's pids"));
    let id = parts.keep(&root);
    let why = Refusal::Unavailable("these are not the host's pids".to_owned());
    let made = parts.make(&root, KillRequest::default());
    assert_eq!(made, Err(why.clone()));
    assert_eq!(parts.enforcer.carry_out(&root, id), Err(why));

    let parts = enforcer(None);
    let id = parts.keep(&root);
    parts.enforcer.stop(Duration::ZERO);
    let why = Refusal::Unavailable("gpukilld stops".to_owned());
    assert_eq!(parts.enforcer.carry_out(&root, id), Err(why));
    assert!(parts.enforcer.means.is_stopping());
}

#[test]
fn plans_that_one_person_asks_for_at_once_are_made_one_after_the_other() {
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

/// Root's, of any process.
fn any_process(pid: u32) -> KillRequest {
    KillRequest {
        selector: KillSelector {
            pids: vec![pid],
            ..KillSelector::default()
        },
        any_process: true,
        patience_ms: 5_000,
        ..KillRequest::default()
    }
}

#[test]
fn a_plan_that_ends_nobody_or_is_only_tried_has_no_name() {
    let parts = enforcer(None);
    let root = caller(0);
    let (id, plan) = parts.make(&root, any_process(std::process::id())).unwrap();
    assert_eq!(id, None);
    assert!(
        matches!(plan.targets[0].fate, Fate::Protected(_)),
        "{plan:?}"
    );

    let sleeper = Sleeper::new();
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
        matches!(planned.1.targets[0].fate, Fate::End(_)),
        "{planned:?}"
    );
    let id = planned.0.unwrap();
    assert_eq!(parts.enforcer.kept(&root, id), Ok(planned.1));
}

/// A process that does nothing, is no child of the daemon's, which is protected,
/// and is ended when dropped.
struct Sleeper {
    pid: u32,
    handle: OwnedFd,
}

impl Sleeper {
    fn new() -> Self {
        let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
        let mut shell = std::process::Command::new("sh");
        let told = shell.args(["-c", script]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let pid: i32 = told.trim().parse().unwrap();
        // It is the shell's copy for a moment.
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

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

#[test]
fn a_plan_that_is_carried_out_ends_whom_it_names() {
    let parts = enforcer(None);
    let root = caller(0);
    let sleeper = Sleeper::new();
    let (id, _) = parts.make(&root, any_process(sleeper.pid)).unwrap();
    let operation = parts.enforcer.carry_out(&root, id.unwrap()).unwrap();
    assert!(parts.is_over(operation));
    let report = parts.enforcer.follow(&root, operation).unwrap().report;
    let report = report.borrow();
    assert_eq!(report.stage, Stage::Done);
    let outcomes = report.outcomes.iter();
    let endings: Vec<_> = outcomes.map(|outcome| &outcome.ending).collect();
    assert!(
        matches!(endings[..], [Ending::Ended(KillSignal::Terminate, _)]),
        "{endings:?}"
    );
    assert!(sleeper.has_ended());
}
