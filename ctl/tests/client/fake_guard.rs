//! The decisions of the fake daemon's guard: 2500 records, all of alice.

use crate::fake_daemon::NOW;
use gpukill_proto::guard::{
    Evidence, GuardMode, GuardRecord, GuardReport, GuardStep, Person, RuleCounts, RuleKind,
    RuleName, RuleSource, ViolationPage, ViolationQuery, ViolationSubject,
};

/// One page. Records that the caller may not see leave pages without records that are not the
/// last.
pub(crate) fn page(query: &ViolationQuery) -> ViolationPage {
    let newest = query.before.unwrap_or(2501) - 1;
    let count = newest.min(query.limit.min(1_000).into());
    let ids = (0..count).map(|back| newest - back);
    let are_hers = query.user.as_deref().is_none_or(|user| user == "alice");
    let records = ids.filter(|_| are_hers).map(|id| (id, record()));
    let next = newest + 1 - count;
    ViolationPage {
        open: Vec::new(),
        would_have_ended: Vec::new(),
        records: records.collect(),
        next: (next > 1).then_some(next),
    }
}

fn record() -> GuardRecord {
    GuardRecord {
        at: NOW,
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Memory,
        },
        subject: ViolationSubject::Person(Person {
            name: "alice".into(),
            uid: Some(1000),
        }),
        mode: GuardMode::DryRun,
        step: GuardStep::Violated,
        evidence: Evidence {
            measured: None,
            since: NOW,
            runs: Vec::new(),
            count: 1,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

/// The status of the guard: no file, dry run.
pub(crate) fn guard_report() -> GuardReport {
    GuardReport {
        mode: GuardMode::DryRun,
        armed_mode: GuardMode::Soft,
        rules: RuleCounts::default(),
        file: "/etc/gpukill/rules/guard.toml".into(),
        revision: None,
        mistakes: Vec::new(),
        is_file_changed: Some(false),
        evaluated_at: None,
        dropped: 0,
        overflow: 0,
        tripped_at: None,
        doubt: None,
        open: 0,
        would_have_ended: 0,
        warned_today: 0,
        ended_today: 0,
        simulated_warned_today: 0,
        simulated_ended_today: 0,
        is_trip_simulated: false,
        idle_services: Vec::new(),
    }
}
