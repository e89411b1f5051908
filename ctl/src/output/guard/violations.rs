//! The tables of `guard violations`: open violations and recorded decisions.

use super::violation_text::{
    SELECTION_NOTE, device_indices, ending_text, first_pid, measured_text, names, own_policy_text,
    processes, step_text, subject_name, warn_only_text,
};
use super::{NoticePlacement, stopped_text};
use crate::output::markers::WOULD_HAVE_ENDED;
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, escaped_lines, wrap, wrapped_lines};
use crate::output::value::{clock, counted, future_time, past_time, time_or_weekday};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardReport, GuardStep, OpenViolation, RuleName, UnfinishedEnd,
    ViolationPage, count_jobs,
};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// The open violations with the guard's status, then the decisions, newest first.
pub(crate) fn violations(
    page: &ViolationPage,
    guard: &GuardReport,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let activity = GuardActivity::from_report(guard);
    let mut lines = open_violation_lines(&page.open, &page.would_have_ended, activity, now, style);
    if page.records.is_empty() {
        lines.push(Line::plain("nothing was decided in this time"));
        return lines;
    }
    lines.push(Line::default());
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("RULE", WhenNarrow::Shrinks(14)),
        // `more time, 1 left`
        Column::left("WHAT", WhenNarrow::Shrinks(17)),
        Column::left("PID", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Goes(3)),
    ]);
    for (_, record) in &page.records {
        let (what, below) = record_text(record, style);
        table.push(Row::Cells(record_row(record, what, now, style)));
        for text in below {
            table.push(Row::Spanning(vec![Cell::plain("")], Cell::plain(text)));
        }
    }
    lines.extend(table.lines(style));
    lines
}

/// The activity of the guard about open violations.
#[derive(Debug, Clone, Copy)]
pub(super) enum GuardActivity {
    /// No person is warned and no job is ended.
    DryRun,
    /// The guard is disabled and has no open violation.
    Off,
    /// It warns or ends in this mode.
    Active(GuardMode),
    /// It would act in this mode, but stopped at this time; whether a dry run stopped.
    Stopped(GuardMode, Timestamp, bool),
    /// Rules are tried, which act in this mode.
    Trial(GuardMode),
}

impl GuardActivity {
    const fn from_report(guard: &GuardReport) -> Self {
        match (guard.mode, guard.tripped_at) {
            (GuardMode::Disabled, _) => Self::Off,
            (GuardMode::DryRun, None) => Self::DryRun,
            (mode @ (GuardMode::Soft | GuardMode::Enforce), None) => Self::Active(mode),
            (mode @ (GuardMode::DryRun | GuardMode::Soft | GuardMode::Enforce), Some(at)) => {
                Self::Stopped(mode, at, guard.is_trip_simulated)
            }
        }
    }
}

/// The open violations with their times; and how many jobs a dry run would have ended.
pub(super) fn open_violation_lines(
    open: &[OpenViolation],
    would_have_ended: &[OpenViolation],
    activity: GuardActivity,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = heading(open, would_have_ended, activity, style);
    if let GuardActivity::Stopped(mode, at, is_simulated) = activity {
        let text = stopped_text(
            (mode, is_simulated),
            &clock(at, now, style),
            NoticePlacement::Violations,
        );
        lines.extend(wrapped_lines(&text, Tone::Broken, style));
    }
    if open.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    // The columns for who has to act until when come first; `explain` shows the rest of each
    // process.
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(3)),
        Column::left("RULE", WhenNarrow::Shrinks(18)),
        Column::left("SINCE", WhenNarrow::Stays),
        Column::left("WARNED", WhenNarrow::Goes(1)),
        Column::left("END", WhenNarrow::Stays),
        // A pid of seven digits, and the beginning of a name.
        Column::left("PROCESS", WhenNarrow::Shrinks(12)),
        Column::left("MEASURED", WhenNarrow::Goes(2)),
    ]);
    for violation in open {
        let end = end_text(violation, now, style);
        let evidence = &violation.evidence;
        let warned = violation.warned_at.map_or_else(
            || style.symbols.placeholder().to_owned(),
            |at| past_time(at, now, style),
        );
        table.push(Row::Cells(vec![
            Cell::plain(escaped(
                &subject_name(&violation.subject, evidence),
                style.symbols,
            )),
            Cell::plain(device_indices(&evidence.runs)),
            Cell::plain(escaped(&violation.rule.to_string(), style.symbols)),
            Cell::plain(past_time(evidence.since, now, style)),
            Cell::plain(warned),
            Cell::plain(end),
            Cell::plain(escaped(
                &processes(&evidence.runs, evidence.count),
                style.symbols,
            )),
            Cell::with_tone(measured_text(violation.rule.kind, evidence), Tone::Doubtful),
        ]));
    }
    lines.extend(table.lines(style));
    if open.iter().any(|open| is_one_of_several(open, now)) {
        lines.push(Line::default());
        lines.extend(wrapped_lines(SELECTION_NOTE, Tone::Faint, style));
    }
    let warned = |open: &OpenViolation| open.warned_at.is_some() && open.mode > GuardMode::DryRun;
    if matches!(activity, GuardActivity::Active(_)) && open.iter().any(warned) {
        lines.push(Line::default());
        lines.extend(wrapped_lines(WARNED_NOTE, Tone::Faint, style));
    }
    lines.extend(message_lines(open.iter(), style));
    lines
}

/// The text of a warning. A person without a terminal gets it too.
const WARNED_NOTE: &str = "warned: shown in their list and status, and on their terminals if \
    they have any; the journal reports how many (GPUKILL_TERMINALS)";

/// Shown when the guard is disabled, because nothing is known about violations then.
const DISABLED_TEXT: &str = "the guard is disabled: nothing is evaluated";

/// The admin's messages, each once.
fn message_lines<'v>(
    all: impl Iterator<Item = &'v OpenViolation>,
    style: &OutputStyle,
) -> Vec<Line> {
    /// Maximum number of messages; `explain` shows the message for each process.
    const MOST: usize = 5;
    let of_rule = all.filter_map(|open| Some((&open.rule, open.message.as_deref()?)));
    let by_rule: BTreeMap<&RuleName, &str> = of_rule.into_map();
    let named = by_rule.into_iter().take(MOST);
    let mut lines: Vec<Line> = named
        .map(|(rule, message)| format!("{rule}: {message}"))
        .flat_map(|text| escaped_lines(&text, Tone::Faint, style))
        .collect();
    if !lines.is_empty() {
        lines.insert(0, Line::default());
    }
    lines
}

/// The number of violations and what follows from them.
fn heading(
    open: &[OpenViolation],
    would_have_ended: &[OpenViolation],
    activity: GuardActivity,
    style: &OutputStyle,
) -> Vec<Line> {
    if open.is_empty() && would_have_ended.is_empty() {
        let what = match activity {
            GuardActivity::Off => DISABLED_TEXT,
            GuardActivity::DryRun
            | GuardActivity::Active(_)
            | GuardActivity::Stopped(..)
            | GuardActivity::Trial(_) => "no open violation",
        };
        return vec![Line::plain(what)];
    }
    let kept = open
        .iter()
        .filter(|it| it.not_broken_since.is_some())
        .count();
    let mut count = match open.len() - kept {
        0 => "no violation now".to_owned(),
        several => format!("{} now", counted(several, "violation")),
    };
    if kept > 0 {
        count = format!("{count}, {kept} no longer broken");
    }
    if !would_have_ended.is_empty() {
        let jobs = counted(would_have_ended.len(), "job");
        count = format!("{count}, {jobs} {WOULD_HAVE_ENDED}");
    }
    let simulated = open.iter().filter(|open| open.mode <= GuardMode::DryRun);
    let what = match (activity, simulated.count()) {
        (
            GuardActivity::DryRun
            | GuardActivity::Stopped(GuardMode::Disabled | GuardMode::DryRun, ..),
            _,
        ) => "dry run: nobody is warned or ended".to_owned(),
        (GuardActivity::Off, _) => DISABLED_TEXT.to_owned(),
        (GuardActivity::Trial(mode), _) => {
            format!("what these rules would do in mode {}", mode.name())
        }
        (GuardActivity::Stopped(GuardMode::Soft | GuardMode::Enforce, ..), _) => {
            "stopped: nobody is warned or ended".to_owned()
        }
        (GuardActivity::Active(mode), 0) => mode.name().to_owned(),
        (GuardActivity::Active(mode), 1) => {
            format!(
                "{}, and 1 of them is only recorded: its policy says so",
                mode.name()
            )
        }
        (GuardActivity::Active(mode), some) => format!(
            "{}, and {some} of them are only recorded: their policies say so",
            mode.name()
        ),
    };
    let mut line = Line::with_tone(count.as_str(), Tone::Strong);
    line.push(format!("{}{what}", style.symbols.separator()), Tone::Plain);
    if style
        .width
        .is_none_or(|max_width| line.width() <= max_width)
    {
        return vec![line];
    }
    let lines = [(count, Tone::Strong), (what, Tone::Plain)].into_iter();
    lines
        .flat_map(|(text, tone)| wrapped_lines(&text, tone, style))
        .collect()
}

/// When a job is ended for the violation, when one of several was ended or survived its signals,
/// or that the violation ends soon.
pub(super) fn end_text(open: &OpenViolation, now: Timestamp, style: &OutputStyle) -> String {
    if let Some(at) = open.not_broken_since {
        return format!(
            "not broken since {}",
            time_or_weekday(at, now, "%H:%M", style)
        );
    }
    if let Some(at) = open.ended_at {
        let ended = match open.mode {
            GuardMode::Disabled | GuardMode::DryRun => WOULD_HAVE_ENDED,
            GuardMode::Soft | GuardMode::Enforce => "ended",
        };
        return format!("1 {ended} {}", time_or_weekday(at, now, "%H:%M", style));
    }
    if let Some(unfinished) = open.unfinished_end {
        let (what, at) = match unfinished {
            UnfinishedEnd::UnderWay(since) => ("ending since", since),
            UnfinishedEnd::Survived(at) => ("survived", at),
        };
        return format!("1 {what} {}", time_or_weekday(at, now, "%H:%M", style));
    }
    if let Some(own) = open.own_policy {
        return own_policy_text(own).to_owned();
    }
    if open.evidence.is_service_only_warned {
        return warn_only_text(open.rule.kind).to_owned();
    }
    if let (None, Some(until)) = (open.deadline, open.snoozed_until.filter(|it| *it > now)) {
        return format!("snoozed until {}", future_time(until, now, style));
    }
    let Some(deadline) = open.deadline.filter(|deadline| *deadline > now) else {
        return style.symbols.placeholder().to_owned();
    };
    format!(
        "{} {}",
        ending_text(open),
        future_time(deadline, now, style)
    )
}

/// Whether the row announces the end of one of several jobs.
fn is_one_of_several(open: &OpenViolation, now: Timestamp) -> bool {
    let has_warning = open.ended_at.is_none() && open.own_policy.is_none();
    let is_in_future = open.deadline.is_some_and(|deadline| deadline > now);
    has_warning && is_in_future && count_jobs(open) != Some(1)
}

/// The decision; and its reason on lines below the row, when the row would cut it.
fn record_text(record: &GuardRecord, style: &OutputStyle) -> (String, Vec<String>) {
    /// A blank, a time of today, and a gap.
    const BEFORE: usize = 12;
    /// With fewer columns in total, few are left for a sentence.
    const WIDE: usize = 100;
    let what = step_text(record);
    let Some(max_width) = style.width.filter(|max_width| *max_width < WIDE) else {
        return (what, Vec::new());
    };
    match what.split_once(": ") {
        Some((what, why)) => {
            let why = escaped(why, style.symbols);
            let below = wrap(&why, 0, 0, Some(max_width.saturating_sub(BEFORE)));
            (what.to_owned(), below)
        }
        None => (what, Vec::new()),
    }
}

fn record_row(
    record: &GuardRecord,
    what: String,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Cell> {
    let evidence = &record.evidence;
    let (runs, count) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&evidence.runs, evidence.count),
    };
    let text = |text: &str| Cell::plain(escaped(text, style.symbols));
    vec![
        Cell::plain(time_or_weekday(record.at, now, "%H:%M:%S", style)),
        text(&subject_name(&record.subject, evidence)),
        Cell::plain(device_indices(runs)),
        text(&record.rule.to_string()),
        text(&what),
        Cell::plain(first_pid(runs)),
        text(&names(runs, count)),
        Cell::plain(measured_text(record.rule.kind, evidence)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures;
    use super::*;

    /// The text of each record.
    fn shown(page: &ViolationPage) -> Vec<String> {
        let style = fixtures::style(None);
        let lines = violations(page, &fixtures::guard_report(), fixtures::NOW, &style);
        let lines: Vec<String> = lines.iter().map(Line::text).collect();
        lines[lines.len() - page.records.len()..].to_vec()
    }

    #[test]
    fn record_text_depends_on_no_other_record() {
        let mut page = fixtures::violations();
        // Records of one subject only, so that nothing else influences the column widths.
        let over = page
            .records
            .iter()
            .find(|(_, it)| it.step == GuardStep::Over);
        let subject = over.expect("there is one").1.subject.clone();
        page.records.retain(|(_, it)| it.subject == subject);
        let all = shown(&page);
        assert!(!all.is_empty());
        for (at, record) in page.records.clone().into_iter().enumerate() {
            let alone = ViolationPage {
                records: vec![record],
                ..page.clone()
            };
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&shown(&alone)[0]), words(&all[at]));
        }
    }

    #[test]
    fn warning_is_explained_only_where_one_was_sent() {
        let mut page = fixtures::violations();
        let mut guard = fixtures::guard_report();
        let is_warned = |page: &ViolationPage, guard: &GuardReport| {
            let lines = violations(page, guard, fixtures::NOW, &fixtures::style(None));
            lines.iter().any(|line| line.text() == WARNED_NOTE)
        };
        assert!(!is_warned(&page, &guard), "a dry run warns nobody");
        guard.mode = GuardMode::Soft;
        for open in &mut page.open {
            open.mode = GuardMode::Soft;
        }
        assert!(is_warned(&page, &guard));
        for open in &mut page.open {
            open.warned_at = None;
        }
        assert!(!is_warned(&page, &guard), "nobody was warned");
    }
}
