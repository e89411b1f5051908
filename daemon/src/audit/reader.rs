//! The thread that answers questions, over connections that can only read.

use super::database::{AUDIT, Kind, Opened, SAMPLES, open_for_reading};
use super::trouble::{Trouble, Unusable};
use super::{Asked, Inquiry, Standing, lock, restore};
use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The files, as far as they are open.
#[derive(Default)]
struct Files {
    samples: Option<Opened>,
    audit: Option<Opened>,
}

/// The longest that the first question waits for the writer, which creates the
/// files. After that the question is answered with what is wrong with them.
const FIRST_OPENING: Duration = Duration::from_secs(2);

/// Answers until an inquiry closes it, or until nobody can ask any more. Waits first
/// until the sender of `opened` is dropped: the writer has tried to open the files then.
/// A file that cannot be read is named to the writer, which checks it.
pub(super) fn run(
    directory: &Path,
    inquiries: &Receiver<Inquiry>,
    opened: &Receiver<()>,
    shared: &Mutex<Standing>,
) {
    // Nothing is ever sent: this ends by the drop or by the time.
    let _ = opened.recv_timeout(FIRST_OPENING);
    let mut files = Files::default();
    let suspect = |kind: &Kind| {
        lock(shared).suspected.insert(kind.file);
    };
    let answer = |kind, kept: &mut _, asked| answer(directory, kind, kept, asked, &suspect);
    while let Ok(inquiry) = inquiries.recv() {
        match inquiry {
            Inquiry::Samples(asked) => answer(&SAMPLES, &mut files.samples, asked),
            Inquiry::Audit(asked) => answer(&AUDIT, &mut files.audit, asked),
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

#[cfg(test)]
mod tests {
    use super::super::database;
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn the_first_question_waits_until_the_writer_has_made_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let (opening, opened) = sync_channel(0);
        let (questions, asked) = sync_channel(1);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let ask = |file: &mut Connection| {
            let rows = file.query_row("SELECT count(*) FROM action", [], |row| row.get(0));
            Ok::<i64, Refusal>(rows.unwrap())
        };
        let question = Question { ask, answer };
        questions.send(Inquiry::Audit(Box::new(question))).unwrap();
        drop(questions);
        let path = directory.path().to_owned();
        let reader = std::thread::spawn(move || {
            run(&path, &asked, &opened, &Mutex::default());
        });
        // The reader would have answered by now.
        std::thread::sleep(Duration::from_millis(100));
        let _written = database::open(directory.path(), &AUDIT).unwrap();
        drop(opening);
        assert_eq!(answered.blocking_recv().unwrap(), Ok(0));
        reader.join().unwrap();
    }
}
