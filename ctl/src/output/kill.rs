//! What `kill` shows: who is meant, what is asked, what became of each, and what
//! to do next.
//!
//! - [`heading`]: who is meant, in one line.
//! - [`rows`]: one line for each process, and what is to be known of it.
//! - [`advice`]: a sentence, and a command that can be copied.
//! - [`under_way`]: how many have ended, and who is waited for.
//! - [`memory`]: what came back.
//! - [`after`]: what the report says besides.

mod heading;

mod rows;

mod advice;

mod under_way;

mod memory;

mod after;

use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, Symbols};
use super::processes::command;
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::reading;
use super::whose::owner_name;
use gpukill_proto::kill::{Fate, KillPlan, KillReport, KillTarget};
use gpukill_proto::reading::Reading;
use rows::{Told, laid_out, of_outcome, of_target};

pub(crate) use under_way::under_way;

/// How much of a plan is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What it means as a whole.
    Heading,
    /// Each process that it ends.
    Ended,
    /// And those that it does not end, and what is to be known besides.
    All,
}

/// What a person sees who is asked: who was named by pid is known to whoever typed
/// it, and who belongs to one job is said by that.
pub(crate) fn asked(plan: &KillPlan) -> Detail {
    let ended = || plan.targets.iter().filter(|target| ends(target));
    let typed = plan.request.selector.is_pids_only() && ended().all(|target| target.named);
    let whole = heading::one_job(plan).is_some_and(|job| heading::is_whole(job, plan));
    if typed || whole || ended().count() <= 1 {
        Detail::Heading
    } else {
        Detail::Ended
    }
}

/// What is asked before a plan is carried out.
pub(crate) fn question(plan: &KillPlan) -> &'static str {
    match plan.targets.iter().filter(|target| ends(target)).count() {
        1 => "End it?",
        _ => "End them?",
    }
}

/// Who is meant.
pub(crate) fn planned(plan: &KillPlan, detail: Detail, look: &Look) -> Vec<Line> {
    let mut lines = headed(plan, look);
    if detail == Detail::Heading {
        return lines;
    }
    if plan.targets.iter().any(ends) {
        lines.extend(table(plan, look));
    }
    if detail == Detail::Ended {
        return lines;
    }
    let others: Vec<Told> = plan
        .targets
        .iter()
        .filter_map(|target| of_target(target, look.symbols))
        .collect();
    lines.extend(laid_out(&others, look));
    for rest in &plan.rest {
        lines.extend(after::rest_of(rest, true, look));
    }
    lines.extend(after::unjudged(plan.unjudged, look));
    lines
}

fn headed(plan: &KillPlan, look: &Look) -> Vec<Line> {
    let texts = wrap(&heading::heading(plan, look.symbols), 0, 2, look.width);
    let texts = texts.into_iter();
    texts.map(|text| Line::toned(text, Tone::Strong)).collect()
}

/// A plan that was carried out.
pub(crate) struct Outcome<'a> {
    /// What was planned.
    pub plan: &'a KillPlan,
    /// What became of it.
    pub report: &'a KillReport,
    /// Who looks: the uid.
    pub me: u32,
}

/// What became of each, and what is to be known besides. Who was meant stands
/// above it already.
pub(crate) fn carried_out(outcome: &Outcome<'_>, look: &Look) -> Vec<Line> {
    let Outcome { plan, report, .. } = outcome;
    let told: Vec<Told> = report
        .outcomes
        .iter()
        .map(|outcome| of_outcome(outcome, plan, look.symbols))
        .collect();
    let mut lines = laid_out(&told, look);
    lines.extend(memory::lines(plan, report, look));
    lines.extend(after::lines(outcome, look));
    lines
}

fn ends(target: &KillTarget) -> bool {
    matches!(target.fate, Fate::End(_))
}

/// Those that a plan ends.
fn table(plan: &KillPlan, look: &Look) -> Vec<Line> {
    let mut table = Table::new(vec![
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("GPU", WhenNarrow::Goes(2)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::left("JOB", WhenNarrow::ShrinksThenGoes(10, 1)),
        Column::left("SIGNALS", WhenNarrow::Goes(3)),
        Column::left("COMMAND", WhenNarrow::Shrinks(12)),
    ]);
    for target in plan.targets.iter().filter(|target| ends(target)) {
        table.push(Row::Cells(cells(target, plan, look.symbols)));
    }
    table.lines(look)
}

fn cells(target: &KillTarget, plan: &KillPlan, symbols: Symbols) -> Vec<Cell> {
    let none = || Cell::toned(symbols.none(), Tone::Faint);
    let mut gpus: Vec<u32> = target.holds.iter().map(|hold| hold.index).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    let signals = match &target.fate {
        Fate::End(signals) => signals.iter().map(ToString::to_string).collect(),
        Fate::Protected(_) | Fate::Denied(_) | Fate::Unclear(_) | Fate::Zombie(_) => Vec::new(),
    };
    vec![
        Cell::plain(target.key.pid.to_string()),
        Cell::plain(owner_within(target, plan, symbols)),
        if gpus.is_empty() {
            none()
        } else {
            Cell::plain(gpus.join(","))
        },
        match heading::held(std::iter::once(target)) {
            Some(held) => held.cell(),
            None => none(),
        },
        reading(&target.job, |job| shown(&job.to_string(), symbols)),
        Cell::plain(signals.join(", ")),
        Cell::plain(what(&target.command, &target.name, symbols)),
    ]
}

/// The owner, and the user too where a plan ends processes of several users who have this
/// owner: a container is one owner, and may be shared by several people.
fn owner_within(target: &KillTarget, plan: &KillPlan, symbols: Symbols) -> String {
    let owner = owner(target, symbols);
    let (Some(named), Some(uid)) = (target.owner.last_known(), target.uid.last_known()) else {
        return owner;
    };
    let is_another = |other: &KillTarget| {
        ends(other)
            && other.owner.last_known() == Some(named)
            && other.uid.last_known().is_some_and(|other| other != uid)
    };
    match plan.targets.iter().any(is_another) {
        true => format!("{owner} (uid {uid})"),
        false => owner,
    }
}

/// Whom to ask about it.
fn owner(target: &KillTarget, symbols: Symbols) -> String {
    let owner = target.owner.last_known().map(String::as_str);
    owner_name(owner, None, target.uid.last_known().copied(), symbols)
}

/// What it runs.
fn what(arguments: &Reading<String>, name: &str, symbols: Symbols) -> String {
    command(arguments, &Reading::Value(name.to_owned()), symbols)
}
