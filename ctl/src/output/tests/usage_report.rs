//! The text of `audit report`.

use super::*;
use crate::output::audit::usage_report::{UsageReportView, lines};
use crate::output::fixtures::{actions, summary};
use gpukill_policy::usage::findings::ActionTotals;
use gpukill_proto::audit::{ActionRecord, AuditSummary, UsageTimes};
use gpukill_proto::units::Timestamp;

const WEEK: TimeSpan = TimeSpan {
    since: Timestamp(NOW.0 - 7 * 86_400_000),
    until: NOW,
};

fn totals(records: &[ActionRecord]) -> ActionTotals {
    let mut totals = ActionTotals::default();
    records.iter().for_each(|record| totals.add(record));
    totals
}

/// The recorded actions of the fixtures, an alert, a fault and a start of the host.
fn recorded() -> Vec<ActionRecord> {
    let mut records = actions();
    let started = records.iter().find(|it| it.kind == "started").cloned();
    let started = started.expect("the daemon started");
    let event = |kind: &str, what: &str| ActionRecord {
        kind: kind.into(),
        what: Some(what.into()),
        ..started.clone()
    };
    records.push(event("alert", "GPU 5: temperature at or above 85 °C"));
    records.push(event(
        "fault",
        "GPU 3: fan: NVML reports an unknown error (999)",
    ));
    records.push(event("booted", ""));
    records
}

fn shown(summary: &AuditSummary, totals: &ActionTotals, style: &OutputStyle) -> String {
    let report = UsageReportView {
        host: "lab1",
        span: WEEK,
        group: None,
        summary,
        times_before: Some(UsageTimes {
            busy_ms: 47,
            held_ms: 22,
            free_ms: 31,
            unknown_ms: 0,
        }),
        totals,
        now: NOW,
    };
    text(&lines(&report, style), style)
}

#[test]
fn report_has_the_width_of_a_mail() {
    let (summary, totals) = (summary(), totals(&recorded()));
    let piped = shown(&summary, &totals, &style(None));
    check("usage-report.txt", &piped);
    assert_eq!(piped, shown(&summary, &totals, &style(Some(160))));
    check(
        "usage-report-60.txt",
        &shown(&summary, &totals, &style(Some(60))),
    );
    assert!(shown(&summary, &totals, &ascii(None)).is_ascii());
    let too_wide = piped.lines().filter(|line| !line.contains("gpukillctl"));
    let widest = too_wide.map(text::width).max();
    assert!(widest <= Some(78), "{widest:?}\n{piped}");
}

#[test]
fn unknown_results_and_hidden_requests_are_named() {
    let all = recorded().into_iter();
    let mut kills: Vec<ActionRecord> = all.filter(|record| record.kind == "kill").collect();
    for record in &mut kills {
        record.result = Some("interrupted".into());
        // As where other users are hidden.
        if record.user.as_deref() != Some("alice") {
            record.what = None;
        }
    }
    let shown = shown(&summary(), &totals(&kills), &style(None));
    let words: Vec<&str> = shown.split_whitespace().collect();
    let actions = "Actions 2 kills by users: alice (2, 2 of unknown result) \
                   1,206 kills: bob (1,205, 1,205 of unknown result), \
                   gpukill (1, 1 of unknown result)";
    assert!(words.join(" ").contains(actions), "{shown}");
    assert!(!shown.contains("left a process behind"), "{shown}");
}

#[test]
fn late_beginning_of_the_record_is_named() {
    let style = style(None);
    let late = AuditSummary {
        since: NOW.plus_seconds(-3 * 86_400),
        gaps: Vec::new(),
        ..summary()
    };
    let line = "nothing is recorded before Wed 2026-11-18 14:02";
    assert!(shown(&late, &totals(&[]), &style).contains(line));
    let resumed = AuditSummary {
        gaps: vec![gpukill_proto::audit::Gap {
            from: NOW.plus_seconds(-9 * 86_400),
            until: late.since,
        }],
        ..late
    };
    assert!(!shown(&resumed, &totals(&[]), &style).contains("nothing is recorded before"));
}

#[test]
fn quiet_period_is_short() {
    let report = UsageReportView {
        host: "lab1",
        span: WEEK,
        group: None,
        summary: &AuditSummary::default(),
        times_before: None,
        totals: &ActionTotals::default(),
        now: NOW,
    };
    let style = style(None);
    assert_eq!(
        text(&lines(&report, &style), &style),
        "GPUs of lab1 from Sat 2026-11-14 14:02 to Sat 2026-11-21 14:02\n\n \
         nothing is recorded in this period\n the last seven days: gpukillctl audit report --since 7d\n"
    );
}

#[test]
fn people_of_a_group_are_named_so() {
    let (summary, totals) = (summary(), ActionTotals::default());
    let style = style(None);
    let shown = |summary: &AuditSummary| {
        let report = UsageReportView {
            host: "lab1",
            span: WEEK,
            group: Some("ml"),
            summary,
            times_before: None,
            totals: &totals,
            now: NOW,
        };
        text(&lines(&report, &style), &style)
    };
    let whole = shown(&summary);
    assert!(whole.contains("\n\nPeople of group ml\n OWNER "), "{whole}");
    let empty = AuditSummary {
        owners: Vec::new(),
        ..summary
    };
    let none = "\n\nPeople of group ml\n no process of this group used a GPU\n";
    assert!(shown(&empty).contains(none), "{}", shown(&empty));
}

#[test]
fn hostile_texts_are_escaped() {
    let mut records = recorded();
    let evil = "\u{1b}[31m\n\u{202e}evil";
    for record in &mut records {
        record.what = record.what.take().map(|what| format!("{what}{evil}"));
        record.user = Some(evil.into());
        record.device = Some(gpukill_proto::model::DeviceId(evil.into()));
    }
    let shown = shown(&summary(), &totals(&records), &style(None));
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
}
