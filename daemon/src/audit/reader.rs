//! The thread that answers questions, over a connection that can only read.

use super::database::{Opened, SAMPLES, open_for_reading};
use super::{Inquiry, Question, query};
use gpukill_proto::refusal::Refusal;
use std::path::Path;
use std::sync::mpsc::Receiver;

/// Answers until it is told to close, or nobody can ask any more.
pub(super) fn run(directory: &Path, inquiries: &Receiver<Inquiry>) {
    let mut kept: Option<Opened> = None;
    while let Ok(inquiry) = inquiries.recv() {
        let Question { query, answer } = match inquiry {
            Inquiry::Question(question) if question.answer.is_closed() => continue,
            Inquiry::Question(question) => question,
            Inquiry::Close(done) => {
                drop(kept);
                // The asker may have gone on already.
                let _ = done.try_send(());
                return;
            }
        };
        let opened = match kept.take().filter(Opened::is_in_place) {
            Some(opened) => Ok(opened),
            None => open_for_reading(directory, &SAMPLES),
        };
        let result = opened.map_err(Refusal::Unavailable).and_then(|mut opened| {
            let result = query::page(&mut opened.connection, &query);
            // One that failed may be of a file that was replaced.
            if !matches!(result, Err(Refusal::Unavailable(_))) {
                kept = Some(opened);
            }
            result
        });
        // The asker may have gone away.
        let _ = answer.send(result);
    }
}
