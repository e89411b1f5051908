//! The thread that answers queries, over read-only connections.

use super::database::{AUDIT, DatabaseKind, OpenDatabase, SAMPLES, open_for_reading};
use super::error::{StoreError, StoreErrorKind};
use super::{ReaderCommand, StoreQuery, StoreStatus, lock, restore};
use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Duration;

#[derive(Default)]
struct OpenFiles {
    samples: Option<OpenDatabase>,
    audit: Option<OpenDatabase>,
}

/// How long the first query waits for the writer, which creates the files. After that the query is
/// answered with the fault of the file.
const FIRST_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers queries until a command closes the reader, or until all senders are gone. First waits
/// until the sender of `opened` is dropped, which means that the writer has tried to open the
/// files. A file that cannot be read is reported to the writer, which checks it.
pub(super) fn run(
    directory: &Path,
    inquiries: &Receiver<ReaderCommand>,
    opened: &Receiver<()>,
    shared: &Mutex<StoreStatus>,
) {
    // Nothing is ever sent: the wait ends with the drop or with the timeout.
    let _ = opened.recv_timeout(FIRST_OPEN_TIMEOUT);
    let mut files = OpenFiles::default();
    let suspect = |kind: &DatabaseKind| {
        lock(shared).suspected.insert(kind.file);
    };
    let answer = |kind, kept: &mut _, asked| answer_query(directory, kind, kept, asked, &suspect);
    while let Ok(inquiry) = inquiries.recv() {
        match inquiry {
            ReaderCommand::Samples(asked) => answer(&SAMPLES, &mut files.samples, asked),
            ReaderCommand::Audit(asked) => answer(&AUDIT, &mut files.audit, asked),
            ReaderCommand::Close(done) => {
                drop(files);
                // The caller may have gone away.
                let _ = done.try_send(());
                return;
            }
        }
    }
}

fn answer_query(
    directory: &Path,
    kind: &'static DatabaseKind,
    kept: &mut Option<OpenDatabase>,
    asked: Box<dyn StoreQuery>,
    suspect: &impl Fn(&DatabaseKind),
) {
    let is_good = |opened: &OpenDatabase| opened.is_in_place() && opened.is_log_in_place();
    let opened = match kept.take().filter(is_good) {
        Some(opened) => Ok(opened),
        None if restore::is_unfinished(directory) => {
            let what = "a restore is not finished";
            Err(StoreError::other(&directory.join(kind.file), what))
        }
        None => open_for_reading(directory, kind),
    };
    match opened {
        Ok(mut opened) => {
            // A panic drops the sender of the answer, and so its caller gets "internal error". It
            // must not end the thread, which answers all other queries.
            let answered = catch_unwind(AssertUnwindSafe(|| {
                asked.answer(Ok(&mut opened.connection))
            }));
            match answered {
                Ok(true) => *kept = Some(opened),
                // The connection may be to a file that was replaced.
                Ok(false) => suspect(kind),
                Err(_) => tracing::error!("a query of the store panicked"),
            }
        }
        Err(fault) => {
            if fault.kind == StoreErrorKind::Corrupt {
                suspect(kind);
            }
            asked.answer(Err(Refusal::Unavailable(fault.why)));
        }
    }
}

/// A query, and the channel for its answer.
pub(super) struct PendingQuery<T, F> {
    pub(super) run: F,
    pub(super) answer: tokio::sync::oneshot::Sender<Result<T, Refusal>>,
}

impl<T, F> StoreQuery for PendingQuery<T, F>
where
    T: Send,
    F: FnOnce(&mut Connection) -> Result<T, Refusal> + Send,
{
    fn answer(self: Box<Self>, file: Result<&mut Connection, Refusal>) -> bool {
        if self.answer.is_closed() {
            return true;
        }
        let ask = self.run;
        let result = file.and_then(ask);
        let is_whole = !matches!(result, Err(Refusal::Unavailable(_)));
        // The caller may have gone away.
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
    fn panic_of_a_query_does_not_end_the_thread() {
        let directory = tempfile::tempdir().unwrap();
        let _written = database::open(directory.path(), &AUDIT).unwrap();
        let (opening, opened) = sync_channel(0);
        let (questions, asked) = sync_channel(2);
        drop(opening);
        let path = directory.path().to_owned();
        let reader = std::thread::spawn(move || {
            run(&path, &asked, &opened, &Mutex::default());
        });
        let ask = |is_broken: bool| {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let run = move |_: &mut Connection| {
                assert!(!is_broken, "expected");
                Ok::<i64, Refusal>(7)
            };
            let question = Box::new(PendingQuery { run, answer });
            questions.send(ReaderCommand::Audit(question)).unwrap();
            answered.blocking_recv()
        };
        assert!(ask(true).is_err());
        assert_eq!(ask(false), Ok(Ok(7)));
        drop(questions);
        reader.join().unwrap();
    }

    #[test]
    fn first_query_waits_for_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let (opening, opened) = sync_channel(0);
        let (questions, asked) = sync_channel(1);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let ask = |file: &mut Connection| {
            let rows = file.query_row("SELECT count(*) FROM action", [], |row| row.get(0));
            Ok::<i64, Refusal>(rows.unwrap())
        };
        let question = PendingQuery { run: ask, answer };
        questions
            .send(ReaderCommand::Audit(Box::new(question)))
            .unwrap();
        drop(questions);
        let path = directory.path().to_owned();
        let reader = std::thread::spawn(move || {
            run(&path, &asked, &opened, &Mutex::default());
        });
        // Without the wait, the reader would have answered by now.
        std::thread::sleep(Duration::from_millis(100));
        let _written = database::open(directory.path(), &AUDIT).unwrap();
        drop(opening);
        assert_eq!(answered.blocking_recv().unwrap(), Ok(0));
        reader.join().unwrap();
    }
}
