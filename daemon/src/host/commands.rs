//! Command lines, read on a thread of their own: the kernel takes a lock of the
//! other process's memory for them, which one that is stuck in a driver may
//! hold for ever. Everybody else reads what is known by now.

use super::process::{failed, read_at_most};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::{COMMAND_MAX, visible};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known of command lines by now.
pub(crate) struct Commands {
    shared: Arc<Shared>,
    ask: SyncSender<(ProcessKey, PathBuf)>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    news: Condvar,
}

#[derive(Default)]
struct Known {
    commands: BTreeMap<ProcessKey, Entry>,
    /// The process whose command line is being read, and since when.
    reading: Option<(ProcessKey, Instant)>,
}

struct Entry {
    command: Option<Reading<String>>,
    asked: Instant,
}

/// So many command lines may wait to be read.
const QUEUE: usize = 8_192;

/// After so long one is read again: a process may execute something else, or
/// change its title.
const KEEP: Duration = Duration::from_secs(20);

/// One that takes longer is stuck, and waited for no more.
const STUCK: Duration = Duration::from_secs(2);

/// More of a command line than this is not read. Four bytes are the longest
/// escape of one.
const CMDLINE_MAX: u64 = 4 * COMMAND_MAX as u64;

impl Commands {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (ask, questions) = sync_channel(QUEUE);
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("commands".into())
            .spawn(move || read(&questions, &answers))?;
        Ok(Self { shared, ask })
    }

    /// The command line of a process, from this file. Asks for it where it is
    /// not known or old, and never waits.
    pub(super) fn of(&self, process: ProcessKey, file: PathBuf) -> Reading<String> {
        let mut known = self.shared.lock();
        let now = Instant::now();
        let entry = known.commands.get(&process);
        let due = entry.is_none_or(|entry| now.saturating_duration_since(entry.asked) > KEEP);
        if due && self.ask.try_send((process, file)).is_ok() {
            let entry = known.commands.entry(process).or_insert(Entry {
                command: None,
                asked: now,
            });
            entry.asked = now;
        }
        let entry = known.commands.get(&process);
        let command = entry.and_then(|entry| entry.command.clone());
        command.unwrap_or_else(|| Reading::Failed("not read yet".into()))
    }

    /// Forgets what is known of a process, so that it is read again.
    pub(super) fn forget(&self, process: ProcessKey) {
        self.shared.lock().commands.remove(&process);
    }

    /// Waits until everything asked so far is read, but not past `deadline`, and
    /// not for one that is stuck.
    pub(crate) fn settle(&self, deadline: Instant) {
        let mut known = self.shared.lock();
        while known.commands.values().any(|entry| entry.command.is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || known.stuck().is_some() {
                return;
            }
            let waited = self.shared.news.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets every process but these.
    pub(super) fn keep_only(&self, pids: &BTreeSet<u32>) {
        self.shared
            .lock()
            .commands
            .retain(|process, _| pids.contains(&process.pid));
    }

    /// What is wrong with reading them now.
    pub(crate) fn fault(&self) -> Option<String> {
        let process = self.shared.lock().stuck()?;
        Some(format!(
            "process {} does not let its command line be read: it may be stuck in a driver",
            process.pid
        ))
    }
}

impl Known {
    fn stuck(&self) -> Option<ProcessKey> {
        let (process, since) = self.reading?;
        (since.elapsed() > STUCK).then_some(process)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(questions: &Receiver<(ProcessKey, PathBuf)>, shared: &Shared) {
    while let Ok((process, file)) = questions.recv() {
        shared.lock().reading = Some((process, Instant::now()));
        // Without the lock: this is what may take for ever.
        let read = read_at_most(&file, CMDLINE_MAX).map_or_else(failed, |bytes| parse(&bytes));
        let mut known = shared.lock();
        known.reading = None;
        // Forgotten meanwhile: nobody asks any more.
        if let Some(entry) = known.commands.get_mut(&process) {
            entry.command = Some(read);
        }
        drop(known);
        shared.news.notify_all();
    }
}

/// Arguments are separated by NUL bytes; a process that rewrites its title may
/// pad it with many.
pub(super) fn parse(bytes: &[u8]) -> Reading<String> {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let arguments = bytes.get(..end).unwrap_or_default();
    if arguments.is_empty() {
        // Kernel threads and zombies have none.
        return Reading::Unsupported;
    }
    let joined: Vec<u8> = arguments
        .iter()
        .map(|byte| if *byte == 0 { b' ' } else { *byte })
        .collect();
    Reading::Value(visible(&joined, COMMAND_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 1,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_command_line_reads_as_it_was_typed_and_is_bounded() {
        let typed = |bytes: &[u8]| parse(bytes).known().cloned();
        assert_eq!(
            typed(b"python\0train.py\0--lr\x001e-4\0").as_deref(),
            Some("python train.py --lr 1e-4")
        );
        assert_eq!(
            typed(b"nginx: worker\0\0\0\0\0").as_deref(),
            Some("nginx: worker")
        );
        assert_eq!(parse(b""), Reading::Unsupported);
        assert_eq!(parse(b"\0\0"), Reading::Unsupported);
        assert_eq!(
            typed(&[b'x'; 2048]).map(|long| long.len()),
            Some(COMMAND_MAX)
        );
    }

    #[test]
    fn one_that_cannot_be_read_delays_nobody() {
        // Opening a FIFO that nobody writes to waits for ever, as a process that
        // is stuck does.
        let directory = tempfile::tempdir().unwrap();
        let (stuck, well) = (
            directory.path().join("stuck"),
            directory.path().join("well"),
        );
        let made = std::process::Command::new("mkfifo").arg(&stuck).status();
        assert!(made.unwrap().success());
        std::fs::write(&well, "python\0x\0").unwrap();
        let commands = Commands::start().unwrap();
        assert_eq!(commands.of(key(2), well.clone()).known(), None);
        commands.settle(soon());
        assert_eq!(
            commands.of(key(2), well.clone()),
            Reading::Value("python x".into())
        );

        commands.of(key(1), stuck);
        let begun = Instant::now();
        commands.settle(begun + Duration::from_millis(50));
        assert_eq!(commands.of(key(2), well), Reading::Value("python x".into()));
        while commands.fault().is_none() {
            std::thread::yield_now();
        }
        // Known to be stuck now: not even the deadline is waited for.
        commands.settle(Instant::now() + Duration::from_secs(3_600));
    }
}
