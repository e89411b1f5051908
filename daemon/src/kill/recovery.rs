//! Resumes the processes that an earlier daemon stopped for a kill during which the daemon itself
//! was killed.

use super::stopped::{StoppedProcesses, resume};
use super::stopped_file::{StoppedFile, read_entries};
use crate::host::process_table::ProcessTableReader;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::model::ProcessKey;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// How many PIDs the record names. The log has all.
const MAX_NAMED: usize = 50;

/// Resumes the processes that the file in this directory lists, and starts a new file. The text is
/// for the record; `None` where there was nothing to do.
pub(crate) fn recover_stopped(
    directory: &Path,
    boot: &str,
    reader: &ProcessTableReader,
) -> (StoppedProcesses, Option<String>) {
    let noted = StoppedFile::open(directory).and_then(|file| {
        let done = resume_all_left(&read_entries(&file, boot)?, reader);
        Ok((StoppedFile::start_empty(file, boot)?, done))
    });
    match noted {
        Ok((note, done)) => (StoppedProcesses::with_file(note), done),
        Err(error) => {
            tracing::error!(%error, "cannot record the processes that kills stop");
            (StoppedProcesses::default(), None)
        }
    }
}

fn resume_all_left(left: &[ProcessKey], reader: &ProcessTableReader) -> Option<String> {
    let (mut went_on, mut stayed) = (Vec::new(), Vec::new());
    for key in left {
        match resume_left(*key, reader) {
            Ok(true) => {
                tracing::warn!(
                    pid = key.pid,
                    "resumed: an interrupted kill had left it stopped"
                );
                went_on.push(key.pid);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(
                    pid = key.pid, %error,
                    "cannot resume a process that an interrupted kill left stopped: send it SIGCONT"
                );
                stayed.push(key.pid);
            }
        }
    }
    let descriptions = [
        (
            "resumed after interrupted kills had left them stopped",
            went_on,
        ),
        ("left stopped by interrupted kills and not resumed", stayed),
    ];
    let descriptions: Vec<String> = descriptions
        .into_iter()
        .filter(|(_, pids)| !pids.is_empty())
        .map(|(what, pids)| format!("{what}: {}", list_pids(&pids)))
        .collect();
    (!descriptions.is_empty()).then(|| descriptions.join("; "))
}

/// Resumes one process; false where it has ended. A process that waits on a device is not stopped
/// yet; SIGCONT cancels its pending stop.
fn resume_left(key: ProcessKey, reader: &ProcessTableReader) -> io::Result<bool> {
    let Some(pid) = i32::try_from(key.pid).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if reader.pid_of(handle.as_fd()) != Some(key.pid) {
        return Ok(false);
    }
    // Read after the handle was opened: the data is of the same process, or shows another start
    // time.
    let now = match reader.read_one(key.pid) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if now.lineage.key != key || now.state == ProcessState::Zombie {
        return Ok(false);
    }
    match resume(&handle) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The first PIDs and the number of the rest.
fn list_pids(pids: &[u32]) -> String {
    let mut words: Vec<String> = pids.iter().take(MAX_NAMED).map(u32::to_string).collect();
    if let Some(others @ 1..) = pids.len().checked_sub(MAX_NAMED) {
        words.push(format!("and {others} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::stat::Stat;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// A test process that is stopped as a kill leaves it. Killed when dropped.
    struct StoppedChild(Child);

    impl StoppedChild {
        fn new() -> Self {
            let script = "kill -STOP $$; exec sleep 1000";
            let it = Self(Command::new("sh").args(["-c", script]).spawn().unwrap());
            it.becomes("T");
            it
        }

        fn stat(&self) -> Stat {
            Stat::read(Path::new(&format!("/proc/{}", self.0.id()))).unwrap()
        }

        fn key(&self) -> ProcessKey {
            ProcessKey {
                pid: self.0.id(),
                start_ticks: self.stat().start_ticks,
            }
        }

        fn becomes(&self, states: &str) {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !states.contains(self.stat().state) {
                assert!(Instant::now() < deadline, "{}", self.stat().state);
                std::thread::yield_now();
            }
        }
    }

    impl Drop for StoppedChild {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn left_by(directory: &Path, keys: &[ProcessKey]) {
        let note = StoppedFile::start_empty(StoppedFile::open(directory).unwrap(), "boot").unwrap();
        for (position, key) in (0..).zip(keys) {
            note.write(position, *key);
        }
    }

    fn process_tables() -> ProcessTableReader {
        ProcessTableReader::new("/proc".into(), "/".into(), "")
    }

    #[test]
    fn resumes_left_processes_not_reused_pids() {
        let directory = tempfile::tempdir().unwrap();
        let (left, late_child) = (StoppedChild::new(), StoppedChild::new());
        let earlier = ProcessKey {
            start_ticks: late_child.key().start_ticks - 1,
            ..late_child.key()
        };
        let nobody = ProcessKey {
            pid: u32::MAX,
            start_ticks: 1,
        };
        left_by(directory.path(), &[earlier, nobody, left.key()]);
        let (_stopped, done) = recover_stopped(directory.path(), "boot", &process_tables());
        let pid = left.0.id();
        let expected = format!("resumed after interrupted kills had left them stopped: {pid}");
        assert_eq!(done, Some(expected));
        left.becomes("RS");
        assert_eq!(late_child.stat().state, 'T');
        // It is done once.
        let (_stopped, done) = recover_stopped(directory.path(), "boot", &process_tables());
        assert_eq!(done, None);
    }

    #[test]
    fn file_of_another_boot_resumes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = StoppedChild::new();
        left_by(directory.path(), &[stopped.key()]);
        let (_stopped, done) = recover_stopped(directory.path(), "another", &process_tables());
        assert_eq!(done, None);
        assert_eq!(stopped.stat().state, 'T');
    }

    #[test]
    fn stopped_process_is_listed_until_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let noted = || read_entries(&StoppedFile::open(directory.path()).unwrap(), "boot").unwrap();
        let (one, other) = (StoppedChild::new(), StoppedChild::new());
        let (stopped, _) = recover_stopped(directory.path(), "boot", &process_tables());
        let handle = |of: &StoppedChild| {
            let pid = i32::try_from(of.0.id()).ok().and_then(Pid::from_raw);
            std::sync::Arc::new(pidfd_open(pid.unwrap(), PidfdFlags::empty()).unwrap())
        };
        let first = stopped.stop(one.key(), &handle(&one));
        assert_eq!(noted(), [one.key()]);
        let second = stopped.stop(other.key(), &handle(&other));
        assert_eq!(noted(), [one.key(), other.key()]);
        drop(first);
        assert_eq!(noted(), [other.key()]);
        // Its position is free for another process.
        let third = stopped.stop(one.key(), &handle(&one));
        assert_eq!(noted(), [one.key(), other.key()]);
        stopped.resume_all();
        assert_eq!(noted(), []);
        one.becomes("RS");
        other.becomes("RS");
        drop((second, third));
        assert_eq!(noted(), []);
    }

    #[test]
    fn names_some_of_a_thousand() {
        let all: Vec<u32> = (1..=1_000).collect();
        assert!(list_pids(&all).ends_with(", 49, 50, and 950 more"));
        assert_eq!(
            list_pids(&all[..50]),
            all[..50]
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }

    #[test]
    fn kills_work_without_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let (stopped_processes, done) =
            recover_stopped(&directory.path().join("gone"), "boot", &process_tables());
        assert_eq!(done, None);
        let stopped = StoppedChild::new();
        let pid = i32::try_from(stopped.0.id()).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(pid.unwrap(), PidfdFlags::empty()).unwrap();
        drop(stopped_processes.stop(stopped.key(), &std::sync::Arc::new(handle)));
        stopped.becomes("RS");
    }
}
