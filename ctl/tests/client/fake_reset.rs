//! The resets of the fake daemon, as a test specifies them.

use crate::fake_daemon::{NOW, take_one};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::model::{DeviceId, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetRequest, ResetResult,
    ResetTarget, Unblocker,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const PLAN: PlanId = PlanId(8);
const OPERATION: OperationId = OperationId(4);

/// Resets of GPU 3, or of two GPUs one after the other.
pub(crate) struct FakeResets {
    /// The reports, one after another.
    pub reports: Mutex<Vec<ResetReport>>,
    /// Number of follow calls at which the connection breaks.
    pub hang_ups: AtomicU32,
    /// The number of follow calls.
    pub followed: AtomicU64,
    /// The number of started resets.
    pub started: AtomicUsize,
}

impl Default for FakeResets {
    fn default() -> Self {
        Self {
            reports: Mutex::new(vec![report(1, Stage::Ending), report(2, Stage::Done)]),
            hang_ups: AtomicU32::new(0),
            followed: AtomicU64::new(0),
            started: AtomicUsize::new(0),
        }
    }
}

/// The reports of a reset of GPU 3.
pub(crate) fn one() -> Vec<ResetReport> {
    let outcome = ResetOutcome {
        device: DeviceId("GPU-a".into()),
        index: 3,
        ended: None,
        result: ResetResult::Reset(4_250),
        note: None,
    };
    vec![ResetReport {
        outcomes: vec![outcome],
        ..report(1, Stage::Done)
    }]
}

/// A report with this number of finished GPUs.
pub(crate) fn report(reset: u32, stage: Stage) -> ResetReport {
    let outcome = |index| ResetOutcome {
        device: DeviceId(format!("GPU-{index}")),
        index,
        ended: None,
        result: ResetResult::Reset(4_200),
        note: None,
    };
    ResetReport {
        version: reset.into(),
        stage,
        outcomes: (0..reset).map(outcome).collect(),
        unrecorded: None,
    }
}

impl FakeResets {
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
                remedy: Unblocker::Daemon,
            }],
            peers: Vec::new(),
            notes: Vec::new(),
            action: PlannedReset::Reset,
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
        self.started.fetch_add(1, SeqCst);
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
