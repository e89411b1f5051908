//! The screens of `audit`.

use super::*;
use crate::output::audit::actions::ActionEntry;
use crate::output::audit::history::{Coverage, Remaining, table_lines};
use crate::output::audit::summary::{SummaryView, lines as summary_lines, weekly};
use crate::output::fixtures::{actions, id, older_records, runs, series, summary};
use gpukill_proto::audit::{ActionRecord, AuditSeries, AuditSummary, Gap, RunRecord, UsageTimes};
use gpukill_proto::json::{
    ActionDocument, SeriesDocument, SummaryDocument, WeekDocument, WeeklyDocument,
};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;

const DAY: TimeSpan = TimeSpan {
    since: Timestamp(NOW.0 - 86_400_000),
    until: NOW,
};

const WEEK: TimeSpan = TimeSpan {
    since: Timestamp(NOW.0 - 7 * 86_400_000),
    until: NOW,
};

fn of_a_week(summary: &AuditSummary) -> SummaryView<'_> {
    SummaryView {
        summary,
        span: WEEK,
        only: vec![],
        recorded_since: Some(NOW.plus_seconds(-30 * 86_400)),
        now: NOW,
    }
}

#[test]
fn runs_end_with_the_newest_at_every_width() {
    let gap = Gap {
        from: NOW.plus_seconds(-40_000),
        until: NOW.plus_seconds(-39_280),
    };
    let coverage = Coverage {
        gaps: Some(vec![gap]),
        recorded_since: None,
    };
    check_widths("audit-runs", &[80, 100, 120, 160], WRAPPED, |style| {
        let lines = table_lines(&runs(), WEEK, &coverage, Remaining::None, style);
        text(&lines, style)
    });
    let style = ascii(Some(100));
    let lines = table_lines(&runs(), WEEK, &coverage, Remaining::None, &style);
    let shown = text(&lines, &style);
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn time_of_a_run_is_what_was_seen() {
    let style = style(None);
    let mut run = runs()[0].clone();
    (run.from, run.until) = (NOW.plus_seconds(-7_200), NOW);
    let gap = |from: i64, until: i64| Gap {
        from: NOW.plus_seconds(from),
        until: NOW.plus_seconds(until),
    };
    for (gaps, time, is_marked) in [
        (vec![], " 2h 0m ", false),
        (vec![gap(-90_000, -7_200)], " 2h 0m ", false),
        (vec![gap(-90_000, -6_600), gap(-3_600, -14)], " 50m*", true),
        (vec![gap(-90_000, 600)], " 0s*", true),
    ] {
        let coverage = Coverage {
            gaps: Some(gaps),
            recorded_since: None,
        };
        let lines = RunRecord::lines(std::slice::from_ref(&run), WEEK, &coverage, &style);
        let shown = text(&lines, &style);
        assert!(shown.contains(time), "{time}: {shown}");
        assert_eq!(shown.contains("* seen in parts only"), is_marked, "{shown}");
    }
}

#[test]
fn table_names_what_is_not_recorded_and_that_there_is_more() {
    let style = style(None);
    let coverage = Coverage {
        gaps: Some(vec![Gap {
            from: NOW.plus_seconds(-40_000),
            until: NOW.plus_seconds(-39_280),
        }]),
        recorded_since: Some(NOW.plus_seconds(-86_400)),
    };
    let last = |runs: &[RunRecord], rest| {
        let shown = text(&table_lines(runs, WEEK, &coverage, rest, &style), &style);
        shown
            .lines()
            .skip(runs.len())
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>()
    };
    let nothing = last(&[], Remaining::None);
    assert_eq!(
        nothing,
        [
            "no runs · 2026-11-14 14:02:31 to 2026-11-21 14:02:31",
            "Not seen: Sat 02:55 to 03:07",
            "Not seen: nothing is recorded before 2026-11-20 14:02:31",
        ]
    );
    let more = last(&runs(), Remaining::More);
    assert_eq!(
        more.last().map(String::as_str),
        Some("there are more: --limit 0 shows all")
    );
}

#[test]
fn series_is_a_table_or_a_chart() {
    use crate::output::audit::series::{csv, lines, plot_lines};

    for (name, is_of_gpus) in [("gpus", true), ("users", false)] {
        let shown = series(is_of_gpus);
        for width in [80, 120] {
            let style = style(Some(width));
            let table = text(&lines(&shown, DAY, &style), &style);
            let chart = text(&plot_lines(&shown, DAY, &style), &style);
            let screen = format!("{table}\n{chart}");
            check_fits(&screen, width, WRAPPED);
            check(&format!("audit-series-{name}-{width}.txt"), &screen);
        }
        let style = ascii(Some(80));
        let chart = text(&plot_lines(&shown, DAY, &style), &style);
        assert!(chart.is_ascii(), "{chart}");
        let rows = csv(&SeriesDocument::from(&shown)).expect("plain values");
        assert_eq!(rows.lines().count(), 1 + 2 * 48);
    }
}

#[test]
fn sum_of_the_other_lines_is_named() {
    use crate::output::audit::series::{lines, plot_lines};

    let mut shown = series(false);
    shown.lines[1].owner = None;
    let style = style(Some(100));
    for screen in [lines(&shown, DAY, &style), plot_lines(&shown, DAY, &style)] {
        let screen = text(&screen, &style);
        assert!(screen.contains(" 2 others  "), "{screen}");
        assert!(!screen.contains(" more"), "{screen}");
    }
    let document = SeriesDocument::from(&shown);
    let summed = document.series.iter().map(|line| line.summed_lines);
    assert_eq!(summed.collect::<Vec<_>>(), [None, Some(2)]);
}

/// The buckets of days begin at midnight in UTC, which west of it is the evening before.
#[test]
fn day_that_begins_at_another_time_has_it() {
    use crate::output::audit::series::{lines, plot_lines};

    let style = style(Some(120));
    for (hour, first, second) in [
        (0, "2026-11-21  ", "2026-11-22  "),
        (19, "2026-11-21 19:00  ", "2026-11-22 19:00  "),
    ] {
        let midnight = Timestamp(NOW.0 - NOW.0.rem_euclid(86_400_000));
        let days = AuditSeries {
            since: midnight.plus_seconds(3_600 * hour),
            step_ms: 86_400_000,
            ..series(true)
        };
        let table = text(&lines(&days, WEEK, &style), &style);
        assert!(table.contains(&format!(" {first}GPU 0")), "{table}");
        assert!(table.contains(&format!(" {second}GPU 0")), "{table}");
        let chart = text(&plot_lines(&days, WEEK, &style), &style);
        assert!(chart.contains(first), "{chart}");
    }
}

#[test]
fn samples_are_newest_first() {
    for width in [100, 60] {
        let style = style(Some(width));
        let shown = text(
            &AuditRecord::lines(&records(), DAY, &Coverage::default(), &style),
            &style,
        );
        check(&format!("audit-{width}.txt"), &shown);
    }
}

#[test]
fn older_record_shows_the_covered_time() {
    check_widths("audit-older", &[100, 60], WRAPPED, |style| {
        let lines = AuditRecord::lines(&older_records(), DAY, &Coverage::default(), style);
        text(&lines, style)
    });
}

#[test]
fn summary_at_every_width() {
    let summary = summary();
    let shown = of_a_week(&summary);
    check_widths("summary", &[120, 80, 40], WRAPPED, |style| {
        text(&summary_lines(&shown, style), style)
    });
    let style = colored(120);
    let screen = text(&summary_lines(&shown, &style), &style);
    check("summary-colored.txt", &screen);
    let style = ascii(Some(80));
    let of_alice = SummaryView {
        only: vec![("--user", "alice"), ("--gpu", "0-3")],
        ..shown
    };
    let screen = text(&summary_lines(&of_alice, &style), &style);
    assert!(screen.is_ascii(), "{screen}");
    check_fits(&screen, 80, WRAPPED);
    check("summary-ascii.txt", &screen);
}

#[test]
fn sparse_or_empty_summary_has_hints() {
    let mut summary = summary();
    summary.since = NOW.plus_seconds(-3 * 3600);
    summary.until = NOW.plus_seconds(-2 * 3600);
    summary.devices.truncate(1);
    summary.devices[0].times = UsageTimes {
        free_ms: 3_590_000,
        ..UsageTimes::default()
    };
    summary.owners.clear();
    summary.processes.clear();
    summary.hours.clear();
    summary.days.clear();
    summary.gaps.clear();
    let style = style(None);
    let mut screen = text(&summary_lines(&of_a_week(&summary), &style), &style);
    summary.devices.clear();
    screen += "\n";
    screen += &text(&summary_lines(&of_a_week(&summary), &style), &style);
    check("summary-little.txt", &screen);
}

#[test]
fn weeks_are_a_line_each() {
    let summary = summary();
    let shown = of_a_week(&summary);
    for (name, style) in [
        ("80", style(Some(80))),
        ("40", style(Some(40))),
        ("ascii", ascii(Some(100))),
    ] {
        let screen = text(&weekly(&shown, &style), &style);
        check(&format!("weekly-{name}.txt"), &screen);
    }
}

/// The table of these entries; GPU 7 still exists.
fn acted(entries: Vec<ActionRecord>, style: &OutputStyle) -> Vec<Line> {
    let entries = entries.into_iter().map(|record| {
        let is_there = record.device == Some(id(7));
        ActionEntry::new(record, is_there.then_some(7)).trim_for_table()
    });
    let entries: Vec<ActionEntry> = entries.collect();
    ActionEntry::lines(&entries, WEEK, &Coverage::default(), style)
}

#[test]
fn actions_show_who_asked_and_the_result() {
    for (name, style, width) in [
        ("120", style(Some(120)), 120),
        ("80", style(Some(80)), 80),
        ("ascii", ascii(Some(120)), 120),
    ] {
        let screen = text(&acted(actions(), &style), &style);
        check_fits(&screen, width, WRAPPED);
        assert!(name != "ascii" || screen.is_ascii(), "{screen}");
        check(&format!("actions-{name}.txt"), &screen);
    }
    let style = colored(120);
    let screen = text(&acted(actions(), &style), &style);
    check("actions-colored.txt", &screen);
}

#[test]
fn json_has_the_whole_summary_and_actions() {
    let summary = summary();
    let document = json::pretty(&SummaryDocument::from(&summary));
    check("summary.json", &document.expect("plain values"));
    let document = json::pretty(&WeeklyDocument::from(&summary));
    check("weekly.json", &document.expect("plain values"));
    let weeks: Vec<WeekDocument> = summary.weeks.iter().map(WeekDocument::from).collect();
    let rows = csv::documents(WeekDocument::FIELDS, &weeks, Header::First);
    check("weekly.csv", &rows.expect("texts"));
    let documents: Vec<ActionDocument> = actions().iter().map(ActionDocument::from).collect();
    let document = json::pretty(&documents);
    check("actions.json", &document.expect("plain values"));
    let rows = csv::actions(&documents, Header::First);
    check("actions.csv", &rows.expect("texts"));
}

fn hostile_summary() -> AuditSummary {
    let mut summary = summary();
    for device in &mut summary.devices {
        device.name = Some(HOSTILE.into());
        device.device.0 = HOSTILE.into();
    }
    for owner in &mut summary.owners {
        if let Some(owner) = &mut owner.owner {
            owner.name = HOSTILE.into();
        }
    }
    for process in &mut summary.processes {
        process.label = HOSTILE.into();
    }
    for week in &mut summary.weeks {
        week.monday = HOSTILE.into();
        week.top_owner = Some((HOSTILE.into(), 1));
    }
    summary
}

fn hostile_actions() -> Vec<ActionRecord> {
    let hostile = || Some(HOSTILE.to_owned());
    let entries = actions().into_iter();
    let entries = entries.map(|entry| ActionRecord {
        kind: HOSTILE.into(),
        user: hostile(),
        what: hostile(),
        result: hostile(),
        why: hostile(),
        device: Some(DeviceId(HOSTILE.into())),
        plan: Reading::Value(HOSTILE.into()),
        outcome: Reading::Value(serde_json::json!({ HOSTILE: [HOSTILE] }).to_string()),
        ..entry
    });
    entries.collect()
}

#[test]
fn records_cannot_control_the_terminal() {
    let (summary, entries) = (hostile_summary(), hostile_actions());
    let style = style(None);
    let shown = SummaryView {
        only: vec![("--user", HOSTILE)],
        ..of_a_week(&summary)
    };
    let documents: Vec<ActionDocument> = entries.iter().map(ActionDocument::from).collect();
    let weeks: Vec<WeekDocument> = summary.weeks.iter().map(WeekDocument::from).collect();
    let printed = [
        text(&summary_lines(&shown, &style), &style),
        text(&weekly(&shown, &style), &style),
        text(&acted(entries.clone(), &style), &style),
        json::pretty(&SummaryDocument::from(&summary)).expect("plain values"),
        json::pretty(&documents).expect("plain values"),
        csv::documents(WeekDocument::FIELDS, &weeks, Header::First).expect("texts"),
        csv::actions(&documents, Header::First).expect("texts"),
    ];
    assert_steer_nothing(printed);
}
