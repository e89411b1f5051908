//! The documents of a violation and a replay.

use crate::audit::Gap;
use crate::guard::{
    AppliedLimit, EnforcementOutcome, Evidence, EvidenceProcess, GuardAction, GuardMode,
    GuardRecord, GuardStep, GuardSummary, Measurement, OpenViolation, OwnedJob, Person,
    ProcessContext, ProcessGuardStatus, ReplayReport, RuleKind, RuleName, RuleOutcome, RuleSource,
    RunKey, UnevaluatedTime, Victim, ViolationMark, ViolationPage, ViolationSubject,
};
use crate::json::{ReplayDocument, ViolationsDocument};
use crate::model::DeviceId;
use crate::units::Timestamp;
use serde_json::Value as Json;

fn person() -> Person {
    Person {
        name: "alice".into(),
        uid: Some(1000),
    }
}

fn rule() -> RuleName {
    RuleName {
        source: RuleSource::User("alice".into()),
        kind: RuleKind::Memory,
    }
}

fn evidence() -> Evidence {
    Evidence {
        measured: Some(Measurement {
            value: 61 << 30,
            limit: 40 << 30,
        }),
        since: Timestamp(0),
        runs: vec![EvidenceProcess {
            run: RunKey {
                pid: 48_213,
                start_ticks: 9_000,
                device: DeviceId("GPU-0".into()),
                instance: Some(super::super::INSTANCE),
            },
            gpu_index: 0,
            owner: Some(person()),
            name: Some("python".into()),
            memory: Some(61 << 30),
            utilization: None,
            job: None,
            context: ProcessContext::default(),
        }],
        count: 1,
        unknown: 0,
        threat: None,
        is_service_only_warned: false,
    }
}

fn record() -> GuardRecord {
    GuardRecord {
        at: Timestamp(60_000),
        rule: rule(),
        subject: ViolationSubject::Person(person()),
        mode: GuardMode::DryRun,
        step: GuardStep::Ended(Victim {
            job: OwnedJob {
                owner: person(),
                id: "tree 48213 7".into(),
                shown: "tree 48213".into(),
            },
            priority: 5,
            runs: evidence().runs,
            count: 1,
            is_busy: Some(true),
            leave_to: None,
        }),
        evidence: evidence(),
        message: None,
    }
}

fn open_violation() -> OpenViolation {
    OpenViolation {
        rule: rule(),
        subject: ViolationSubject::Person(person()),
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: Timestamp(0),
        warned_at: None,
        warnings: 0,
        deadline: Some(Timestamp(600_000)),
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        unfinished_end: None,
        evidence: evidence(),
        message: None,
    }
}

/// The same violation in `list`.
pub(in super::super) fn guard_summary() -> GuardSummary {
    GuardSummary {
        mode: GuardMode::DryRun,
        is_stopped: false,
        has_rules: true,
        open: 1,
        would_have_ended: 0,
        marks: ViolationMark::from_violation(&open_violation()),
        own_warnings: Vec::new(),
    }
}

/// The same violation in `explain`.
pub(in super::super) fn process_guard_status() -> ProcessGuardStatus {
    let default = RuleName {
        source: RuleSource::Default,
        ..rule()
    };
    ProcessGuardStatus {
        mode: GuardMode::DryRun,
        is_stopped: false,
        violations: vec![open_violation()],
        would_have_ended: vec![open_violation()],
        protected: Some("protect.users names its owner".into()),
        limits: vec![AppliedLimit {
            rule: rule(),
            limit: Some(40 << 30),
            replaces: vec![(default, 8 << 30)],
        }],
    }
}

pub(in super::super) fn violations() -> Json {
    let page = ViolationPage {
        open: vec![open_violation()],
        would_have_ended: vec![open_violation()],
        records: vec![(1, record())],
        next: None,
    };
    serde_json::to_value(ViolationsDocument::from(&page)).unwrap()
}

pub(super) fn replay() -> Json {
    let report = ReplayReport {
        since: Timestamp(0),
        until: Timestamp(3_600_000),
        evaluated: 360,
        samples_since: None,
        people: 1,
        runs: 1,
        rules: 1,
        outcomes: vec![RuleOutcome {
            rule: rule(),
            violated: 1,
            warned: 1,
            ended: 1,
            ended_busy: 1,
            left: 0,
            services: 2,
            freed_ms: 5_400_000,
        }],
        records: vec![record()],
        more_records: 0,
        open: Vec::new(),
        gaps: vec![Gap {
            from: Timestamp(0),
            until: Timestamp(60_000),
        }],
        not_evaluated: vec![UnevaluatedTime {
            rule: Some(rule()),
            why: "its memory is not known".into(),
            subject: ViolationSubject::Group("ml".into()),
            subjects: 1,
            for_ms: 61_000,
        }],
    };
    serde_json::to_value(ReplayDocument::from(&report)).unwrap()
}

#[test]
fn record_names_the_victim_and_rule() {
    let violations = violations();
    let record = &violations["records"][0];
    let actual = ["id", "rule", "step", "mode", "owner_uid"].map(|field| record[field].clone());
    let expected = serde_json::json!([1, "user alice: memory", "ended", "dry-run", 1000]);
    assert_eq!(Json::from(actual.to_vec()), expected);
    assert_eq!(record["victim"]["procs"][0]["pid"], 48_213);
    assert_eq!(replay()["outcomes"][0]["freed_gpu_hours"], 1.5);
}

#[test]
fn decision_tells_a_dry_run_and_an_outcome() {
    use GuardMode::{DryRun, Enforce};
    let victim = |leave_to: Option<&str>| {
        let mut victim = record().step.victim().unwrap().clone();
        victim.leave_to = leave_to.map(str::to_owned);
        GuardStep::Ended(victim)
    };
    let outcome = |ended, left| {
        GuardStep::Outcome(EnforcementOutcome {
            job: record().step.victim().unwrap().job.clone(),
            ended,
            left,
            why: None,
        })
    };
    let warned = GuardStep::Warned {
        times: 1,
        deadline: None,
    };
    for (mode, step, expected) in [
        (Enforce, GuardStep::Violated, "violated"),
        (DryRun, warned.clone(), "would_warn"),
        (Enforce, warned, "warned"),
        (DryRun, victim(None), "would_end"),
        (Enforce, victim(None), "selected"),
        (DryRun, victim(Some("scancel 7")), "left_to_scheduler"),
        (Enforce, victim(Some("scancel 7")), "left_to_scheduler"),
        (Enforce, outcome(2, 0), "ended"),
        (Enforce, outcome(2, 1), "failed"),
        (Enforce, outcome(0, 1), "failed"),
        (Enforce, outcome(0, 0), "gone"),
        (Enforce, GuardStep::Over, "over"),
    ] {
        let record = GuardRecord {
            mode,
            step,
            ..record()
        };
        assert_eq!(record.decision(), expected, "{:?}", record.step);
        assert!(GuardRecord::DECISIONS.contains(&expected), "{expected}");
    }
}
