//! The ends and warnings that rules would have caused: by rule, then by job.

use super::violation_text::{
    device_indices, measured_text, own_policy_text, processes, subject_name, warn_only_text,
};
use super::violations::{GuardActivity, open_violation_lines};
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, wrap};
use crate::output::value::{counted, date_and_time, formatted, thousands};
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, MilderPolicy, ReplayReport, RuleName, RuleOutcome, Victim,
    ViolationSubject,
};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Users with a milder policy of their own, by name. A replay counts their jobs, but the guard
/// would not have ended them.
pub(crate) type MilderPolicies = BTreeMap<String, MilderPolicy>;

/// The lines of `guard replay`; `rules` names the rules.
pub(crate) fn replay_lines(
    report: &ReplayReport,
    rules: &str,
    milder: &MilderPolicies,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = vec![heading(report, rules, style), Line::default()];
    if report.outcomes.is_empty() {
        lines.push(Line::plain("nobody would have been warned or ended"));
    } else {
        lines.extend(outcome_lines(&report.outcomes, style));
        lines.push(Line::default());
        lines.extend(ended_lines(report, milder, style));
    }
    lines.extend(note_lines(report, milder_policy_texts(milder), style));
    lines
}

/// The lines of `guard test`: what these rules, which act in this mode, find now, and since
/// when they were evaluated.
pub(crate) fn test_lines(
    report: &ReplayReport,
    (milder, mode): (&MilderPolicies, Option<GuardMode>),
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    // The actions of the guard by the rules in force do not matter here.
    let activity = mode.map_or(GuardActivity::DryRun, GuardActivity::Trial);
    let mut lines = open_violation_lines(&report.open, &[], activity, now, style);
    // These jobs count as ended and break no rule any more.
    let is_end = |record: &GuardRecord| matches!(record.step, GuardStep::Ended(_));
    if report.records.iter().any(is_end) {
        let since = "since then these would have been ended";
        lines.extend([Line::default(), Line::plain(since)]);
        lines.extend(ended_lines(report, milder, style));
    }
    let tried = match report.evaluated {
        0 => "no sample was evaluated".to_owned(),
        _ => format!("evaluated from {} on", date_and_time(report.since, style)),
    };
    let mut texts = milder_policy_texts(milder);
    texts.push(tried);
    lines.extend(note_lines(report, texts, style));
    lines
}

/// The users with a milder policy, a line each.
fn milder_policy_texts(milder: &MilderPolicies) -> Vec<String> {
    /// Maximum number of users to name.
    const MOST: usize = 10;
    let lines = milder.iter().take(MOST).map(|(name, own)| match own {
        MilderPolicy::Warned => format!("{name}: warned only: own policy"),
        MilderPolicy::DryRun => format!("{name}: nobody is warned or ended: own policy"),
    });
    lines.collect()
}

fn heading(report: &ReplayReport, rules: &str, style: &OutputStyle) -> Line {
    let length = format_duration(report.until.since(report.since));
    let people = match report.people {
        1 => "1 person".to_owned(),
        several => format!("{} people", thousands(u64::from(several))),
    };
    let runs = counted(report.runs as usize, "process run");
    let policies = counted(report.rules as usize, "rule");
    let text = format!("{length}, {people}, {runs}, {policies} of {rules}");
    Line::with_tone(escaped(&text, style.symbols), Tone::Strong).cut(style.width, style.symbols)
}

fn outcome_lines(outcomes: &[RuleOutcome], style: &OutputStyle) -> Vec<Line> {
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
                notes.push(format!("{services}, {}", warn_only_text(outcome.rule.kind)));
            }
        }
        table.push(Row::Cells(vec![
            Cell::plain(escaped(&outcome.rule.to_string(), style.symbols)),
            Cell::plain(outcome.warned.to_string()),
            Cell::plain(outcome.ended.to_string()),
            Cell::plain(gpu_hours(outcome.freed_ms)),
            Cell::plain(outcome.ended_busy.to_string()),
            Cell::with_tone(notes.join(", "), tone),
        ]));
    }
    table.lines(style)
}

/// `148 GPU-h`, `0.4 GPU-h`
fn gpu_hours(ms: u64) -> String {
    let tenths = ms / 360_000;
    if tenths >= 1_000 {
        format!("{} GPU-h", thousands(tenths / 10))
    } else {
        format!("{}.{} GPU-h", tenths / 10, tenths % 10)
    }
}

/// The time of the first warning, by rule and subject.
type FirstWarnings<'a> = BTreeMap<(&'a RuleName, &'a ViolationSubject), Timestamp>;

/// One line for each job that would have been ended, by the first rule that ends it.
fn ended_lines(report: &ReplayReport, milder: &MilderPolicies, style: &OutputStyle) -> Vec<Line> {
    let mut warned: FirstWarnings<'_> = BTreeMap::new();
    // A process, and the rule that ended it first: in a replay every rule sees a job as long as
    // it ran.
    let mut ended_by: BTreeMap<(u32, u64), &RuleName> = BTreeMap::new();
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
                if victim.leave_to.is_none() {
                    let processes = victim.runs.iter();
                    let mut rules = processes.map(|it| {
                        let process = (it.run.pid, it.run.start_ticks);
                        *ended_by.entry(process).or_insert(&record.rule)
                    });
                    if rules.any(|first| *first != record.rule) {
                        continue;
                    }
                }
                count += 1;
                let before = warned.get(&key).copied();
                let own = milder.get(&victim.job.owner.name).copied();
                table.push(Row::Cells(row(record, (victim, own), before, style)));
            }
            GuardStep::Violated
            | GuardStep::Exempt(_)
            | GuardStep::Snoozed { .. }
            | GuardStep::Outcome(_)
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => {}
        }
    }
    if count == 0 {
        return vec![Line::plain("nobody would have been ended")];
    }
    table.lines(style)
}

fn row(
    record: &GuardRecord,
    (victim, own): (&Victim, Option<MilderPolicy>),
    warned: Option<Timestamp>,
    style: &OutputStyle,
) -> Vec<Cell> {
    let text = |text: &str| Cell::plain(escaped(text, style.symbols));
    let mut at_the_end = measured_text(record.rule.kind, &record.evidence);
    // A job that is left to the scheduler needs no attention here.
    let tone = match (own, &victim.leave_to, victim.is_busy) {
        (Some(own), _, _) => {
            at_the_end = own_policy_text(own).to_owned();
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
        Cell::plain(formatted(record.at, "%a %d %b %H:%M", style.zone)),
        text(&subject_name(&record.subject, &record.evidence)),
        Cell::plain(device_indices(&victim.runs)),
        text(&processes(&victim.runs, victim.count)),
        text(&record.rule.to_string()),
        Cell::plain(warned.map_or_else(
            || style.symbols.placeholder().to_owned(),
            |at| formatted(at, "%H:%M", style.zone),
        )),
        Cell::with_tone(escaped(&at_the_end, style.symbols), tone),
    ]
}

/// Notes about the replay.
fn note_lines(report: &ReplayReport, mut texts: Vec<String>, style: &OutputStyle) -> Vec<Line> {
    if report.more_records > 0 {
        let more = thousands(report.more_records);
        texts.push(format!("{more} more steps are not shown: narrow the time"));
    }
    if let Some(since) = report.samples_since {
        let since = date_and_time(since, style);
        texts.push(format!(
            "before {since} only minute and hour rollups are kept, and those were evaluated"
        ));
    }
    for gap in report.gaps.iter().take(5) {
        let from = formatted(gap.from, "%a %H:%M", style.zone);
        let until = formatted(gap.until, "%a %H:%M", style.zone);
        texts.push(format!("not evaluated: {from} to {until} (no samples)"));
    }
    for unknown in report.not_evaluated.iter().take(10) {
        let length = format_duration(Duration::from_millis(unknown.for_ms));
        let Some(rule) = &unknown.rule else {
            texts.push(format!("not evaluated: {} for {length}", unknown.why));
            continue;
        };
        let first = match &unknown.subject {
            ViolationSubject::Run(run) => format!("process {}", run.pid),
            subject @ (ViolationSubject::Person(_)
            | ViolationSubject::PersonOn(..)
            | ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_)
            | ViolationSubject::Job(_)) => subject.to_string(),
        };
        let subjects = match unknown.subjects {
            0 | 1 => first,
            several => format!("{first} and {} more", several - 1),
        };
        texts.push(format!(
            "not evaluated: {rule}: {} for {length}, of {subjects}",
            unknown.why
        ));
    }
    if texts.is_empty() {
        return Vec::new();
    }
    let texts = texts.iter().flat_map(|text| {
        let lines = wrap(&escaped(text, style.symbols), 0, 2, style.width);
        lines
            .into_iter()
            .map(|text| Line::with_tone(text, Tone::Faint))
    });
    std::iter::once(Line::default()).chain(texts).collect()
}
