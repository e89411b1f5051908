//! Command lines, which the kernel gives only under a lock of the other
//! process's memory: one that is stuck in a driver may hold it for ever.

use super::asked::{Answer, Asked, Manner};
use crate::procfs::file::{failed, read_at_most};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::{COMMAND_MAX, visible};
use std::collections::BTreeSet;
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
    // One that is stuck is an accident. As many as this are no longer one, and
    // no number of threads would be enough for whoever makes them on purpose.
    threads: 4,
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
    /// Nothing is read yet.
    pub(crate) fn new() -> Self {
        Self::in_manner(MANNER)
    }

    /// Those for which nobody is ever stuck: what they read is waited for.
    #[cfg(test)]
    pub(super) fn patient() -> Self {
        let slow = Duration::from_secs(3_600);
        Self::in_manner(Manner { slow, ..MANNER })
    }

    fn in_manner(manner: Manner) -> Self {
        let read = |_: &ProcessKey, file: PathBuf| {
            let bytes = read_at_most(&file, CMDLINE_MAX);
            Ok(bytes.map_or_else(failed, |bytes| line(&bytes)))
        };
        Self(Asked::new(manner, read))
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

    /// Waits likewise for these alone.
    pub(super) fn settle_for(&self, wanted: &BTreeSet<ProcessKey>, deadline: Instant) {
        self.0.settle_for(|key| wanted.contains(key), deadline);
    }

    /// Whether one of these that is not read yet may be soon.
    pub(super) fn may_read(&self, wanted: &BTreeSet<ProcessKey>) -> bool {
        let stuck = self.stuck();
        stuck.len() < MANNER.threads && wanted.iter().any(|key| !stuck.contains(key))
    }

    /// Those that are stuck now.
    pub(super) fn stuck(&self) -> Vec<ProcessKey> {
        self.0.stuck()
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
        let stuck = self.0.stuck();
        let pids: Vec<String> = stuck.iter().map(|key| key.pid.to_string()).collect();
        let fault = match pids.as_slice() {
            [] => return None,
            [pid] => format!(
                "process {pid} does not let its command line be read: it may be stuck in a driver"
            ),
            pids => format!(
                "processes {} do not let their command lines be read: they may be stuck in a driver",
                pids.join(", ")
            ),
        };
        Some(if pids.len() < MANNER.threads {
            fault
        } else {
            format!("{fault}, and no other is read until one of them goes on")
        })
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

    /// A directory with FIFOs in it: opening one that nobody writes to waits for
    /// ever, as reading from a process that is stuck does.
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

    fn fault_when(commands: &Commands, satisfies: impl Fn(&str) -> bool) -> String {
        loop {
            if let Some(fault) = commands.fault().filter(|fault| satisfies(fault)) {
                return fault;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_cannot_be_read_delays_nobody_and_is_told() {
        let (directory, fifos) = fifos(1);
        let well = directory.path().join("well");
        std::fs::write(&well, "python\0x\0").unwrap();
        let commands = Commands::new();
        for (stuck, fifo) in &fifos {
            commands.of(*stuck, || fifo.clone());
        }
        assert_eq!(commands.of(key(9), || well.clone()).known(), None);
        let known = Reading::Value("python x".into());
        while commands.of(key(9), || well.clone()) != known {
            std::thread::yield_now();
        }
        assert_eq!(
            fault_when(&commands, |_| true),
            "process 1 does not let its command line be read: it may be stuck in a driver"
        );
        // Known to be stuck now: not even the deadline is waited for.
        commands.settle(Instant::now() + Duration::from_secs(3_600));
    }

    #[test]
    fn when_as_many_are_stuck_as_read_no_other_is_read_until_one_goes_on() {
        let (directory, fifos) = fifos(4);
        let well = directory.path().join("well");
        std::fs::write(&well, "python\0x\0").unwrap();
        let commands = Commands::new();
        for (stuck, fifo) in &fifos {
            commands.of(*stuck, || fifo.clone());
        }
        let all = fault_when(&commands, |fault| fault.contains("1, 2, 3, 4"));
        assert_eq!(
            all,
            "processes 1, 2, 3, 4 do not let their command lines be read: they may be stuck in a \
             driver, and no other is read until one of them goes on"
        );
        let not_yet = Reading::Failed(NOT_YET.into());
        assert_eq!(commands.of(key(9), || well.clone()), not_yet);
        commands.settle(Instant::now() + Duration::from_secs(3_600));
        assert_eq!(commands.of(key(9), || well.clone()), not_yet);

        for (_, fifo) in &fifos {
            std::fs::write(fifo, "late\0").unwrap();
        }
        while commands.fault().is_some() {
            std::thread::yield_now();
        }
        commands.settle(soon());
        let late = Reading::Value("late".into());
        for (stuck, fifo) in &fifos {
            assert_eq!(commands.of(*stuck, || fifo.clone()), late);
        }
        assert_eq!(
            commands.of(key(9), || well),
            Reading::Value("python x".into())
        );
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = line(&bytes);
        }
    }
}
