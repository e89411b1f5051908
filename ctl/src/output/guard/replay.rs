//! The ends and warnings that rules would have caused: by rule, then by job.

use super::violation_text::{
    device_indices, measured_text, own_policy_text, processes, subject_name, warn_only_text,
};
use super::violations::{GuardActivity, open_violation_lines};
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, escaped_lines};
use crate::output::value::{counted, date_and_time, formatted, thousands};
use gpukill_proto::collect::SortIndirect as _;
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

/// The lines of `guard replay`; `rules` names the rules: `of draft.toml`, `in force`.
pub(crate) fn replay_lines(
    report: &ReplayReport,
    rules: &str,
    milder: &MilderPolicies,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = vec![heading(report, rules, style), Line::default()];
    if report.evaluated == 0 {
        lines.push(Line::plain("nothing is recorded in this time"));
    } else if report.outcomes.is_empty() {
        lines.push(Line::plain("nobody would have been warned or ended"));
    } else {
        lines.extend(outcome_lines(&report.outcomes, style));
        lines.push(Line::default());
        lines.extend(job_lines(&replayed_jobs(report), milder, style));
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
    let mut ended = replayed_jobs(report);
    ended.retain(|job| job.victim.is_some());
    if !ended.is_empty() {
        let since = "since then these would have been ended";
        lines.extend([Line::default(), Line::plain(since)]);
        lines.extend(job_lines(&ended, milder, style));
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
    let policies = match report.rules {
        0 => "no rules".to_owned(),
        several => counted(several as usize, "rule"),
    };
    let text = format!("{length}, {people}, {runs}, {policies} {rules}");
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

/// A job that rules would have ended, or only warned about.
struct ReplayedJob<'a> {
    /// The end; the first warning if there was no end.
    record: &'a GuardRecord,
    /// The ended job.
    victim: Option<&'a Victim>,
    warned_at: Option<Timestamp>,
}

/// The jobs in the order of time: each ended job with the first rule that ends it, and the
/// violations with a warning and no end.
fn replayed_jobs(report: &ReplayReport) -> Vec<ReplayedJob<'_>> {
    // The first warning of each violation, and whether a job was ended for it.
    let mut warned: BTreeMap<(&RuleName, &ViolationSubject), (&GuardRecord, bool)> =
        BTreeMap::new();
    // A process, and the rule that ended it first: in a replay every rule sees a job as long as
    // it ran.
    let mut ended_by: BTreeMap<(u32, u64), &RuleName> = BTreeMap::new();
    let mut jobs = Vec::new();
    for record in &report.records {
        let key = (&record.rule, &record.subject);
        match &record.step {
            GuardStep::Warned { .. } => {
                warned.entry(key).or_insert((record, false));
            }
            GuardStep::Over | GuardStep::Outdated => {
                jobs.extend(warned.remove(&key).and_then(only_warned));
            }
            GuardStep::Ended(victim) => {
                let warning = warned.get_mut(&key).map(|(warning, has_ended)| {
                    *has_ended = true;
                    *warning
                });
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
                jobs.push(ReplayedJob {
                    record,
                    victim: Some(victim),
                    warned_at: warning.map(|warning| warning.at),
                });
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
    // The steps that are not shown may have ends for the other warnings.
    if report.more_records == 0 {
        jobs.extend(warned.into_values().filter_map(only_warned));
    }
    jobs.sort_indirect_by_key(|job| job.record.at);
    jobs
}

fn only_warned((warning, has_ended): (&GuardRecord, bool)) -> Option<ReplayedJob<'_>> {
    (!has_ended).then_some(ReplayedJob {
        record: warning,
        victim: None,
        warned_at: Some(warning.at),
    })
}

fn job_lines(jobs: &[ReplayedJob<'_>], milder: &MilderPolicies, style: &OutputStyle) -> Vec<Line> {
    let mut lines = Vec::new();
    if jobs.iter().all(|job| job.victim.is_none()) {
        lines.push(Line::plain("nobody would have been ended"));
    }
    if jobs.is_empty() {
        return lines;
    }
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
    for job in jobs {
        table.push(Row::Cells(row(job, milder, style)));
    }
    lines.extend(table.lines(style));
    lines
}

fn row(job: &ReplayedJob<'_>, milder: &MilderPolicies, style: &OutputStyle) -> Vec<Cell> {
    let text = |text: &str| Cell::plain(escaped(text, style.symbols));
    let (record, evidence) = (job.record, &job.record.evidence);
    let who = subject_name(&record.subject, evidence);
    let (owner, runs, count) = match job.victim {
        Some(victim) => (&victim.job.owner.name, &victim.runs, victim.count),
        None => (&who, &evidence.runs, evidence.count),
    };
    let (at_the_end, tone) = end_text(job, milder.get(owner).copied());
    vec![
        Cell::plain(formatted(record.at, "%a %d %b %H:%M", style.zone)),
        text(&who),
        Cell::plain(device_indices(runs)),
        text(&processes(runs, count)),
        text(&record.rule.to_string()),
        Cell::plain(warned_text(job, style)),
        Cell::with_tone(escaped(&at_the_end, style.symbols), tone),
    ]
}

/// What the job did when it was ended, or why it was not.
fn end_text(job: &ReplayedJob<'_>, own: Option<MilderPolicy>) -> (String, Tone) {
    if let Some(own) = own {
        return (own_policy_text(own).to_owned(), Tone::Plain);
    }
    let Some(victim) = job.victim else {
        return ("warned only".to_owned(), Tone::Plain);
    };
    // A job that is left to the scheduler needs no attention here.
    if let Some(command) = &victim.leave_to {
        return (format!("left: {command}"), Tone::Plain);
    }
    let measured = measured_text(job.record.rule.kind, &job.record.evidence);
    match victim.is_busy {
        Some(true) => (measured + "  busy", Tone::Doubtful),
        Some(false) => (measured, Tone::Plain),
        None => (measured + "  busy?", Tone::Doubtful),
    }
}

/// The time of the first warning, with its day if that is another one.
fn warned_text(job: &ReplayedJob<'_>, style: &OutputStyle) -> String {
    /// Seconds within which a day of the week is one day only.
    const WEEK: u64 = 6 * 24 * 60 * 60;
    let Some(at) = job.warned_at else {
        return style.symbols.placeholder().to_owned();
    };
    let day = |at| formatted(at, "%F", style.zone);
    let form = match (
        day(at) == day(job.record.at),
        job.record.at.since(at).as_secs(),
    ) {
        (true, _) => "%H:%M",
        (false, ..=WEEK) => "%a %H:%M",
        (false, _) => "%d %b %H:%M",
    };
    formatted(at, form, style.zone)
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
    let texts = texts.iter();
    let lines = texts.flat_map(|text| escaped_lines(text, Tone::Faint, style));
    std::iter::once(Line::default()).chain(lines).collect()
}
