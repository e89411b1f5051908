//! What is to be known after a kill besides: who goes on, who came again, what is
//! not recorded.

use super::super::line::{Line, Tone, shown};
use super::super::look::Look;
use super::super::value::counted;
use super::Outcome;
use super::advice::{sentence, with_command, word};
use super::rows::named;
use gpukill_proto::kill::{Ending, KillRest, Respawn, Stage};
use gpukill_proto::snapshot::Unit;

/// The lines below the rows.
pub(super) fn lines(outcome: &Outcome<'_>, look: &Look) -> Vec<Line> {
    let Outcome { plan, report, me } = outcome;
    let mut lines = Vec::new();
    for rest in &plan.rest {
        let has_ended = report.outcomes.iter().any(|outcome| {
            outcome.key.pid == rest.pid
                && matches!(outcome.ending, Ending::Ended(..) | Ending::Gone)
        });
        lines.extend(rest_of(rest, !has_ended, look));
    }
    let mut respawned: Vec<&Respawn> = report.respawned.iter().collect();
    while let Some(first) = respawned.first().copied() {
        let (same, others) = respawned
            .into_iter()
            .partition(|it| starts_alike(first, it));
        respawned = others;
        lines.extend(again(first, &same, *me, look));
    }
    lines.extend(unjudged(plan.unjudged, look));
    if report.stage == Stage::Interrupted {
        let words = "gpukilld stopped before it was done: what became of those that are not \
                     named here is not known";
        lines.extend(sentence(words, Tone::Broken, look));
    }
    if let Some(why) = &report.unrecorded {
        let why = shown(why, look.symbols);
        let words = format!("not recorded: {why}; it stands in the daemon's log alone");
        lines.extend(sentence(&words, Tone::Doubtful, look));
    }
    lines
}

/// A job of which more goes on, and the command that ends it whole: by one of its
/// processes that is there and uses a GPU. What uses none is not gpukill's to end.
pub(super) fn rest_of(rest: &KillRest, is_there: bool, look: &Look) -> Vec<Line> {
    let others = match rest.others {
        1 => "1 other".to_owned(),
        several => format!("{several} others"),
    };
    let job = shown(&rest.job.to_string(), look.symbols);
    let words = format!("more of its job {job} goes on: {others}");
    if !is_there {
        let words = format!("{words}, and no GPU is used there");
        return sentence(&words, Tone::Doubtful, look);
    }
    let words = format!("{words}; to end it whole:");
    let command = format!("gpukillctl kill {} --scope job", rest.pid);
    with_command(&words, &command, Tone::Doubtful, look)
}

/// Those of whom too little is known.
pub(super) fn unjudged(number: u32, look: &Look) -> Vec<Line> {
    let words = match number {
        0 => return Vec::new(),
        1 => "1 other may be meant too, and is left alone: too little is known of it".to_owned(),
        several => format!(
            "{several} others may be meant too, and are left alone: too little is known of them"
        ),
    };
    sentence(&words, Tone::Doubtful, look)
}

fn starts_alike(one: &Respawn, other: &Respawn) -> bool {
    match (&one.unit, &other.unit) {
        (Some(unit), other) => other.as_ref() == Some(unit),
        (None, Some(_)) => false,
        (None, None) => {
            let parent = |it: &Respawn| it.parent.as_ref().map(|parent| parent.pid);
            parent(one) == parent(other)
        }
    }
}

/// Who starts them again, and what stops that.
fn again(first: &Respawn, same: &[&Respawn], me: u32, look: &Look) -> Vec<Line> {
    const NAMED: usize = 4;
    let mut pids: Vec<String> = same
        .iter()
        .take(NAMED)
        .map(|it| it.key.pid.to_string())
        .collect();
    match same.len().saturating_sub(NAMED) {
        0 => {}
        more => pids.push(counted(more, "other")),
    }
    let it = if same.len() == 1 { "it" } else { "them" };
    let pids = pids.join(", ");
    match (&first.unit, &first.parent) {
        (Some(unit), _) => {
            let name = shown(&unit.name, look.symbols);
            let words = format!("systemd starts {it} again, as {pids}: {name}");
            match stop(unit, me, look) {
                Some((whose, command)) => {
                    let words = format!("{words}; stop that{whose}:");
                    with_command(&words, &command, Tone::Doubtful, look)
                }
                None => sentence(&words, Tone::Doubtful, look),
            }
        }
        (None, Some(parent)) => {
            let parent = named(parent, look.symbols);
            let words = format!("{parent} starts {it} again, as {pids}: end that first");
            sentence(&words, Tone::Doubtful, look)
        }
        (None, None) => {
            let name = shown(&first.name, look.symbols);
            let words = format!("{name} was started again, as {pids}");
            sentence(&words, Tone::Doubtful, look)
        }
    }
}

/// The command that stops a unit, and as whom, where that is not who looks.
fn stop(unit: &Unit, me: u32, look: &Look) -> Option<(String, String)> {
    let name = word(&unit.name, look.symbols)?;
    Some(match unit.manager {
        None => (String::new(), format!("systemctl stop {name}")),
        Some(uid) => {
            let whose = if uid == me {
                String::new()
            } else {
                format!(" as uid {uid}")
            };
            (whose, format!("systemctl --user stop {name}"))
        }
    })
}
