//! What is said of the guard, and its rules.

mod replays;

pub(super) use replays::{replayed, requests};

use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};
use gpukill_proto::guard::{
    Acted, EditReport, Evidence, GuardAction, GuardBrief, GuardMode, GuardRecord, GuardReport,
    GuardStep, HeldTo, JudgedAs, JudgedJob, JudgedRun, Marked, Measured, Milder, OpenViolation,
    OwnWarning, Person, ProcessContext, Reader, RuleCounts, RuleKind, RuleName, RuleSource, Ruled,
    RulesDoubt, RulesRevision, RulesText, Snoozed, Subject, Told, Victim, ViolationPage,
    ViolationQuery,
};
use gpukill_proto::rogue::Threat;
use gpukill_proto::snapshot::{DeviceId, InstanceId, NetworkRole};
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

fn run() -> JudgedRun {
    JudgedRun {
        pid: 70_000,
        start_ticks: 300,
        device: device(),
        instance: Some(InstanceId { gpu: 2, compute: 0 }),
    }
}

fn job() -> JudgedJob {
    JudgedJob {
        owner: person(),
        id: "tree 7 300".into(),
        shown: "tree 7".into(),
    }
}

fn subjects() -> [Subject; 7] {
    [
        Subject::Person(person()),
        Subject::PersonOn(person(), device()),
        Subject::Group("ml".into()),
        Subject::GroupOn("ml".into(), device()),
        Subject::Device(device()),
        Subject::Job(job()),
        Subject::Run(run()),
    ]
}

fn told() -> Told {
    Told {
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
        measured: Some(Measured {
            value: 1 << 36,
            limit: 300,
        }),
        since: AT,
        runs: vec![told()],
        count: 70_000,
        unknown: 1,
        threat: Some(Threat::SuspiciousProcess),
        is_spared_service: true,
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
            runs: vec![told()],
            count: 1,
            is_busy: Some(false),
            leave_to: Some("scancel 12".into()),
        }),
        GuardStep::Spared("all are protected".into()),
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
        GuardStep::Acted(Acted {
            job: job(),
            ended: 3,
            left: 1,
            why: Some("process 7 goes on".into()),
        }),
        GuardStep::Tripped { ended: 5 },
    ]
}

/// Each rule, subject, mode and step at least once.
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

fn open() -> Vec<OpenViolation> {
    let open = |action| OpenViolation {
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        subject: Subject::Job(job()),
        mode: GuardMode::Soft,
        action,
        violated_at: AT,
        warned_at: Some(AT),
        warnings: 1,
        deadline: Some(AT),
        readers: vec![Reader {
            uid: 1000,
            deadline: AT,
            snoozes_left: 1,
        }],
        own_policy: Some(Milder::Rehearsed),
        snoozed_until: Some(AT),
        not_broken_since: Some(AT),
        ended_at: None,
        evidence: evidence(),
        message: None,
    };
    [GuardAction::Warn, GuardAction::Terminate]
        .map(open)
        .to_vec()
}

pub(super) fn brief() -> GuardBrief {
    GuardBrief {
        mode: GuardMode::Soft,
        is_stopped: true,
        has_rules: true,
        open: 1,
        would_have_ended: 300,
        marked: vec![Marked {
            run: run(),
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
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
            is_sole: true,
            message: Some("ask for less".into()),
        }],
    }
}

pub(super) fn ruled() -> Ruled {
    let rule = |source| RuleName {
        source,
        kind: RuleKind::Memory,
    };
    Ruled {
        mode: GuardMode::DryRun,
        is_stopped: true,
        violations: open(),
        would_have_ended: open(),
        protected: Some("protect.users names its owner".into()),
        limits: vec![HeldTo {
            rule: rule(RuleSource::User("alice".into())),
            limit: Some(1 << 36),
            replaces: vec![(rule(RuleSource::Default), 300)],
        }],
        judged_as: JudgedAs::Login(job().owner),
    }
}

pub(super) fn snoozed() -> Vec<Snoozed> {
    vec![Snoozed {
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
        rehearses: GuardMode::Soft,
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
        judged_at: Some(AT),
        dropped: 300,
        beyond: 70_000,
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
        open: open(),
        would_have_ended: open(),
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

pub(super) fn edited() -> EditReport {
    EditReport {
        before: None,
        after: RulesRevision("59cf2a0d5c1a36ab".into()),
        difference: "+a\n".into(),
        warnings: vec!["odd".into()],
    }
}

pub(super) fn text() -> RulesText {
    RulesText {
        file: "/etc/gpukill/guard.toml".into(),
        revision: None,
        part: vec![1, 2, 255],
    }
}
