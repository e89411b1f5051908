//! The replay of a week by these rules.

use super::{HOUR, ago, idle, rule, step, too_much, victim};
use crate::output::fixtures::NOW;
use gpukill_proto::audit::Gap;
use gpukill_proto::guard::{
    GuardStep, ReplayReport, RuleKind, RuleName, RuleOutcome, RuleSource, UnevaluatedTime,
};

/// What rules would have done in a week.
pub(crate) fn replayed() -> ReplayReport {
    let (idle, too_much) = (idle(), too_much());
    let warned = |times, deadline| GuardStep::Warned { times, deadline };
    // Another process than the one that the other rule ends.
    let mut notebook = victim(Some(false), None);
    for process in &mut notebook.runs {
        process.run.start_ticks += 1;
    }
    let outcome = |rule: &RuleName, ended, ended_busy, left, hours: u64| RuleOutcome {
        rule: rule.clone(),
        violated: ended + left + 12,
        warned: ended + left + 9,
        ended,
        ended_busy,
        left,
        services: 0,
        freed_ms: hours * HOUR,
    };
    ReplayReport {
        since: ago(7 * 86_400),
        until: NOW,
        evaluated: 60_480,
        samples_since: Some(ago(5 * 86_400)),
        people: 41,
        runs: 512,
        rules: 4,
        outcomes: vec![
            RuleOutcome {
                services: 3,
                ..outcome(&idle.rule, 11, 0, 0, 148)
            },
            outcome(&too_much.rule, 4, 3, 0, 12),
            outcome(
                &rule(RuleSource::Rule("long jobs".into()), RuleKind::Duration),
                0,
                0,
                2,
                0,
            ),
        ],
        records: vec![
            step(&too_much, 500_000, warned(1, None)),
            step(
                &too_much,
                499_400,
                GuardStep::Ended(victim(Some(true), None)),
            ),
            step(&idle, 400_000, warned(1, None)),
            step(&idle, 392_800, GuardStep::Ended(notebook)),
            step(&too_much, 300_000, GuardStep::Ended(victim(None, None))),
            step(
                &too_much,
                200_000,
                GuardStep::Ended(victim(Some(true), Some("scancel 1234"))),
            ),
        ],
        more_records: 1_200,
        open: vec![idle.clone(), too_much.clone()],
        gaps: vec![Gap {
            from: ago(260_000),
            until: ago(252_800),
        }],
        not_evaluated: vec![UnevaluatedTime {
            rule: Some(too_much.rule),
            why: "its usage is not known".into(),
            subject: too_much.subject,
            subjects: 3,
            for_ms: 7 * HOUR,
        }],
    }
}
