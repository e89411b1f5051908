//! `reset` when it is followed: through a break of the connection, and to Ctrl-C.

use crate::client;
use crate::daemon::{Daemon, NOW, Script, take_one};
use crate::watching::{PATIENCE, signal};
use crate::{run, stderr, stdout};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{
    ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetRequest, ResetTarget,
};
use gpukill_proto::snapshot::{DeviceId, Vendor};
use rustix::process::Signal;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PLAN: PlanId = PlanId(8);
const OPERATION: OperationId = OperationId(4);

/// What the stand-in daemon resets: two GPUs, one after the other.
pub(crate) struct Resets {
    /// How it stands, one after another.
    reports: Mutex<Vec<ResetReport>>,
    /// Questions at which the connection breaks before one is answered.
    pub hang_ups: AtomicU32,
    /// How often it was asked how it stands.
    followed: AtomicU64,
}

impl Default for Resets {
    fn default() -> Self {
        Self {
            reports: Mutex::new(vec![report(1, Stage::Ending), report(2, Stage::Done)]),
            hang_ups: AtomicU32::new(0),
            followed: AtomicU64::new(0),
        }
    }
}

/// So many are reset.
fn report(reset: u32, stage: Stage) -> ResetReport {
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
            name: Reading::Value("H100".into()),
            vendor: Vendor::Nvidia,
            pci: Reading::Unsupported,
            blockers: Vec::new(),
            peers: Vec::new(),
            notes: Vec::new(),
            fate: ResetFate::Reset,
        };
        let plan = ResetPlan {
            at: NOW,
            request,
            devices: (0..2).map(target).collect(),
        };
        (Some(PLAN), plan)
    }

    pub(crate) fn begin(plan: PlanId) -> OperationId {
        assert_eq!(plan, PLAN);
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

#[test]
fn a_connection_that_breaks_is_made_anew_once_and_each_gpu_is_told_of_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    daemon.script.resets.hang_ups.store(1, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let broke = "gpukillctl: gpukilld ended the connection: it went away";
    let again = format!("{broke}; the reset goes on there: asking again\n");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), again.clone())
    );
    let told = ["GPU 0: ", "GPU 1: "].map(|gpu| stdout(&output).matches(gpu).count());
    assert_eq!(told, [1, 1]);
    daemon.script.resets.hang_ups.store(2, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let lost = format!(
        "{again}{broke}: what became of the GPUs is not known\n\
         hint: see how they stand: gpukillctl list\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), lost));
}

#[test]
fn ctrl_c_leaves_and_says_that_it_goes_on() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = Daemon::start(directory.path(), Script::default());
        let resets = &daemon.script.resets;
        *resets.reports.lock().expect("not poisoned") = vec![report(1, Stage::Ending)];
        let child = client(&daemon.socket, "reset --all --yes -o json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let since = Instant::now();
        while resets.followed.load(SeqCst) == 0 {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&child, number);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (
                Some(1),
                "gpukillctl: not followed any more: it goes on in gpukilld\n\
                 hint: see how they stand: gpukillctl list\n"
                    .into()
            )
        );
    }
}
