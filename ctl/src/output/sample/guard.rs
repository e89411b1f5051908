//! What the guard found on the same box: bob's notebook is idle, dana's jobs hold too
//! much, frank is where he may not be.

mod hostile;
mod records;
mod replayed;
mod written;

pub(crate) use hostile::hostile;
pub(crate) use replayed::replayed;
pub(crate) use written::{edited, mistakes, warnings};

use super::{NOW, gib, id};
use gpukill_proto::guard::{
    Acted, Evidence, GuardAction, GuardBrief, GuardMode, GuardRecord, GuardReport, GuardStep,
    HeldTo, JudgedAs, JudgedJob, JudgedRun, Marked, Measured, OpenViolation, Person,
    ProcessContext, Reader, RuleCounts, RuleKind, RuleName, RuleSource, Ruled, RulesDoubt,
    RulesRevision, Subject, Told, Victim, ViolationPage,
};
use gpukill_proto::snapshot::InstanceId;
use gpukill_proto::units::Timestamp;

const HOUR: u64 = 3_600_000;

fn person(name: &str, uid: u32) -> Person {
    Person {
        name: name.into(),
        uid: Some(uid),
    }
}

fn rule(source: RuleSource, kind: RuleKind) -> RuleName {
    RuleName { source, kind }
}

fn told(index: u32, pid: u32, owner: Person, name: &str, tenths: u64, job: &str) -> Told {
    Told {
        run: JudgedRun {
            pid,
            start_ticks: u64::from(pid) * 100,
            device: id(index),
            instance: None,
        },
        gpu_index: index,
        owner: Some(owner),
        name: Some(name.into()),
        memory: Some(gib(tenths).0),
        utilization: Some(0),
        job: Some(job.into()),
        context: ProcessContext::default(),
    }
}

fn job(owner: Person, shown: &str) -> JudgedJob {
    JudgedJob {
        owner,
        id: shown.into(),
        shown: shown.into(),
    }
}

fn ago(seconds: i64) -> Timestamp {
    NOW.plus_seconds(-seconds)
}

/// Bob's notebook has done nothing for hours.
fn idle() -> OpenViolation {
    let notebook = told(
        5,
        51_002,
        person("bob", 1001),
        "python",
        483,
        "session-3.scope",
    );
    OpenViolation {
        rule: rule(RuleSource::Default, RuleKind::Idle),
        subject: Subject::Job(job(person("bob", 1001), "session-3.scope")),
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: ago(26_731),
        warned_at: Some(ago(26_731)),
        warnings: 2,
        deadline: Some(NOW.plus_seconds(2_069)),
        readers: vec![Reader {
            uid: 1001,
            deadline: NOW.plus_seconds(2_069),
            snoozes_left: 1,
        }],
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: Some(Measured {
                value: 9 * HOUR + HOUR / 2,
                limit: 2 * HOUR,
            }),
            since: ago(34_200),
            runs: vec![notebook],
            count: 1,
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        message: Some("please close notebooks that you do not use".into()),
    }
}

/// Dana's servers and a job of hers hold more than she may.
fn too_much() -> OpenViolation {
    let worker = |pid| told(1, pid, person("dana", 1002), "vllm", 33, "docker/vllm");
    let mut runs: Vec<Told> = (60_001..60_013).map(worker).collect();
    runs.push(told(
        4,
        61_000,
        person("dana", 1002),
        "python",
        110,
        "tree 61000",
    ));
    OpenViolation {
        rule: rule(RuleSource::User("dana".into()), RuleKind::Memory),
        subject: Subject::Person(person("dana", 1002)),
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: ago(240),
        warned_at: Some(ago(240)),
        warnings: 1,
        deadline: Some(NOW.plus_seconds(60)),
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: Some(Measured {
                value: gib(506).0,
                limit: 40 << 30,
            }),
            since: ago(250),
            count: 13,
            runs,
            unknown: 1,
            threat: None,
            is_spared_service: false,
        },
        message: None,
    }
}

/// Frank's rootless container is on a part of a GPU that he may not use; whoever does
/// so is told, and no more.
fn not_allowed() -> OpenViolation {
    let mut notebook = told(8, 71_001, person("frank", 1004), "python", 60, "podman/9f");
    notebook.run.instance = Some(InstanceId { gpu: 2, compute: 0 });
    notebook.memory = None;
    notebook.utilization = None;
    OpenViolation {
        rule: rule(RuleSource::Gpu("8".into()), RuleKind::User),
        subject: Subject::Run(notebook.run.clone()),
        mode: GuardMode::Soft,
        action: GuardAction::Warn,
        violated_at: ago(86_400),
        warned_at: Some(ago(86_400)),
        warnings: 3,
        deadline: None,
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: None,
            since: ago(86_410),
            runs: vec![notebook],
            count: 1,
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        message: None,
    }
}

/// Erin's session would have been ended before lunch.
fn gone() -> OpenViolation {
    let erin = || person("erin", 1003);
    let program = told(2, 777, erin(), "python", 310, "session-4.scope");
    OpenViolation {
        subject: Subject::Job(job(erin(), "session-4.scope")),
        violated_at: ago(9_000),
        warned_at: Some(ago(9_000)),
        deadline: Some(ago(5_400)),
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: Some(ago(5_400)),
        evidence: Evidence {
            measured: Some(Measured {
                value: 2 * HOUR + HOUR / 2,
                limit: 2 * HOUR,
            }),
            since: ago(14_400),
            runs: vec![program],
            count: 1,
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        ..idle()
    }
}

/// What `list` shows of it.
pub(crate) fn brief() -> GuardBrief {
    let open = [idle(), too_much(), not_allowed()];
    let gone = gone();
    let marks = Marked::all_of_simulated(&gone);
    let marked = open.iter().flat_map(Marked::all_of).chain(marks);
    GuardBrief {
        mode: GuardMode::DryRun,
        is_stopped: false,
        has_rules: true,
        open: 3,
        would_have_ended: 1,
        marked: marked.collect(),
        own_warnings: Vec::new(),
    }
}

/// What `explain` shows of bob's notebook.
pub(crate) fn ruled() -> Ruled {
    let memory = |source| rule(source, RuleKind::Memory);
    Ruled {
        mode: GuardMode::DryRun,
        is_stopped: false,
        violations: vec![idle()],
        would_have_ended: Vec::new(),
        protected: None,
        limits: vec![
            HeldTo {
                rule: memory(RuleSource::User("bob".into())),
                limit: Some(40 << 30),
                replaces: vec![
                    (memory(RuleSource::Group("ml".into())), 80 << 30),
                    (memory(RuleSource::Default), 20 << 30),
                ],
            },
            HeldTo {
                rule: rule(RuleSource::Group("guests".into()), RuleKind::Processes),
                limit: None,
                replaces: Vec::new(),
            },
            HeldTo {
                rule: rule(RuleSource::Default, RuleKind::Idle),
                limit: Some(2 * HOUR),
                replaces: Vec::new(),
            },
            HeldTo {
                rule: rule(RuleSource::Group("ml".into()), RuleKind::TotalUtilization),
                limit: Some(90),
                replaces: Vec::new(),
            },
        ],
        judged_as: JudgedAs::Owner,
    }
}

/// How it stands, with a file that has mistakes.
pub(crate) fn guard_report() -> GuardReport {
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
        file: "/etc/gpukill/rules/guard.toml".into(),
        revision: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
        mistakes: mistakes().iter().map(ToString::to_string).collect(),
        is_file_changed: Some(false),
        judged_at: Some(ago(4)),
        dropped: 2,
        beyond: 12,
        tripped_at: None,
        doubt: None,
        open: 3,
        would_have_ended: 1,
        warned_today: 0,
        ended_today: 0,
        simulated_warned_today: 5,
        simulated_ended_today: 2,
        is_trip_simulated: true,
        idle_services: Vec::new(),
    }
}

fn victim(busy: Option<bool>, leave_to: Option<&str>) -> Victim {
    let dana = || person("dana", 1002);
    Victim {
        job: job(dana(), "tree 61000"),
        priority: 5,
        runs: vec![told(4, 61_000, dana(), "python", 110, "tree 61000")],
        count: 4,
        is_busy: busy,
        leave_to: leave_to.map(str::to_owned),
    }
}

fn step(open: &OpenViolation, seconds: i64, step: GuardStep) -> GuardRecord {
    GuardRecord {
        at: ago(seconds),
        rule: open.rule.clone(),
        subject: open.subject.clone(),
        mode: open.mode,
        step,
        evidence: open.evidence.clone(),
        message: open.message.clone(),
    }
}

/// What goes on and what was decided.
pub(crate) fn violations() -> ViolationPage {
    ViolationPage {
        open: vec![idle(), too_much(), not_allowed(), gone()],
        would_have_ended: vec![gone()],
        records: (1..).zip(records::records()).collect(),
        next: None,
    }
}
