//! What the stand-in daemon resets, as a test wrote it down.

use crate::daemon::{NOW, take_one};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetRequest,
    ResetTarget, Unblock,
};
use gpukill_proto::snapshot::{DeviceId, Vendor};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const PLAN: PlanId = PlanId(8);
const OPERATION: OperationId = OperationId(4);

/// What the stand-in daemon resets: GPU 3, or two GPUs, one after the other.
pub(crate) struct Resets {
    /// How it stands, one after another.
    pub reports: Mutex<Vec<ResetReport>>,
    /// Questions at which the connection breaks before one is answered.
    pub hang_ups: AtomicU32,
    /// How often it was asked how it stands.
    pub followed: AtomicU64,
    /// How many were begun.
    pub begun: AtomicUsize,
}

impl Default for Resets {
    fn default() -> Self {
        Self {
            reports: Mutex::new(vec![report(1, Stage::Ending), report(2, Stage::Done)]),
            hang_ups: AtomicU32::new(0),
            followed: AtomicU64::new(0),
            begun: AtomicUsize::new(0),
        }
    }
}

/// GPU 3 is reset.
pub(crate) fn one() -> Vec<ResetReport> {
    let outcome = ResetOutcome {
        device: DeviceId("GPU-a".into()),
        index: 3,
        ended: None,
        ending: ResetEnding::Reset(4_250),
        note: None,
    };
    vec![ResetReport {
        outcomes: vec![outcome],
        ..report(1, Stage::Done)
    }]
}

/// So many are reset.
pub(crate) fn report(reset: u32, stage: Stage) -> ResetReport {
    let outcome = |index| ResetOutcome {
        device: DeviceId(format!("GPU-{index}")),
        index,
        ended: None,
        ending: ResetEnding::Reset(4_200),
        note: None,
    };
    ResetReport {
        version: reset.into(),
        stage,
        outcomes: (0..reset).map(outcome).collect(),
        unrecorded: None,
    }
}

impl Resets {
    pub(crate) fn plan(request: ResetRequest) -> (Option<PlanId>, ResetPlan) {
        let target = |index| ResetTarget {
            device: DeviceId(format!("GPU-{index}")),
            index,
            name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
            vendor: Vendor::Nvidia,
            pci: Reading::Value("0000:1b:00.0".into()),
            blockers: vec![Blocker {
                process: None,
                what: "gpukilld's own sensor".into(),
                remedy: Unblock::Daemon,
            }],
            peers: Vec::new(),
            notes: Vec::new(),
            fate: ResetFate::Reset,
        };
        let id = (!request.dry_run).then_some(PLAN);
        let devices = if request.gpu.is_some() { 3..4 } else { 0..2 };
        let plan = ResetPlan {
            at: NOW,
            request,
            devices: devices.map(target).collect(),
        };
        (id, plan)
    }

    pub(crate) fn begin(&self, plan: PlanId) -> OperationId {
        assert_eq!(plan, PLAN);
        self.begun.fetch_add(1, SeqCst);
        OPERATION
    }

    pub(crate) async fn report(&self, operation: OperationId, after: Option<u64>) -> ResetReport {
        assert_eq!(operation, OPERATION);
        self.followed.fetch_add(1, SeqCst);
        loop {
            let reports = self.reports.lock().expect("not poisoned").clone();
            let newer = |report: &ResetReport| after.is_none_or(|after| report.version > after);
            if let Some(report) = reports.into_iter().find(newer) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn hangs_up(&self) -> bool {
        take_one(&self.hang_ups)
    }
}
