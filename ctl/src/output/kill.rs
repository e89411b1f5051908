//! The output of `kill`: the plan, the question, the outcome and the next steps.
//!
//! - [`heading`]: the selected processes, in one line.
//! - [`rows`]: one line for each process, with details.
//! - [`advice`]: a sentence, and a command that can be copied.
//! - [`dry_run`]: the command that a dry run tries.
//! - [`progress`]: how many processes have ended, and which is waited for.
//! - [`memory`]: the memory that was released.
//! - [`follow_up`]: other facts in the report.

mod advice;
mod dry_run;
mod follow_up;
mod heading;
mod memory;
mod progress;
mod rows;

use super::list::processes::command_line;
use super::owner_cells::owner_name;
use super::style::{OutputStyle, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::text::{Line, Tone, escaped, wrapped_lines};
use super::value::reading;
use gpukill_proto::kill::{KillPlan, KillReport, KillTarget, PlannedAction};
use gpukill_proto::reading::Reading;
use rows::{ProcessRow, align_rows, outcome_row, target_row};

pub(crate) use dry_run::dry_run_lines;
pub(crate) use progress::progress_line;

/// How much of a plan is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlanDetail {
    /// The heading only.
    Heading,
    /// And each process that it ends.
    Ended,
    /// And the processes that it does not end, and other facts.
    All,
}

/// The part of the plan to show before the question. A user who typed PIDs knows these processes,
/// and the heading describes one whole job.
pub(crate) fn question_detail(plan: &KillPlan) -> PlanDetail {
    let ended = || plan.targets.iter().filter(|target| is_ended(target));
    let typed = plan.request.selector.is_pids_only() && ended().all(|target| target.named);
    let is_whole_job = heading::common_job(plan).is_some_and(|job| heading::is_whole(job, plan));
    if typed || is_whole_job || ended().count() <= 1 {
        PlanDetail::Heading
    } else {
        PlanDetail::Ended
    }
}

/// The question before a plan is carried out.
pub(crate) fn question(plan: &KillPlan) -> &'static str {
    match plan
        .targets
        .iter()
        .filter(|target| is_ended(target))
        .count()
    {
        1 => "End it?",
        _ => "End them?",
    }
}

pub(crate) fn plan_lines(plan: &KillPlan, detail: PlanDetail, style: &OutputStyle) -> Vec<Line> {
    let heading = heading::heading(plan, style.symbols);
    let mut lines = wrapped_lines(&heading, Tone::Strong, style);
    if detail == PlanDetail::Heading {
        return lines;
    }
    if plan.targets.iter().any(is_ended) {
        lines.extend(table(plan, style));
    }
    if detail == PlanDetail::Ended {
        return lines;
    }
    let others: Vec<ProcessRow> = plan
        .targets
        .iter()
        .filter_map(|target| target_row(target, style.symbols))
        .collect();
    lines.extend(align_rows(&others, style));
    for rest in &plan.remaining_jobs {
        lines.extend(follow_up::remaining_job_lines(rest, true, style));
    }
    lines.extend(follow_up::undetermined_lines(plan.undetermined, style));
    lines
}

/// A plan that was carried out.
pub(crate) struct KillResult<'a> {
    pub plan: &'a KillPlan,
    /// The report on the plan.
    pub report: &'a KillReport,
    /// The uid of the reader.
    pub me: u32,
}

/// The outcome of each process, and other facts. The heading of the plan is printed already.
pub(crate) fn outcome_lines(outcome: &KillResult<'_>, style: &OutputStyle) -> Vec<Line> {
    let KillResult { plan, report, .. } = outcome;
    let rows: Vec<ProcessRow> = report
        .outcomes
        .iter()
        .map(|outcome| outcome_row(outcome, plan, style.symbols))
        .collect();
    let mut lines = align_rows(&rows, style);
    lines.extend(memory::lines(plan, report, style));
    lines.extend(follow_up::lines(outcome, style));
    lines
}

fn is_ended(target: &KillTarget) -> bool {
    matches!(target.action, PlannedAction::End(_))
}

/// The processes that a plan ends.
fn table(plan: &KillPlan, style: &OutputStyle) -> Vec<Line> {
    let mut table = Table::new(vec![
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("GPU", WhenNarrow::Goes(2)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::left("JOB", WhenNarrow::ShrinksThenGoes(10, 1)),
        Column::left("SIGNALS", WhenNarrow::Goes(3)),
        Column::left("COMMAND", WhenNarrow::Shrinks(12)),
    ]);
    for target in plan.targets.iter().filter(|target| is_ended(target)) {
        table.push(Row::Cells(cells(target, plan, style.symbols)));
    }
    table.lines(style)
}

fn cells(target: &KillTarget, plan: &KillPlan, symbols: Symbols) -> Vec<Cell> {
    let none = || Cell::with_tone(symbols.placeholder(), Tone::Faint);
    let mut gpus: Vec<u32> = target.holds.iter().map(|hold| hold.index).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    let signals = match &target.action {
        PlannedAction::End(signals) => signals.iter().map(ToString::to_string).collect(),
        PlannedAction::Protected(_)
        | PlannedAction::Denied(_)
        | PlannedAction::Unclear(_)
        | PlannedAction::Zombie(_) => Vec::new(),
    };
    vec![
        Cell::plain(target.key.pid.to_string()),
        Cell::plain(owner_cell(target, plan, symbols)),
        if gpus.is_empty() {
            none()
        } else {
            Cell::plain(gpus.join(","))
        },
        match heading::held_memory(std::iter::once(target)) {
            Some(held) => held.cell(),
            None => none(),
        },
        reading(&target.job, |job| escaped(&job.to_string(), symbols)),
        Cell::plain(signals.join(", ")),
        Cell::plain(command_text(&target.command, &target.name, symbols)),
    ]
}

/// The owner, and also the user when the plan ends processes of several users under one owner:
/// a container is one owner, and several people may share it.
fn owner_cell(target: &KillTarget, plan: &KillPlan, symbols: Symbols) -> String {
    let owner = owner_text(target, symbols);
    let (Some(named), Some(uid)) = (target.owner.last_known(), target.uid.last_known()) else {
        return owner;
    };
    let is_another = |other: &KillTarget| {
        is_ended(other)
            && other.owner.last_known() == Some(named)
            && other.uid.last_known().is_some_and(|other| other != uid)
    };
    match plan.targets.iter().any(is_another) {
        true => format!("{owner} (uid {uid})"),
        false => owner,
    }
}

/// The owner, as the person to ask about the process.
fn owner_text(target: &KillTarget, symbols: Symbols) -> String {
    let owner = target.owner.last_known().map(String::as_str);
    owner_name(owner, None, target.uid.last_known().copied(), symbols)
}

fn command_text(arguments: &Reading<String>, name: &str, symbols: Symbols) -> String {
    command_line(arguments, &Reading::Value(name.to_owned()), symbols)
}
