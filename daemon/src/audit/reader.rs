//! The thread that answers questions, over connections that can only read.

use super::database::{AUDIT, Kind, Opened, SAMPLES, open_for_reading};
use super::trouble::{Trouble, Unusable};
use super::{Asked, Inquiry, Standing, lock, restore};
use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

/// The files, as far as they are open.
#[derive(Default)]
struct Files {
    samples: Option<Opened>,
    audit: Option<Opened>,
}

/// Answers until it is told to close, or nobody can ask any more. A file that it
/// cannot read is to be looked over by who writes it.
pub(super) fn run(directory: &Path, inquiries: &Receiver<Inquiry>, shared: &Mutex<Standing>) {
    let mut files = Files::default();
    let suspect = |kind: &Kind| {
        lock(shared).suspected.insert(kind.file);
    };
    let answer = |kind, kept: &mut _, asked| answer(directory, kind, kept, asked, &suspect);
    while let Ok(inquiry) = inquiries.recv() {
        match inquiry {
            Inquiry::Samples(asked) => answer(&SAMPLES, &mut files.samples, asked),
            Inquiry::Audit(asked) => answer(&AUDIT, &mut files.audit, asked),
            Inquiry::Away { gone, back } => {
                files = Files::default();
                // Whoever asked may have given up.
                let _ = gone.send(());
                // It is over when there is nobody left to say so.
                let _ = back.recv();
            }
            Inquiry::Close(done) => {
                drop(files);
                // The asker may have gone on already.
                let _ = done.try_send(());
                return;
            }
        }
    }
}

fn answer(
    directory: &Path,
    kind: &'static Kind,
    kept: &mut Option<Opened>,
    asked: Box<dyn Asked>,
    suspect: &impl Fn(&Kind),
) {
    let is_good = |opened: &Opened| opened.is_in_place() && opened.has_its_log();
    let opened = match kept.take().filter(is_good) {
        Some(opened) => Ok(opened),
        None if restore::is_unfinished(directory) => {
            let what = "a restore is not finished";
            Err(Unusable::other(&directory.join(kind.file), what))
        }
        None => open_for_reading(directory, kind),
    };
    match opened {
        Ok(mut opened) => {
            // One that failed may be of a file that was replaced.
            if asked.answer(Ok(&mut opened.connection)) {
                *kept = Some(opened);
            } else {
                suspect(kind);
            }
        }
        Err(fault) => {
            if fault.trouble == Trouble::Broken {
                suspect(kind);
            }
            asked.answer(Err(Refusal::Unavailable(fault.why)));
        }
    }
}

/// A question, and where its answer goes.
pub(super) struct Question<T, F> {
    pub(super) ask: F,
    pub(super) answer: tokio::sync::oneshot::Sender<Result<T, Refusal>>,
}

impl<T, F> Asked for Question<T, F>
where
    T: Send,
    F: FnOnce(&mut Connection) -> Result<T, Refusal> + Send,
{
    fn answer(self: Box<Self>, file: Result<&mut Connection, Refusal>) -> bool {
        if self.answer.is_closed() {
            return true;
        }
        let ask = self.ask;
        let result = file.and_then(ask);
        let is_whole = !matches!(result, Err(Refusal::Unavailable(_)));
        // The asker may have gone away.
        let _ = self.answer.send(result);
        is_whole
    }
}
