//! The kills of the fake daemon, as a test specifies them: two processes on each page.

use crate::fake_daemon::NOW;
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest, KillSignal, KillTarget,
    MemoryReclaim, OperationId, Outcome, PlanId, PlannedAction, ProcessOutcome, Stage,
    TargetMemory,
};
use gpukill_proto::model::{DeviceId, Job, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Bytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const PLAN: PlanId = PlanId(7);
const OPERATION: OperationId = OperationId(3);
const PAGE: usize = 2;

/// A plan and its execution.
pub(crate) struct FakeKills {
    /// The plan for a request; the request itself is filled in.
    pub planned: Mutex<Result<KillPlan, Refusal>>,
    /// The reports, one after another.
    pub reports: Mutex<Vec<KillReport>>,
    /// Why no operation is started.
    pub refused: Mutex<Option<Refusal>>,
    /// Number of follow calls at which the connection breaks.
    pub hang_ups: AtomicU32,
    /// Number of start calls at which the connection breaks.
    pub hang_ups_at_begin: AtomicU32,
    /// Number of follow calls after which the operation is forgotten.
    pub known_calls: AtomicU32,
    pub requests: Mutex<Vec<KillRequest>>,
    pub started_plans: Mutex<Vec<PlanId>>,
    /// The number of follow calls.
    pub followed: AtomicU64,
    /// The version of the last report sent.
    pub sent: AtomicU64,
}

impl Default for FakeKills {
    fn default() -> Self {
        Self {
            planned: Mutex::new(Ok(plan(&[(4182, planned_end())]))),
            reports: Mutex::new(vec![report(&[(4182, ended_outcome())])]),
            refused: Mutex::new(None),
            hang_ups: AtomicU32::new(0),
            hang_ups_at_begin: AtomicU32::new(0),
            known_calls: AtomicU32::new(u32::MAX),
            requests: Mutex::new(Vec::new()),
            started_plans: Mutex::new(Vec::new()),
            followed: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }
}

pub(crate) fn planned_end() -> PlannedAction {
    PlannedAction::End(vec![KillSignal::Terminate])
}

pub(crate) fn ended_outcome() -> Outcome {
    Outcome::Ended(KillSignal::Terminate, 800)
}

/// A plan for these targets.
pub(crate) fn plan(targets: &[(u32, PlannedAction)]) -> KillPlan {
    KillPlan {
        at: NOW,
        targets: targets.iter().map(target).collect(),
        ..KillPlan::default()
    }
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: 1,
    }
}

fn target((pid, action): &(u32, PlannedAction)) -> KillTarget {
    KillTarget {
        key: key(*pid),
        name: "python".into(),
        command: Reading::Value("python train.py".into()),
        uid: Reading::Value(1000),
        owner: Reading::Value("alice".into()),
        holds: vec![TargetMemory {
            device: DeviceId("GPU-8f3c0000".into()),
            index: 0,
            memory: Reading::Value(Bytes::mib(1024)),
        }],
        named: true,
        job: Reading::Value(Job::Tree(key(*pid))),
        action: action.clone(),
        overridden: None,
    }
}

/// The final report with these outcomes.
pub(crate) fn report(outcomes: &[(u32, Outcome)]) -> KillReport {
    let outcome = |(pid, ending): &(u32, Outcome)| ProcessOutcome {
        key: key(*pid),
        name: "python".into(),
        command: Reading::Value("python train.py".into()),
        outcome: ending.clone(),
    };
    let is_ended = |(_, ending): &&(u32, Outcome)| matches!(ending, Outcome::Ended(..));
    let ended = outcomes.iter().filter(is_ended).count();
    let held = Bytes::mib(1024 * u64::try_from(ended).expect("few"));
    let memory = MemoryReclaim {
        device: DeviceId("GPU-8f3c0000".into()),
        index: 0,
        held: Reading::Value(held),
        returned: Reading::Value(held),
        after_ms: Some(1_200),
        still_held_by: Vec::new(),
    };
    KillReport {
        version: 9,
        stage: Stage::Done,
        outcomes: outcomes.iter().map(outcome).collect(),
        memory: if ended > 0 { vec![memory] } else { Vec::new() },
        respawned: Vec::new(),
        unchecked: None,
        unrecorded: None,
    }
}

/// A report before the end.
pub(crate) fn unfinished_report(version: u64) -> KillReport {
    KillReport {
        version,
        stage: Stage::Ending,
        ..report(&[])
    }
}

impl FakeKills {
    pub(crate) fn plan(&self, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        self.requests
            .lock()
            .expect("not poisoned")
            .push(request.clone());
        let mut planned = self.planned.lock().expect("not poisoned");
        if let Ok(plan) = planned.as_mut() {
            plan.request = request;
        }
        let plan = planned.clone()?;
        let ends = |target: &KillTarget| matches!(target.action, PlannedAction::End(_));
        let is_carried_out = !plan.request.dry_run && plan.targets.iter().any(ends);
        let id = is_carried_out.then_some(PLAN);
        Ok(plan_page(id, plan, 0))
    }

    pub(crate) fn more_of_plan(&self, id: PlanId, start: u32) -> Result<KillPlanPage, Refusal> {
        let plan = self.planned.lock().expect("not poisoned").clone()?;
        assert!(plan.request.dry_run == (id == PlanId::LAST), "{id:?}");
        Ok(plan_page(Some(id), plan, start))
    }

    pub(crate) fn begin(&self, plan: PlanId) -> Result<OperationId, Refusal> {
        if let Some(refusal) = self.refused.lock().expect("not poisoned").clone() {
            return Err(refusal);
        }
        assert_eq!(plan, PLAN);
        self.started_plans.lock().expect("not poisoned").push(plan);
        Ok(OPERATION)
    }

    pub(crate) async fn report(
        &self,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        assert_eq!(operation, OPERATION);
        self.followed.fetch_add(1, SeqCst);
        if !crate::fake_daemon::take_one(&self.known_calls) {
            return Err(Refusal::NoMatch("there is no such operation".into()));
        }
        let least = match (start, after) {
            (0, after) => after.map_or(0, |after| after + 1),
            (_, _) => self.sent.load(SeqCst),
        };
        let mut report = loop {
            let reports = self.reports.lock().expect("not poisoned").clone();
            let newer = reports.into_iter().find(|report| report.version >= least);
            if let Some(report) = newer {
                break report;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.sent.store(report.version, SeqCst);
        let next;
        (report.outcomes, next) = part(&report.outcomes, start);
        Ok(KillReportPage { report, next })
    }
}

fn plan_page(id: Option<PlanId>, mut plan: KillPlan, start: u32) -> KillPlanPage {
    let next;
    (plan.targets, next) = part(&plan.targets, start);
    KillPlanPage { id, plan, next }
}

fn part<T: Clone>(all: &[T], start: u32) -> (Vec<T>, Option<u32>) {
    let start = usize::try_from(start).expect("small");
    let end = all.len().min(start + PAGE);
    let next = (end < all.len()).then(|| u32::try_from(end).expect("small"));
    (all[start..end].to_vec(), next)
}
