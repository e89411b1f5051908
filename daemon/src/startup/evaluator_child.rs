//! The answers of the child that reads rules.

use crate::evaluator::EvaluatorRequest;
use crate::evaluator::child::{encode_answer, run};
use crate::guard::replay::replay;
use crate::guard::{check_rules, parse_rules};
use crate::rogue::rules::check_rules as check_rogue_rules;
use crate::store::StoredHistory;
use gpukill_proto::refusal::Refusal;
use std::io;

/// Runs as the child until it has answered.
///
/// # Errors
/// If it cannot answer.
pub(super) fn evaluate() -> io::Result<()> {
    run(
        |request| match request {
            EvaluatorRequest::Check { .. } => None,
            EvaluatorRequest::Replay { directory, .. } => Some(StoredHistory::open(directory)),
        },
        |request, past| match request {
            EvaluatorRequest::Check { is_guard, text } => encode_answer(&match is_guard {
                true => check_rules(&text),
                false => check_rogue_rules(&text),
            }),
            EvaluatorRequest::Replay {
                directory: _,
                text,
                snoozes,
                since,
                until,
                present,
            } => {
                let replayed = || {
                    let rules = parse_rules(&text)?;
                    let past = past.unwrap_or(Err(Refusal::Internal))?;
                    replay(past, rules, &snoozes, (since, until), present)
                };
                encode_answer(&replayed())
            }
        },
    )
}
