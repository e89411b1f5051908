//! What the guard of the stand-in decided: 2500 records, all of which are alice's.

use crate::daemon::NOW;
use gpukill_proto::guard::{
    Evidence, GuardMode, GuardRecord, GuardReport, GuardStep, Person, RuleCounts, RuleKind,
    RuleName, RuleSource, Subject, ViolationPage, ViolationQuery,
};

/// One page. Those of whom nothing may be seen leave pages without a record, behind
/// which there are others.
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
        subject: Subject::Person(Person {
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
            is_spared_service: false,
        },
        message: None,
    }
}

/// How the guard stands: without a file, in a dry run.
pub(crate) fn standing() -> GuardReport {
    GuardReport {
        mode: GuardMode::DryRun,
        rehearses: GuardMode::Soft,
        rules: RuleCounts::default(),
        file: "/etc/gpukill/rules/guard.toml".into(),
        revision: None,
        mistakes: Vec::new(),
        is_file_changed: Some(false),
        judged_at: None,
        dropped: 0,
        beyond: 0,
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
