//! Command lines, which the kernel gives only under a lock of the other
//! process's memory: one that is stuck in a driver may hold it for ever.

use super::asked::{Answer, Asked, Manner};
use crate::procfs::file::{failed, read_at_most};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::{COMMAND_MAX, visible};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is known of command lines by now.
pub(crate) struct Commands(Asked<ProcessKey, PathBuf, Reading<Line>>);

/// One command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    shown: String,
    arguments: Arc<[String]>,
}

const MANNER: Manner = Manner {
    thread: "commands",
    queue: 8_192,
    most: 65_536,
    // Asked for only when a process is looked at anew, which is more seldom.
    keep: Duration::from_secs(10),
    slow: Duration::from_secs(2),
};

/// More of a command line than this is not read. Four bytes are the longest
/// escape of one.
const CMDLINE_MAX: u64 = 4 * COMMAND_MAX as u64;

/// What an interpreter runs stands behind its options; the rest is that
/// program's own.
const ARGUMENTS_MAX: usize = 32;

/// Why a command line is not known that was asked for just now.
pub(super) const NOT_YET: &str = "not read yet";

impl Commands {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let read = |_: &ProcessKey, file: PathBuf| {
            let bytes = read_at_most(&file, CMDLINE_MAX);
            Ok(bytes.map_or_else(failed, |bytes| line(&bytes)))
        };
        Ok(Self(Asked::start(MANNER, read)?))
    }

    /// The command line of a process, from this file. Asks for it where it is
    /// not known or old, and never waits.
    pub(super) fn of(
        &self,
        process: ProcessKey,
        file: impl FnOnce() -> PathBuf,
    ) -> Reading<String> {
        map(self.line_of(process, file), |line| line.shown)
    }

    /// The first arguments of a process, each as it was given, otherwise as
    /// [`Commands::of`].
    pub(super) fn arguments_of(
        &self,
        process: ProcessKey,
        file: impl FnOnce() -> PathBuf,
    ) -> Reading<Arc<[String]>> {
        map(self.line_of(process, file), |line| line.arguments)
    }

    fn line_of(&self, process: ProcessKey, file: impl FnOnce() -> PathBuf) -> Reading<Line> {
        match self.0.of(&process, file) {
            Answer::Given(line) => line,
            Answer::Failed | Answer::Pending => Reading::Failed(NOT_YET.into()),
        }
    }

    /// Forgets what is known of a process, so that it is read again.
    pub(super) fn forget(&self, process: ProcessKey) {
        self.0.forget(&process);
    }

    /// Waits until everything asked so far is read, but not past `deadline`, and
    /// not for one that is stuck.
    pub(super) fn settle(&self, deadline: Instant) {
        self.0.settle(deadline);
    }

    /// Forgets every process but these.
    pub(super) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.0.keep_only(wanted);
    }

    /// Grows whenever another command line is known than before.
    pub(super) fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// What is wrong with reading them now.
    pub(super) fn fault(&self) -> Option<String> {
        let process = self.0.stuck()?;
        Some(format!(
            "process {} does not let its command line be read: it may be stuck in a driver",
            process.pid
        ))
    }
}

fn map<T>(line: Reading<Line>, part: impl FnOnce(Line) -> T) -> Reading<T> {
    match line {
        Reading::Value(line) => Reading::Value(part(line)),
        unknown => unknown.because(),
    }
}

fn line(bytes: &[u8]) -> Reading<Line> {
    match parse(bytes) {
        Reading::Value(shown) => Reading::Value(Line {
            shown,
            arguments: arguments(bytes),
        }),
        unknown => unknown.because(),
    }
}

fn arguments(bytes: &[u8]) -> Arc<[String]> {
    bytes
        .split(|byte| *byte == 0)
        .take(ARGUMENTS_MAX)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// What is shown. Arguments are separated by NUL bytes; a process that rewrites its title may
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
    use proptest::prelude::*;

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
    fn arguments_stay_apart_and_are_bounded() {
        assert_eq!(
            *arguments(b"/a b/python\0-W\0ignore\0"),
            ["/a b/python", "-W", "ignore", ""].map(String::from)
        );
        assert_eq!(arguments(&[0; 2048]).len(), ARGUMENTS_MAX);
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
        assert_eq!(commands.of(key(2), || well.clone()).known(), None);
        commands.settle(soon());
        let known = Reading::Value("python x".into());
        assert_eq!(commands.of(key(2), || well.clone()), known);

        commands.of(key(1), || stuck);
        let begun = Instant::now();
        commands.settle(begun + Duration::from_millis(50));
        assert_eq!(commands.of(key(2), || well), known);
        while commands.fault().is_none() {
            std::thread::yield_now();
        }
        // Known to be stuck now: not even the deadline is waited for.
        commands.settle(Instant::now() + Duration::from_secs(3_600));
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = line(&bytes);
        }
    }
}
