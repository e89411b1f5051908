//! Other facts after a kill: remaining processes of a job, restarted processes, missing
//! records.

use super::super::style::OutputStyle;
use super::super::text::{Line, Tone, escaped, wrapped_lines};
use super::super::value::counted;
use super::KillResult;
use super::advice::{printable_shell_word, with_command};
use super::rows::parent_text;
use gpukill_proto::kill::{Outcome, RemainingJob, Respawn, Stage};
use gpukill_proto::model::Unit;

/// The lines below the rows.
pub(super) fn lines(outcome: &KillResult<'_>, style: &OutputStyle) -> Vec<Line> {
    let KillResult { plan, report, me } = outcome;
    let mut lines = Vec::new();
    for remaining in &plan.remaining_jobs {
        let has_ended = report.outcomes.iter().any(|outcome| {
            outcome.key.pid == remaining.pid
                && matches!(outcome.outcome, Outcome::Ended(..) | Outcome::Gone)
        });
        lines.extend(remaining_job_lines(remaining, !has_ended, style));
    }
    let mut respawned: Vec<&Respawn> = report.respawned.iter().collect();
    while let Some(first) = respawned.first().copied() {
        let (same, others) = respawned
            .into_iter()
            .partition(|pronoun| has_same_starter(first, pronoun));
        respawned = others;
        lines.extend(respawn_lines(first, &same, *me, style));
    }
    lines.extend(undetermined_lines(plan.undetermined, style));
    if report.stage == Stage::Interrupted {
        let words = "gpukilld stopped before it was done: the outcome of processes that are not \
                     named here is not known";
        lines.extend(wrapped_lines(words, Tone::Broken, style));
    }
    if let Some(why) = &report.unchecked {
        let why = escaped(why, style.symbols);
        let words = format!("other processes of the job may be left: {why}");
        lines.extend(wrapped_lines(&words, Tone::Doubtful, style));
    }
    if let Some(why) = &report.unrecorded {
        let why = escaped(why, style.symbols);
        let words = format!("not recorded: {why}; it is only in the daemon's log");
        lines.extend(wrapped_lines(&words, Tone::Doubtful, style));
    }
    lines
}

/// The rest of a job, and the command that ends the whole job through one of its processes.
/// This process exists and uses a GPU; a process that uses no GPU is not gpukill's to end.
pub(super) fn remaining_job_lines(
    remaining: &RemainingJob,
    is_present: bool,
    style: &OutputStyle,
) -> Vec<Line> {
    let job = escaped(&remaining.job.to_string(), style.symbols);
    let words = match remaining.remaining_processes {
        1 => format!("1 other process of its job {job} remains"),
        several => format!("{several} other processes of its job {job} remain"),
    };
    if !is_present {
        let words = format!("{words}, and no GPU is used there");
        return wrapped_lines(&words, Tone::Doubtful, style);
    }
    let words = format!("{words}; to end it whole:");
    let command = format!("gpukillctl kill {} --scope job", remaining.pid);
    with_command(&words, &command, Tone::Doubtful, style)
}

/// The number of processes of which too little is known.
pub(super) fn undetermined_lines(number: u32, style: &OutputStyle) -> Vec<Line> {
    let words = match number {
        0 => return Vec::new(),
        1 => "1 other process may match, and is left alone: too little is known of it".to_owned(),
        several => format!(
            "{several} other processes may match, and are left alone: too little is known of them"
        ),
    };
    wrapped_lines(&words, Tone::Doubtful, style)
}

fn has_same_starter(one: &Respawn, other: &Respawn) -> bool {
    match (&one.unit, &other.unit) {
        (Some(unit), other) => other.as_ref() == Some(unit),
        (None, Some(_)) => false,
        (None, None) => {
            let parent = |pronoun: &Respawn| pronoun.parent.as_ref().map(|parent| parent.pid);
            parent(one) == parent(other)
        }
    }
}

/// The unit or parent that restarted processes, and how to stop it.
fn respawn_lines(first: &Respawn, same: &[&Respawn], me: u32, style: &OutputStyle) -> Vec<Line> {
    const NAMED: usize = 4;
    let mut pids: Vec<String> = same
        .iter()
        .take(NAMED)
        .map(|pronoun| pronoun.key.pid.to_string())
        .collect();
    match same.len().saturating_sub(NAMED) {
        0 => {}
        more => pids.push(counted(more, "other")),
    }
    let pronoun = if same.len() == 1 { "it" } else { "them" };
    let pids = pids.join(", ");
    match (&first.unit, &first.parent) {
        (Some(unit), _) => {
            let name = escaped(&unit.name, style.symbols);
            let words = format!("systemd starts {pronoun} again, as {pids}: {name}");
            match stop_command(unit, me, style) {
                Some((owner, command)) => {
                    let words = format!("{words}; stop that{owner}:");
                    with_command(&words, &command, Tone::Doubtful, style)
                }
                None => wrapped_lines(&words, Tone::Doubtful, style),
            }
        }
        (None, Some(parent)) => {
            let parent = parent_text(parent, style.symbols);
            let words = format!("{parent} starts {pronoun} again, as {pids}: end that first");
            wrapped_lines(&words, Tone::Doubtful, style)
        }
        (None, None) => {
            let name = escaped(&first.name, style.symbols);
            let words = format!("{name} was started again, as {pids}");
            wrapped_lines(&words, Tone::Doubtful, style)
        }
    }
}

/// The command that stops a unit, and the uid to run it as when this is not the reader's.
fn stop_command(unit: &Unit, me: u32, style: &OutputStyle) -> Option<(String, String)> {
    let name = printable_shell_word(&unit.name, style.symbols)?;
    Some(match unit.manager {
        None => (String::new(), format!("systemctl stop {name}")),
        Some(uid) => {
            let owner = if uid == me {
                String::new()
            } else {
                format!(" as uid {uid}")
            };
            (owner, format!("systemctl --user stop {name}"))
        }
    })
}
