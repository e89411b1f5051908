//! Samples of kills and resets, with something in every field.

use super::sample::{scheduler_job, unit};
use gpukill_proto::kill::{
    FuseMount, FuseServer, KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest,
    KillScope, KillSelector, KillSignal, KillTarget, MemoryReclaim, Outcome, PlanId, PlannedAction,
    ProcessOutcome, Reaper, RemainingJob, Respawn, Stage, TargetMemory, UninterruptibleWait,
};
use gpukill_proto::model::{DeviceId, Job, ProcessKey, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetRequest, ResetResult,
    ResetTarget, Unblocker,
};
use gpukill_proto::units::{Bytes, Timestamp};

const KEY: ProcessKey = ProcessKey {
    pid: 48_213,
    start_ticks: 987_654,
};

fn device() -> DeviceId {
    DeviceId("GPU-0".into())
}

fn reaper() -> Reaper {
    Reaper {
        pid: 48_200,
        name: Reading::Value("bash".into()),
    }
}

pub(super) fn kill_request() -> KillRequest {
    KillRequest {
        selector: KillSelector {
            pids: vec![48_213, 70_000],
            filter: Some("^python".into()),
            command: Some("train".into()),
            gpu: Some("0,2-5".into()),
            user: Some("alice".into()),
            container: Some("0123456789ab".into()),
            image: Some("*/pytorch:*".into()),
            job: Some("slurm 1234.0".into()),
            min_memory: Some(Bytes(1 << 34)),
            vendors: [Vendor::Nvidia, Vendor::Intel].into(),
        },
        scope: KillScope::Job,
        signal: Some(KillSignal::Interrupt),
        force: true,
        signal_timeout_ms: 5_000,
        any_process: false,
        override_protected: true,
        dry_run: true,
    }
}

pub(super) fn kill_plan_page() -> KillPlanPage {
    let job = || Job::Scheduler(scheduler_job());
    KillPlanPage {
        id: Some(PlanId(300)),
        plan: KillPlan {
            youngest_start_ticks: 1_000_000,
            at: Timestamp(1_763_700_000_000),
            request: kill_request(),
            targets: vec![KillTarget {
                key: KEY,
                name: "python".into(),
                command: Reading::Value("python train.py".into()),
                uid: Reading::Value(1000),
                owner: Reading::Value("alice".into()),
                holds: vec![TargetMemory {
                    device: device(),
                    index: 3,
                    memory: Reading::Value(Bytes(60 << 30)),
                }],
                named: true,
                job: Reading::Value(job()),
                action: PlannedAction::End(vec![KillSignal::Terminate, KillSignal::Kill]),
                overridden: None,
            }],
            undetermined: 2,
            remaining_jobs: vec![RemainingJob {
                pid: 48_213,
                job: job(),
                remaining_processes: 4,
            }],
        },
        next: Some(7),
    }
}

pub(super) fn kill_report_page() -> KillReportPage {
    KillReportPage {
        report: kill_report(),
        next: Some(7),
    }
}

fn kill_report() -> KillReport {
    KillReport {
        version: 300,
        stage: Stage::Reclaiming,
        outcomes: vec![ProcessOutcome {
            key: KEY,
            name: "python".into(),
            command: Reading::Withheld,
            outcome: Outcome::Ended(KillSignal::Terminate, 1_200),
        }],
        memory: vec![MemoryReclaim {
            device: device(),
            index: 3,
            held: Reading::Value(Bytes(60 << 30)),
            returned: Reading::Value(Bytes(59 << 30)),
            after_ms: Some(300),
            still_held_by: vec![70_000],
        }],
        respawned: vec![Respawn {
            key: KEY,
            name: "python".into(),
            unit: Some(unit()),
            parent: Some(reaper()),
        }],
        unchecked: Some("the process table cannot be read".into()),
        unrecorded: Some("the disk is full".into()),
    }
}

pub(super) const SCOPES: [KillScope; 4] = [
    KillScope::Process,
    KillScope::Tree,
    KillScope::Job,
    KillScope::Container,
];

pub(super) const SIGNALS: [KillSignal; 3] = [
    KillSignal::Interrupt,
    KillSignal::Terminate,
    KillSignal::Kill,
];

pub(super) const STAGES: [Stage; 4] = [
    Stage::Ending,
    Stage::Reclaiming,
    Stage::Done,
    Stage::Interrupted,
];

pub(super) const UNBLOCKERS: [Unblocker; 3] =
    [Unblocker::Daemon, Unblocker::Force, Unblocker::Person];

/// As in `main.rs`: a new variant does not compile until it has a sample.
#[expect(dead_code, reason = "it is only compiled")]
fn all_are_sampled(scope: KillScope, signal: KillSignal, stage: Stage, unblock: Unblocker) {
    match scope {
        KillScope::Process | KillScope::Tree | KillScope::Job | KillScope::Container => {}
    }
    match signal {
        KillSignal::Interrupt | KillSignal::Terminate | KillSignal::Kill => {}
    }
    match stage {
        Stage::Ending | Stage::Reclaiming | Stage::Done | Stage::Interrupted => {}
    }
    match unblock {
        Unblocker::Daemon | Unblocker::Force | Unblocker::Person => {}
    }
}

pub(super) fn planned_actions() -> Vec<PlannedAction> {
    let all = vec![
        PlannedAction::End(SIGNALS.to_vec()),
        PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always("x")),
        PlannedAction::Denied("alice".into()),
        PlannedAction::Unclear("x".into()),
        PlannedAction::Zombie(reaper()),
    ];
    for action in &all {
        match action {
            PlannedAction::End(_)
            | PlannedAction::Protected(_)
            | PlannedAction::Denied(_)
            | PlannedAction::Unclear(_)
            | PlannedAction::Zombie(_) => {}
        }
    }
    all
}

pub(super) fn outcomes() -> Vec<Outcome> {
    let all = vec![
        Outcome::Ended(KillSignal::Kill, 300),
        Outcome::Survived(KillSignal::Terminate, 5_000),
        Outcome::Gone,
        Outcome::Changed("x".into()),
        Outcome::Protected("x".into()),
        Outcome::Denied("alice".into()),
        Outcome::Unclear("x".into()),
        Outcome::Uninterruptible(UninterruptibleWait {
            waits_on: Some("nv_wait".into()),
            fuse: Some(FuseMount {
                path: "/home/bob/data".into(),
                servers: vec![FuseServer {
                    pid: 4_711,
                    owner: Reading::Value("bob".into()),
                }],
            }),
        }),
        Outcome::Zombie(reaper()),
        Outcome::Failed("x".into()),
    ];
    for outcome in &all {
        match outcome {
            Outcome::Ended(..)
            | Outcome::Survived(..)
            | Outcome::Gone
            | Outcome::Changed(_)
            | Outcome::Protected(_)
            | Outcome::Denied(_)
            | Outcome::Unclear(_)
            | Outcome::Uninterruptible(_)
            | Outcome::Zombie(_)
            | Outcome::Failed(_) => {}
        }
    }
    all
}

pub(super) fn reset_request() -> ResetRequest {
    ResetRequest {
        gpu: Some("0".into()),
        force: true,
        signal_timeout_ms: 5_000,
        dry_run: true,
    }
}

fn blocker() -> Blocker {
    Blocker {
        process: Some(KEY),
        what: "alice's python train.py".into(),
        remedy: Unblocker::Force,
    }
}

pub(super) fn reset_plan() -> ResetPlan {
    ResetPlan {
        at: Timestamp(1_763_700_000_000),
        request: reset_request(),
        devices: vec![ResetTarget {
            device: device(),
            index: 3,
            name: Reading::Value("H100".into()),
            vendor: Vendor::Nvidia,
            pci: Reading::Value("0000:1b:00.0".into()),
            blockers: vec![blocker()],
            peers: vec![4, 5],
            notes: vec!["it shares links".into()],
            action: PlannedReset::Blocked,
        }],
    }
}

pub(super) fn reset_report() -> ResetReport {
    ResetReport {
        version: 300,
        stage: Stage::Ending,
        outcomes: vec![ResetOutcome {
            device: device(),
            index: 3,
            ended: Some(kill_report()),
            result: ResetResult::Reset(1_500),
            note: Some("persistence mode is off".into()),
        }],
        unrecorded: Some("the disk is full".into()),
    }
}

pub(super) fn planned_resets() -> Vec<PlannedReset> {
    let all = vec![
        PlannedReset::Reset,
        PlannedReset::Blocked,
        PlannedReset::Unsupported("x".into()),
    ];
    for action in &all {
        match action {
            PlannedReset::Reset | PlannedReset::Blocked | PlannedReset::Unsupported(_) => {}
        }
    }
    all
}

pub(super) fn reset_results() -> Vec<ResetResult> {
    let all = vec![
        ResetResult::Reset(300),
        ResetResult::Blocked(vec![blocker()]),
        ResetResult::Unsupported("x".into()),
        ResetResult::Failed("x".into()),
        ResetResult::Unreachable("x".into()),
    ];
    for outcome in &all {
        match outcome {
            ResetResult::Reset(_)
            | ResetResult::Blocked(_)
            | ResetResult::Unsupported(_)
            | ResetResult::Failed(_)
            | ResetResult::Unreachable(_) => {}
        }
    }
    all
}
