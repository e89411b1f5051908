//! The thread that answers questions, over a connection that can only read.

use super::database::{SAMPLES, open_for_reading};
use super::{Question, query};
use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::path::Path;
use std::sync::mpsc::Receiver;

/// Answers until nobody can ask any more.
pub(super) fn run(directory: &Path, questions: &Receiver<Question>) {
    let mut connection: Option<Connection> = None;
    while let Ok(Question { query, answer }) = questions.recv() {
        if answer.is_closed() {
            continue;
        }
        let opened = match connection.take() {
            Some(connection) => Ok(connection),
            None => open_for_reading(directory, &SAMPLES),
        };
        let result = opened.map_err(Refusal::Unavailable).and_then(|mut opened| {
            let result = query::page(&mut opened, &query);
            // A connection that failed may be of a file that was replaced.
            if !matches!(result, Err(Refusal::Unavailable(_))) {
                connection = Some(opened);
            }
            result
        });
        // The asker may have gone away.
        let _ = answer.send(result);
    }
}
