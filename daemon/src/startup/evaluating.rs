//! What the child that reads rules answers.

use crate::audit::Past;
use crate::evaluator::Request;
use crate::evaluator::child::{encoded, run};
use crate::guard::replay::replay;
use crate::guard::{check_rules, read_rules};
use crate::rogue::rules::check_rules as check_rogue_rules;
use gpukill_proto::refusal::Refusal;
use std::io;

/// Runs as the child until it has answered.
///
/// # Errors
/// When it cannot.
pub(super) fn evaluate() -> io::Result<()> {
    run(
        |request| match request {
            Request::Check { .. } => None,
            Request::Replay { directory, .. } => Some(Past::open(directory)),
        },
        |request, past| match request {
            Request::Check { is_guard, text } => encoded(&match is_guard {
                true => check_rules(&text),
                false => check_rogue_rules(&text),
            }),
            Request::Replay {
                directory: _,
                text,
                snoozes,
                since,
                until,
                present,
            } => {
                let replayed = || {
                    let rules = read_rules(&text)?;
                    let past = past.unwrap_or(Err(Refusal::Internal))?;
                    replay(past, rules, &snoozes, (since, until), present)
                };
                encoded(&replayed())
            }
        },
    )
}
