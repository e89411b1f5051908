//! The guard and the rogue watch in a bug report.

use super::word_or;
use gpukill_proto::json::report::{GuardPart, RoguePart};

pub(super) fn guard(guard: &GuardPart) -> Vec<String> {
    let counts = &guard.rule_counts;
    let mut items = vec![
        format!("mode {}, simulates {}", guard.mode, guard.armed_mode),
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
            "{} open violations, {} jobs that a dry run would have ended; today {} warned, {} \
             ended, in dry run {} and {}",
            guard.open,
            guard.would_have_ended,
            guard.warned_today,
            guard.ended_today,
            guard.simulated_warned_today,
            guard.simulated_ended_today
        ),
        format!(
            "last sample evaluated: {}; {} came too fast, no room for {}",
            word_or(guard.evaluated_at, "none"),
            guard.dropped,
            guard.beyond
        ),
    ];
    match guard.file_changed {
        Some(true) => items.push("the file has changed since it was read".into()),
        Some(false) => {}
        None => items.push("it is not known whether the file has changed".into()),
    }
    if let Some(at) = guard.tripped_at {
        items.push(format!("stopped since {at}"));
    }
    items
}

/// The status of the rogue watch.
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

fn file(exists: bool, mistakes: u64) -> String {
    let file = match exists {
        true => "rules of a file",
        false => "no file of rules",
    };
    match mistakes {
        0 => file.to_owned(),
        1 => format!("{file}, with 1 mistake in the current file"),
        several => format!("{file}, with {several} mistakes in the current file"),
    }
}
