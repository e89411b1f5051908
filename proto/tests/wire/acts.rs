//! Kills and resets, with something in every field.

use super::sample::{scheduler_job, unit};
use gpukill_proto::kill::{
    Ending, Fate, FuseMount, FuseServer, KillHold, KillOutcome, KillPlan, KillPlanPage, KillReport,
    KillReportPage, KillRequest, KillRest, KillScope, KillSelector, KillSignal, KillTarget,
    MemoryReturn, PlanId, Reaper, Respawn, Stage, Stuck,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetRequest,
    ResetTarget, Unblock,
};
use gpukill_proto::snapshot::{DeviceId, Job, ProcessKey, Vendor};
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
        patience_ms: 5_000,
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
                holds: vec![KillHold {
                    device: device(),
                    index: 3,
                    memory: Reading::Value(Bytes(60 << 30)),
                }],
                named: true,
                job: Reading::Value(job()),
                fate: Fate::End(vec![KillSignal::Terminate, KillSignal::Kill]),
                overridden: None,
            }],
            unjudged: 2,
            rest: vec![KillRest {
                pid: 48_213,
                job: job(),
                others: 4,
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
        stage: Stage::Releasing,
        outcomes: vec![KillOutcome {
            key: KEY,
            name: "python".into(),
            command: Reading::Withheld,
            ending: Ending::Ended(KillSignal::Terminate, 1_200),
        }],
        memory: vec![MemoryReturn {
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
    Stage::Releasing,
    Stage::Done,
    Stage::Interrupted,
];

pub(super) const UNBLOCKS: [Unblock; 3] = [Unblock::Daemon, Unblock::Force, Unblock::Person];

/// As in `main.rs`: a new variant does not compile until it has its sample.
#[expect(dead_code, reason = "it is only compiled")]
fn all_are_sampled(scope: KillScope, signal: KillSignal, stage: Stage, unblock: Unblock) {
    match scope {
        KillScope::Process | KillScope::Tree | KillScope::Job | KillScope::Container => {}
    }
    match signal {
        KillSignal::Interrupt | KillSignal::Terminate | KillSignal::Kill => {}
    }
    match stage {
        Stage::Ending | Stage::Releasing | Stage::Done | Stage::Interrupted => {}
    }
    match unblock {
        Unblock::Daemon | Unblock::Force | Unblock::Person => {}
    }
}

pub(super) fn fates() -> Vec<Fate> {
    let all = vec![
        Fate::End(SIGNALS.to_vec()),
        Fate::Protected(gpukill_proto::kill::Protected::always("x")),
        Fate::Denied("alice".into()),
        Fate::Unclear("x".into()),
        Fate::Zombie(reaper()),
    ];
    for fate in &all {
        match fate {
            Fate::End(_)
            | Fate::Protected(_)
            | Fate::Denied(_)
            | Fate::Unclear(_)
            | Fate::Zombie(_) => {}
        }
    }
    all
}

pub(super) fn endings() -> Vec<Ending> {
    let all = vec![
        Ending::Ended(KillSignal::Kill, 300),
        Ending::Survived(KillSignal::Terminate, 5_000),
        Ending::Gone,
        Ending::Changed("x".into()),
        Ending::Protected("x".into()),
        Ending::Denied("alice".into()),
        Ending::Unclear("x".into()),
        Ending::Uninterruptible(Stuck {
            waits_on: Some("nv_wait".into()),
            fuse: Some(FuseMount {
                path: "/home/bob/data".into(),
                servers: vec![FuseServer {
                    pid: 4_711,
                    owner: Reading::Value("bob".into()),
                }],
            }),
        }),
        Ending::Zombie(reaper()),
        Ending::Failed("x".into()),
    ];
    for ending in &all {
        match ending {
            Ending::Ended(..)
            | Ending::Survived(..)
            | Ending::Gone
            | Ending::Changed(_)
            | Ending::Protected(_)
            | Ending::Denied(_)
            | Ending::Unclear(_)
            | Ending::Uninterruptible(_)
            | Ending::Zombie(_)
            | Ending::Failed(_) => {}
        }
    }
    all
}

pub(super) fn reset_request() -> ResetRequest {
    ResetRequest {
        gpu: Some("0".into()),
        force: true,
        patience_ms: 5_000,
        dry_run: true,
    }
}

fn blocker() -> Blocker {
    Blocker {
        process: Some(KEY),
        what: "alice's python train.py".into(),
        remedy: Unblock::Force,
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
            fate: ResetFate::Blocked,
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
            ending: ResetEnding::Reset(1_500),
            note: Some("persistence mode is off".into()),
        }],
        unrecorded: Some("the disk is full".into()),
    }
}

pub(super) fn reset_fates() -> Vec<ResetFate> {
    let all = vec![
        ResetFate::Reset,
        ResetFate::Blocked,
        ResetFate::Unsupported("x".into()),
    ];
    for fate in &all {
        match fate {
            ResetFate::Reset | ResetFate::Blocked | ResetFate::Unsupported(_) => {}
        }
    }
    all
}

pub(super) fn reset_endings() -> Vec<ResetEnding> {
    let all = vec![
        ResetEnding::Reset(300),
        ResetEnding::Blocked(vec![blocker()]),
        ResetEnding::Unsupported("x".into()),
        ResetEnding::Failed("x".into()),
        ResetEnding::Unreachable("x".into()),
    ];
    for ending in &all {
        match ending {
            ResetEnding::Reset(_)
            | ResetEnding::Blocked(_)
            | ResetEnding::Unsupported(_)
            | ResetEnding::Failed(_)
            | ResetEnding::Unreachable(_) => {}
        }
    }
    all
}
