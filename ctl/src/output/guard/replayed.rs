//! What rules would have done: by rule, then one by one.

use super::decided::{Stands, going_on};
use super::words::{gpus, measured, only_warned, processes, spares, who};
use crate::output::line::{Line, Tone, shown, wrap};
use crate::output::look::Look;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::{counted, date_and_clock, formatted, thousands};
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, Milder, ReplayReport, RuleName, RuleOutcome, Subject, Victim,
};
use gpukill_proto::text::duration;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who is spared by their own policy, by name: whatever a replay counts, nobody would have
/// ended their jobs.
pub(crate) type Spared = BTreeMap<String, Milder>;

/// The lines of `guard replay`; `rules` is what to call these.
pub(crate) fn replay(
    report: &ReplayReport,
    rules: &str,
    spared: &Spared,
    look: &Look,
) -> Vec<Line> {
    let mut lines = vec![heading(report, rules, look), Line::default()];
    if report.outcomes.is_empty() {
        lines.push(Line::plain("nobody would have been warned or ended"));
    } else {
        lines.extend(outcomes(&report.outcomes, look));
        lines.push(Line::default());
        lines.extend(ended(report, spared, look));
    }
    lines.extend(rest(report, of_own_policies(spared), look));
    lines
}

/// The lines of `guard test`: what these rules, which act in this mode, come to now, and since
/// when they were tried.
pub(crate) fn tested(
    report: &ReplayReport,
    (spared, mode): (&Spared, Option<GuardMode>),
    now: Timestamp,
    look: &Look,
) -> Vec<Line> {
    // What the box itself does by other rules is no matter here.
    let stands = mode.map_or(Stands::Nothing, Stands::Tried);
    let mut lines = going_on(&report.open, &[], stands, now, look);
    // These count as gone, and break no rule any more.
    let is_end = |record: &GuardRecord| matches!(record.step, GuardStep::Ended(_));
    if report.records.iter().any(is_end) {
        lines.extend([Line::default(), Line::plain(WOULD_HAVE_ENDED_SINCE)]);
        lines.extend(ended(report, spared, look));
    }
    let tried = match report.judged {
        0 => "no sample was judged".to_owned(),
        _ => format!("judged from {} on", date_and_clock(report.since, look)),
    };
    let mut texts = of_own_policies(spared);
    texts.push(tried);
    lines.extend(rest(report, texts, look));
    lines
}

/// Who is spared by their own policy, a line each.
fn of_own_policies(spared: &Spared) -> Vec<String> {
    /// So many are told.
    const MOST: usize = 10;
    let told = spared.iter().take(MOST).map(|(name, own)| match own {
        Milder::Warned => format!("{name}: warned only: own policy"),
        Milder::Rehearsed => format!("{name}: nobody is warned or ended: own policy"),
    });
    told.collect()
}

const WOULD_HAVE_ENDED_SINCE: &str = "since then these would have been ended";

fn heading(report: &ReplayReport, rules: &str, look: &Look) -> Line {
    let length = duration(report.until.since(report.since));
    let people = match report.people {
        1 => "1 person".to_owned(),
        several => format!("{} people", thousands(u64::from(several))),
    };
    let runs = counted(report.runs as usize, "process run");
    let policies = counted(report.rules as usize, "rule");
    let text = format!("{length}, {people}, {runs}, {policies} of {rules}");
    Line::toned(shown(&text, look.symbols), Tone::Strong).cut(look.width, look.symbols)
}

fn outcomes(outcomes: &[RuleOutcome], look: &Look) -> Vec<Line> {
    let mut table = Table::new(vec![
        Column::left("RULE", WhenNarrow::Shrinks(16)),
        Column::right("WARNED", WhenNarrow::Stays),
        Column::right("ENDED", WhenNarrow::Stays),
        Column::right("FREED", WhenNarrow::Stays),
        Column::right("BUSY WHEN ENDED", WhenNarrow::Stays),
        // `look at these`
        Column::left("", WhenNarrow::ShrinksThenGoes(13, 1)),
    ]);
    for outcome in outcomes {
        let (mut notes, mut tone) = (Vec::new(), Tone::Plain);
        if outcome.ended_busy > 0 {
            notes.push("look at these".to_owned());
            tone = Tone::Doubtful;
        }
        if outcome.left > 0 {
            notes.push(format!("{} left to the scheduler", outcome.left));
        }
        match outcome.services {
            0 => {}
            several => {
                let services = counted(usize::try_from(several).unwrap_or(usize::MAX), "service");
                notes.push(format!("{services}, {}", only_warned(outcome.rule.kind)));
            }
        }
        table.push(Row::Cells(vec![
            Cell::plain(shown(&outcome.rule.to_string(), look.symbols)),
            Cell::plain(outcome.warned.to_string()),
            Cell::plain(outcome.ended.to_string()),
            Cell::plain(hours(outcome.freed_ms)),
            Cell::plain(outcome.ended_busy.to_string()),
            Cell::toned(notes.join(", "), tone),
        ]));
    }
    table.lines(look)
}

/// `148 GPU-h`, `0.4 GPU-h`
fn hours(ms: u64) -> String {
    let tenths = ms / 360_000;
    if tenths >= 1_000 {
        format!("{} GPU-h", thousands(tenths / 10))
    } else {
        format!("{}.{} GPU-h", tenths / 10, tenths % 10)
    }
}

/// When somebody was warned first, by rule and subject.
type Warned<'a> = BTreeMap<(&'a RuleName, &'a Subject), Timestamp>;

/// One line for each job that would have been ended.
fn ended(report: &ReplayReport, spared: &Spared, look: &Look) -> Vec<Line> {
    let mut warned: Warned<'_> = BTreeMap::new();
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("PROCESS", WhenNarrow::Shrinks(12)),
        Column::left("RULE", WhenNarrow::Shrinks(16)),
        Column::left("WARNED", WhenNarrow::Goes(1)),
        // `61.0G of 40.0G  busy?`
        Column::left("AT THE END", WhenNarrow::Shrinks(21)),
    ]);
    let mut count = 0;
    for record in &report.records {
        let key = (&record.rule, &record.subject);
        match &record.step {
            GuardStep::Warned { .. } => {
                warned.entry(key).or_insert(record.at);
            }
            GuardStep::Over | GuardStep::Outdated => {
                warned.remove(&key);
            }
            GuardStep::Ended(victim) => {
                count += 1;
                let before = warned.get(&key).copied();
                let own = spared.get(&victim.job.owner.name).copied();
                table.push(Row::Cells(row(record, (victim, own), before, look)));
            }
            GuardStep::Violated
            | GuardStep::Spared(_)
            | GuardStep::Snoozed { .. }
            | GuardStep::Acted(_)
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => {}
        }
    }
    if count == 0 {
        return vec![Line::plain("nobody would have been ended")];
    }
    table.lines(look)
}

fn row(
    record: &GuardRecord,
    (victim, own): (&Victim, Option<Milder>),
    warned: Option<Timestamp>,
    look: &Look,
) -> Vec<Cell> {
    let text = |text: &str| Cell::plain(shown(text, look.symbols));
    let mut at_the_end = measured(record.rule.kind, &record.evidence);
    // What others end is theirs to look at.
    let tone = match (own, &victim.leave_to, victim.is_busy) {
        (Some(own), _, _) => {
            at_the_end = spares(own).to_owned();
            Tone::Plain
        }
        (None, Some(command), _) => {
            at_the_end = format!("left: {command}");
            Tone::Plain
        }
        (None, None, Some(true)) => {
            at_the_end.push_str("  busy");
            Tone::Doubtful
        }
        (None, None, Some(false)) => Tone::Plain,
        (None, None, None) => {
            at_the_end.push_str("  busy?");
            Tone::Doubtful
        }
    };
    vec![
        Cell::plain(weekday(record.at, look)),
        text(&who(&record.subject, &record.evidence)),
        Cell::plain(gpus(&victim.runs)),
        text(&processes(&victim.runs, victim.count)),
        text(&record.rule.to_string()),
        Cell::plain(warned.map_or_else(
            || look.symbols.none().to_owned(),
            |at| formatted(at, "%H:%M", look.zone),
        )),
        Cell::toned(shown(&at_the_end, look.symbols), tone),
    ]
}

fn weekday(at: Timestamp, look: &Look) -> String {
    formatted(at, "%a %d %b %H:%M", look.zone)
}

/// What else is to be known of it.
fn rest(report: &ReplayReport, mut texts: Vec<String>, look: &Look) -> Vec<Line> {
    if report.more_records > 0 {
        let more = thousands(report.more_records);
        texts.push(format!(
            "{more} more steps are not told of: narrow the time"
        ));
    }
    if let Some(since) = report.samples_since {
        let since = date_and_clock(since, look);
        texts.push(format!(
            "before {since} only sums by the minute and hour are kept: judged by those"
        ));
    }
    for gap in report.gaps.iter().take(5) {
        let from = formatted(gap.from, "%a %H:%M", look.zone);
        let until = formatted(gap.until, "%a %H:%M", look.zone);
        texts.push(format!("not judged: {from} to {until} (no samples)"));
    }
    for unknown in report.not_judged.iter().take(10) {
        let length = duration(Duration::from_millis(unknown.for_ms));
        let Some(rule) = &unknown.rule else {
            texts.push(format!("not judged: {} for {length}", unknown.why));
            continue;
        };
        let first = match &unknown.subject {
            Subject::Run(run) => format!("process {}", run.pid),
            subject @ (Subject::Person(_)
            | Subject::PersonOn(..)
            | Subject::Group(_)
            | Subject::GroupOn(..)
            | Subject::Device(_)
            | Subject::Job(_)) => subject.to_string(),
        };
        let subjects = match unknown.subjects {
            0 | 1 => first,
            several => format!("{first} and {} more", several - 1),
        };
        texts.push(format!(
            "not judged: {rule}: {} for {length}, of {subjects}",
            unknown.why
        ));
    }
    if texts.is_empty() {
        return Vec::new();
    }
    let texts = texts.iter().flat_map(|text| {
        let lines = wrap(&shown(text, look.symbols), 0, 2, look.width);
        lines.into_iter().map(|text| Line::toned(text, Tone::Faint))
    });
    std::iter::once(Line::default()).chain(texts).collect()
}
