//! The screens of `audit timeline`.

use super::*;
use crate::output::audit::history::Coverage;
use crate::output::audit::timeline::TimelineItem;
use crate::output::fixtures::{host_timeline, hostile_timeline, timeline};
use gpukill_proto::audit::{TimelineEntry, TimelineEvent};
use gpukill_proto::json::TimelineDocument;
use gpukill_proto::units::Timestamp;

/// From the midnight of this day, and from the day before.
const DAY: TimeSpan = TimeSpan {
    since: Timestamp(NOW.0 - 14 * 3_600_000),
    until: NOW,
};
const TWO_DAYS: TimeSpan = TimeSpan {
    since: Timestamp(NOW.0 - 2 * 86_400_000),
    until: NOW,
};

fn shown(entries: Vec<TimelineEntry>, span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let items = entries.into_iter().map(TimelineItem::new);
    let items: Vec<TimelineItem> = items.map(TimelineItem::trim_for_table).collect();
    TimelineItem::lines(&items, span, &Coverage::default(), style)
}

#[test]
fn timeline_tells_why_a_job_ended() {
    check_all("timeline", |style| shown(timeline(), DAY, style));
    let style = colored(120);
    let screen = text(&shown(timeline(), DAY, &style), &style);
    check("timeline-colored.txt", &screen);
}

#[test]
fn end_by_a_hidden_kill_has_its_own_line() {
    let style = style(None);
    let killed = |entries| {
        let screen = text(&shown(entries, DAY, &style), &style);
        screen.contains("  killed     bob 51002 ")
    };
    // The line of the kill names its processes.
    assert!(!killed(timeline()));
    let mut hidden = timeline();
    for entry in &mut hidden {
        if let TimelineEvent::Action(record) = &mut entry.event {
            (record.what, record.plan) = (None, Reading::Withheld);
        }
    }
    assert!(killed(hidden));
}

#[test]
fn timeline_of_the_host_has_gpus_and_dates() {
    check_all("timeline-host", |style| {
        shown(host_timeline(), TWO_DAYS, style)
    });
}

#[test]
fn timeline_for_programs_has_every_record() {
    let documents: Vec<TimelineDocument> = timeline().iter().map(TimelineDocument::from).collect();
    let document = json::pretty(&documents);
    check("timeline.json", &document.expect("plain values"));
    let rows = csv::timeline(&documents, Header::First);
    check("timeline.csv", &rows.expect("texts"));
}

#[test]
fn timeline_cannot_control_the_terminal() {
    let entries = hostile_timeline(HOSTILE);
    let documents: Vec<TimelineDocument> = entries.iter().map(TimelineDocument::from).collect();
    let style = style(None);
    let printed = [
        text(&shown(entries, TWO_DAYS, &style), &style),
        json::pretty(&documents).expect("plain values"),
        csv::timeline(&documents, Header::First).expect("texts"),
    ];
    assert_steer_nothing(printed);
}
