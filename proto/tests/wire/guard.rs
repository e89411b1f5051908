//! Samples of the guard's answers and rules.

mod replays;

pub(super) use replays::{replay_report, requests};

use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};
use gpukill_proto::guard::{
    AffectedViolation, AppliedLimit, EditReport, EnforcementOutcome, Evidence, EvidenceProcess,
    GuardAction, GuardMode, GuardRecord, GuardReport, GuardStep, GuardSummary, Measurement,
    MilderPolicy, OpenViolation, OwnWarning, OwnedJob, Person, ProcessContext, ProcessGuardStatus,
    RuleCounts, RuleKind, RuleName, RuleSource, RulesDoubt, RulesRevision, RulesText, RunKey,
    SnoozedRule, UnfinishedEnd, Victim, ViolationMark, ViolationPage, ViolationQuery,
    ViolationSubject, WarnedOwner,
};
use gpukill_proto::model::{DeviceId, InstanceId, NetworkRole};
use gpukill_proto::rogue::Threat;
use gpukill_proto::units::Timestamp;

const AT: Timestamp = Timestamp(1_763_700_000_000);

const KINDS: [RuleKind; 20] = [
    RuleKind::Memory,
    RuleKind::Utilization,
    RuleKind::Duration,
    RuleKind::Processes,
    RuleKind::TotalMemory,
    RuleKind::TotalUtilization,
    RuleKind::TotalProcesses,
    RuleKind::ProcessMemory,
    RuleKind::GpuUtilization,
    RuleKind::ReservedMemory,
    RuleKind::Gpu,
    RuleKind::User,
    RuleKind::Process,
    RuleKind::Maintenance,
    RuleKind::Hours,
    RuleKind::Idle,
    RuleKind::Waste,
    RuleKind::Runaway,
    RuleKind::Growth,
    RuleKind::Rogue,
];

fn sources() -> [RuleSource; 6] {
    let name = || "a".to_owned();
    [
        RuleSource::Default,
        RuleSource::User(name()),
        RuleSource::Group(name()),
        RuleSource::Gpu(name()),
        RuleSource::Time(name()),
        RuleSource::Rule(name()),
    ]
}

fn device() -> DeviceId {
    DeviceId("GPU-0".into())
}

fn person() -> Person {
    Person {
        name: "alice".into(),
        uid: Some(1000),
    }
}

fn run() -> RunKey {
    RunKey {
        pid: 70_000,
        start_ticks: 300,
        device: device(),
        instance: Some(InstanceId { gpu: 2, compute: 0 }),
    }
}

fn job() -> OwnedJob {
    OwnedJob {
        owner: person(),
        id: "tree 7 300".into(),
        shown: "tree 7".into(),
    }
}

fn subjects() -> [ViolationSubject; 7] {
    [
        ViolationSubject::Person(person()),
        ViolationSubject::PersonOn(person(), device()),
        ViolationSubject::Group("ml".into()),
        ViolationSubject::GroupOn("ml".into(), device()),
        ViolationSubject::Device(device()),
        ViolationSubject::Job(job()),
        ViolationSubject::Run(run()),
    ]
}

fn evidence_process() -> EvidenceProcess {
    EvidenceProcess {
        run: run(),
        gpu_index: 3,
        owner: Some(person()),
        name: Some("python".into()),
        memory: Some(1 << 36),
        utilization: Some(7),
        job: None,
        context: ProcessContext {
            unit: Some("vllm.service".into()),
            image: Some("vllm/vllm-openai".into()),
            network_role: Some(NetworkRole::Service(vec![8000])),
            clients: Some(2),
        },
    }
}

fn evidence() -> Evidence {
    Evidence {
        measured: Some(Measurement {
            value: 1 << 36,
            limit: 300,
        }),
        since: AT,
        runs: vec![evidence_process()],
        count: 70_000,
        unknown: 1,
        threat: Some(Threat::SuspiciousProcess),
        is_service_only_warned: true,
    }
}

fn steps() -> [GuardStep; 10] {
    [
        GuardStep::Violated,
        GuardStep::Warned {
            times: 1,
            deadline: Some(AT),
        },
        GuardStep::Ended(Victim {
            job: job(),
            priority: 5,
            runs: vec![evidence_process()],
            count: 1,
            is_busy: Some(false),
            leave_to: Some("scancel 12".into()),
        }),
        GuardStep::Exempt("all are protected".into()),
        GuardStep::Over,
        GuardStep::Snoozed {
            by: 1001,
            owner: 1000,
            until: AT,
            left: 1,
        },
        GuardStep::SnoozeVoided {
            owner: 1000,
            until: AT,
        },
        GuardStep::Doubted(doubt()),
        GuardStep::Outcome(EnforcementOutcome {
            job: job(),
            ended: 3,
            left: 1,
            why: Some("process 7 goes on".into()),
        }),
        GuardStep::Tripped { ended: 5 },
    ]
}

/// Each rule, subject, mode and step occurs at least once.
fn records() -> Vec<GuardRecord> {
    let modes = [
        GuardMode::Disabled,
        GuardMode::DryRun,
        GuardMode::Soft,
        GuardMode::Enforce,
    ];
    let (sources, subjects, steps) = (sources(), subjects(), steps());
    let records = KINDS.iter().enumerate().map(|(at, kind)| GuardRecord {
        at: AT,
        rule: RuleName {
            source: sources[at % sources.len()].clone(),
            kind: *kind,
        },
        subject: subjects[at % subjects.len()].clone(),
        mode: modes[at % modes.len()],
        step: steps[at % steps.len()].clone(),
        evidence: evidence(),
        message: Some("ask first".into()),
    });
    records.collect()
}

fn open_violations() -> Vec<OpenViolation> {
    let open = |action| OpenViolation {
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        subject: ViolationSubject::Job(job()),
        mode: GuardMode::Soft,
        action,
        violated_at: AT,
        warned_at: Some(AT),
        warnings: 1,
        deadline: Some(AT),
        readers: vec![WarnedOwner {
            uid: 1000,
            deadline: AT,
            snoozes_left: 1,
        }],
        own_policy: Some(MilderPolicy::DryRun),
        snoozed_until: Some(AT),
        not_broken_since: Some(AT),
        ended_at: None,
        unfinished_end: Some(UnfinishedEnd::Survived(AT)),
        evidence: evidence(),
        message: None,
    };
    [GuardAction::Warn, GuardAction::Terminate]
        .map(open)
        .to_vec()
}

pub(super) fn guard_summary() -> GuardSummary {
    GuardSummary {
        mode: GuardMode::Soft,
        is_stopped: true,
        has_rules: true,
        open: 1,
        would_have_ended: 300,
        marks: vec![ViolationMark {
            run: run(),
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            measured: evidence().measured,
            mode: GuardMode::DryRun,
            deadline: None,
            would_have_ended_at: Some(AT),
            is_sole: true,
            can_snooze: true,
        }],
        own_warnings: vec![OwnWarning {
            pid: 300,
            rule: RuleName {
                source: RuleSource::Rule("waste".into()),
                kind: RuleKind::Waste,
            },
            measured: None,
            is_sole: true,
            message: Some("ask for less".into()),
        }],
    }
}

pub(super) fn process_guard_status() -> ProcessGuardStatus {
    let rule = |source| RuleName {
        source,
        kind: RuleKind::Memory,
    };
    ProcessGuardStatus {
        mode: GuardMode::DryRun,
        is_stopped: true,
        violations: open_violations(),
        would_have_ended: open_violations(),
        protected: Some("protect.users names its owner".into()),
        limits: vec![AppliedLimit {
            rule: rule(RuleSource::User("alice".into())),
            limit: Some(1 << 36),
            replaces: vec![(rule(RuleSource::Default), 300)],
        }],
    }
}

pub(super) fn snoozed_rules() -> Vec<SnoozedRule> {
    vec![SnoozedRule {
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        mode: GuardMode::Soft,
        until: AT,
        left: 1,
    }]
}

const fn doubt() -> RulesDoubt {
    RulesDoubt {
        since: AT,
        people: 5,
        of: 8,
        only_warn: true,
    }
}

pub(super) fn report() -> GuardReport {
    GuardReport {
        mode: GuardMode::DryRun,
        armed_mode: GuardMode::Soft,
        rules: RuleCounts {
            defaults: 1,
            users: 1,
            groups: 1,
            gpus: 1,
            times: 1,
            rules: 1,
        },
        file: "/etc/gpukill/guard.toml".into(),
        revision: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
        mistakes: vec!["line 3: x".into()],
        is_file_changed: Some(true),
        evaluated_at: Some(AT),
        dropped: 300,
        overflow: 70_000,
        tripped_at: Some(AT),
        doubt: Some(doubt()),
        open: 1,
        would_have_ended: 300,
        warned_today: 2,
        ended_today: 3,
        simulated_warned_today: 300,
        simulated_ended_today: 301,
        is_trip_simulated: true,
        idle_services: Vec::new(),
    }
}

pub(super) fn query() -> ViolationQuery {
    ViolationQuery {
        since: Timestamp(-1),
        until: AT,
        user: Some("alice".into()),
        before: Some(300),
        limit: 1000,
    }
}

pub(super) fn page() -> ViolationPage {
    ViolationPage {
        open: open_violations(),
        would_have_ended: open_violations(),
        records: (1..).zip(records()).collect(),
        next: Some(300),
    }
}

pub(super) fn edits() -> Vec<GuardEdit> {
    let set = |kind| GuardEdit::SetPolicy {
        kind,
        name: "alice".into(),
        fields: vec![("memory_limit_gb".into(), "8".into())],
    };
    let mut edits: Vec<GuardEdit> = PolicyKind::ALL.map(set).to_vec();
    edits.extend([
        GuardEdit::RemovePolicy {
            kind: PolicyKind::Gpu,
            name: "0".into(),
        },
        GuardEdit::SetKey {
            path: "enforcement.grace".into(),
            value: "5m".into(),
        },
        GuardEdit::SetMode(GuardMode::Soft),
        GuardEdit::ToggleDryRun,
        GuardEdit::Replace("[global]\n".into()),
    ]);
    edits
}

pub(super) fn edit_report() -> EditReport {
    EditReport {
        before: None,
        after: RulesRevision("59cf2a0d5c1a36ab".into()),
        difference: "+a\n".into(),
        warnings: vec!["odd".into()],
        affected: Some(vec![AffectedViolation {
            open: open_violations().swap_remove(0),
            exempt: Some("protected".into()),
        }]),
    }
}

pub(super) fn text() -> RulesText {
    RulesText {
        file: "/etc/gpukill/guard.toml".into(),
        revision: None,
        part: vec![1, 2, 255],
    }
}
