//! What a report says of the guard and of the watch for rogues.

use super::or;
use gpukill_proto::document::report::{GuardPart, RoguePart};

/// How the guard stands.
pub(super) fn guard(guard: &GuardPart) -> Vec<String> {
    let counts = &guard.rule_counts;
    let mut items = vec![
        format!("mode {}, rehearses {}", guard.mode, guard.rehearses),
        format!(
            "{}: {} for everybody, {} users, {} groups, {} gpus, {} times, {} rules",
            file(guard.has_file, guard.mistakes),
            counts.defaults,
            counts.users,
            counts.groups,
            counts.gpus,
            counts.times,
            counts.rules
        ),
        format!(
            "{} open violations, {} jobs that a dry run would have ended; today {} warned, {} ended, \
             in dry run {} and {}",
            guard.open,
            guard.would_have_ended,
            guard.warned_today,
            guard.ended_today,
            guard.simulated_warned_today,
            guard.simulated_ended_today
        ),
        format!(
            "last sample judged: {}; {} came too fast, no room for {}",
            or(guard.judged_at, "none"),
            guard.dropped,
            guard.beyond
        ),
    ];
    match guard.file_changed {
        Some(true) => items.push("the file has changed since it was read".into()),
        Some(false) => {}
        None => items.push("whether the file has changed cannot be told".into()),
    }
    if let Some(at) = guard.tripped_at {
        items.push(format!("ends nobody any more since {at}"));
    }
    items
}

/// How the watch for rogues stands.
pub(super) fn rogue(rogue: &RoguePart) -> Vec<String> {
    let worst = rogue.worst.unwrap_or("none");
    vec![
        file(rogue.has_file, rogue.mistakes),
        format!(
            "{} processes watched, {} beyond; {} findings, the worst: {worst}",
            rogue.watched, rogue.beyond, rogue.findings
        ),
    ]
}

fn file(is_there: bool, mistakes: u64) -> String {
    let file = match is_there {
        true => "rules of a file",
        false => "no file of rules",
    };
    match mistakes {
        0 => file.to_owned(),
        1 => format!("{file}, with 1 mistake in what is written now"),
        several => format!("{file}, with {several} mistakes in what is written now"),
    }
}
