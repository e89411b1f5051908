//! Command lines. The kernel reads them only under a lock of the process's memory, and a process
//! that is stuck in a driver may hold it forever.

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use crate::procfs::{read_at_most, read_failure};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{MAX_COMMAND_BYTES, sanitize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct CommandLineCache(
    pub(super) BackgroundCache<ProcessKey, PathBuf, Reading<CommandText>>,
);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandText {
    shown: String,
    arguments: Arc<[String]>,
}

const FETCH_POLICY: FetchPolicy = FetchPolicy {
    thread: "commands",
    // One stuck process is an accident. As many as this are not, and no number of threads would
    // suffice against a user who makes them on purpose.
    threads: 4,
    queue: 8_192,
    max_entries: 65_536,
    // A process requests its command line only when it is read again, which is less often.
    refresh_after: Duration::from_secs(10),
    stuck_after: Duration::from_secs(2),
};

/// How much of a command line is read. The longest escape of a byte has four bytes.
const CMDLINE_MAX: u64 = 4 * MAX_COMMAND_BYTES as u64;

/// The program that an interpreter runs comes after its options; the rest are the program's own
/// arguments.
const ARGUMENTS_MAX: usize = 32;

/// Why a command line that was just requested is unknown.
pub(super) const NOT_READ_YET: &str = "not read yet";

impl CommandLineCache {
    pub(crate) fn new() -> Self {
        Self::with_policy(FETCH_POLICY)
    }

    /// A cache in which no process counts as stuck: reads are waited for.
    #[cfg(test)]
    pub(super) fn without_stuck_limit() -> Self {
        let slow = Duration::from_secs(3_600);
        Self::with_policy(FetchPolicy {
            stuck_after: slow,
            ..FETCH_POLICY
        })
    }

    fn with_policy(policy: FetchPolicy) -> Self {
        let read = |_: &ProcessKey, file: PathBuf| {
            let bytes = read_at_most(&file, CMDLINE_MAX);
            Ok(bytes.map_or_else(read_failure, |bytes| parse_text(&bytes)))
        };
        Self(BackgroundCache::new(policy, read))
    }

    /// The command line of a process, from this file. Requests it where it is unknown or old, and
    /// never waits.
    pub(super) fn get(
        &self,
        process: ProcessKey,
        file: impl FnOnce() -> PathBuf,
    ) -> Reading<String> {
        self.text(process, file).map(|line| line.shown)
    }

    /// The first arguments of a process, each as it was given, otherwise as
    /// [`CommandLineCache::get`].
    pub(super) fn arguments(
        &self,
        process: ProcessKey,
        file: impl FnOnce() -> PathBuf,
    ) -> Reading<Arc<[String]>> {
        self.text(process, file).map(|line| line.arguments)
    }

    fn text(&self, process: ProcessKey, file: impl FnOnce() -> PathBuf) -> Reading<CommandText> {
        match self.0.get(&process, file) {
            CachedValue::Ready(line) => line,
            CachedValue::Failed | CachedValue::Pending => Reading::Failed(NOT_READ_YET.into()),
        }
    }

    pub(super) fn may_be_read_soon(&self, wanted: &BTreeSet<ProcessKey>) -> bool {
        let stuck = self.0.stuck();
        stuck.len() < FETCH_POLICY.threads && wanted.iter().any(|key| !stuck.contains(key))
    }

    /// The fault of the reads, if there is one now.
    pub(super) fn fault(&self) -> Option<String> {
        let stuck = self.0.stuck();
        let pids: Vec<String> = stuck.iter().map(|key| key.pid.to_string()).collect();
        let fault = match pids.as_slice() {
            [] => return None,
            [pid] => format!(
                "cannot read the command line of process {pid}: the process may be stuck in a \
                 driver"
            ),
            pids => format!(
                "cannot read the command lines of processes {}: they may be stuck in a driver",
                pids.join(", ")
            ),
        };
        Some(if pids.len() < FETCH_POLICY.threads {
            fault
        } else {
            format!("{fault}, and no other command line is read until one of them continues")
        })
    }
}

fn parse_text(bytes: &[u8]) -> Reading<CommandText> {
    parse_displayed(bytes).map(|shown| CommandText {
        shown,
        arguments: parse_arguments(bytes),
    })
}

fn parse_arguments(bytes: &[u8]) -> Arc<[String]> {
    bytes
        .split(|byte| *byte == 0)
        .take(ARGUMENTS_MAX)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// The displayed text. NUL bytes separate arguments; a process that rewrites its title may pad it
/// with many.
pub(super) fn parse_displayed(bytes: &[u8]) -> Reading<String> {
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
    Reading::Value(sanitize(&joined, MAX_COMMAND_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Instant;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey::new(pid, 1)
    }

    fn in_an_hour() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[test]
    fn command_line_reads_as_typed() {
        let typed = |bytes: &[u8]| parse_displayed(bytes).known().cloned();
        assert_eq!(
            typed(b"python\0train.py\0--lr\x001e-4\0").as_deref(),
            Some("python train.py --lr 1e-4")
        );
        assert_eq!(
            typed(b"nginx: worker\0\0\0\0\0").as_deref(),
            Some("nginx: worker")
        );
        assert_eq!(parse_displayed(b""), Reading::Unsupported);
        assert_eq!(parse_displayed(b"\0\0"), Reading::Unsupported);
        assert_eq!(
            typed(&[b'x'; 2048]).map(|long| long.len()),
            Some(MAX_COMMAND_BYTES)
        );
    }

    #[test]
    fn arguments_are_separate_and_bounded() {
        assert_eq!(
            *parse_arguments(b"/a b/python\0-W\0ignore\0"),
            ["/a b/python", "-W", "ignore", ""].map(String::from)
        );
        assert_eq!(parse_arguments(&[0; 2048]).len(), ARGUMENTS_MAX);
    }

    /// A directory with FIFOs. Opening one without a writer blocks forever, like a read from a
    /// stuck process.
    fn fifos(count: u32) -> (tempfile::TempDir, Vec<(ProcessKey, PathBuf)>) {
        let directory = tempfile::tempdir().unwrap();
        let fifos = (1..=count).map(|pid| {
            let fifo = directory.path().join(pid.to_string());
            let made = std::process::Command::new("mkfifo").arg(&fifo).status();
            assert!(made.unwrap().success());
            (key(pid), fifo)
        });
        let fifos = fifos.collect();
        (directory, fifos)
    }

    fn fault_when(commands: &CommandLineCache, satisfies: impl Fn(&str) -> bool) -> String {
        loop {
            if let Some(fault) = commands.fault().filter(|fault| satisfies(fault)) {
                return fault;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn stuck_process_delays_no_other() {
        let (directory, fifos) = fifos(1);
        let well = directory.path().join("well");
        std::fs::write(&well, "python\0x\0").unwrap();
        let commands = CommandLineCache::new();
        for (stuck, fifo) in &fifos {
            commands.get(*stuck, || fifo.clone());
        }
        assert_eq!(commands.get(key(9), || well.clone()).known(), None);
        let known = Reading::Value("python x".into());
        while commands.get(key(9), || well.clone()) != known {
            std::thread::yield_now();
        }
        assert_eq!(
            fault_when(&commands, |_| true),
            "cannot read the command line of process 1: the process may be stuck in a driver"
        );
        // It counts as stuck now: the deadline is not waited for.
        commands.0.settle(in_an_hour());
    }

    #[test]
    fn all_readers_stuck_stops_reading() {
        let (directory, fifos) = fifos(4);
        let well = directory.path().join("well");
        std::fs::write(&well, "python\0x\0").unwrap();
        let commands = CommandLineCache::new();
        for (stuck, fifo) in &fifos {
            commands.get(*stuck, || fifo.clone());
        }
        let all = fault_when(&commands, |fault| fault.contains("1, 2, 3, 4"));
        assert_eq!(
            all,
            "cannot read the command lines of processes 1, 2, 3, 4: they may be stuck in a driver, \
             and no other command line is read until one of them continues"
        );
        let not_yet = Reading::Failed(NOT_READ_YET.into());
        assert_eq!(commands.get(key(9), || well.clone()), not_yet);
        commands.0.settle(in_an_hour());
        assert_eq!(commands.get(key(9), || well.clone()), not_yet);

        for (_, fifo) in &fifos {
            std::fs::write(fifo, "late\0").unwrap();
        }
        while commands.fault().is_some() {
            std::thread::yield_now();
        }
        commands.0.settle(in_an_hour());
        let late = Reading::Value("late".into());
        for (stuck, fifo) in &fifos {
            assert_eq!(commands.get(*stuck, || fifo.clone()), late);
        }
        assert_eq!(
            commands.get(key(9), || well),
            Reading::Value("python x".into())
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_text(&bytes);
        }
    }
}
