//! Lets those go on whom an earlier run of the daemon stopped, for a kill in the
//! middle of which it was killed itself.

use super::frozen::{Frozen, go_on};
use super::note::{Note, left};
use crate::host::crowd::Crowds;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::snapshot::ProcessKey;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// So many are named in the record; the log has all.
const MOST_NAMED: usize = 50;

/// Lets go on whom the note in this directory names, and begins another one. What
/// was done is for the record; `None` where there was nothing to do.
pub(crate) fn recover(directory: &Path, boot: &str, crowds: &Crowds) -> (Frozen, Option<String>) {
    let noted = Note::open(directory).and_then(|file| {
        let done = let_all_go_on(&left(&file, boot)?, crowds);
        Ok((Note::begin(file, boot)?, done))
    });
    match noted {
        Ok((note, done)) => (Frozen::noted_in(note), done),
        Err(error) => {
            tracing::error!(%error, "whom a kill stops cannot be noted");
            (Frozen::default(), None)
        }
    }
}

fn let_all_go_on(left: &[ProcessKey], crowds: &Crowds) -> Option<String> {
    let (mut went_on, mut stayed) = (Vec::new(), Vec::new());
    for key in left {
        match let_go_on(*key, crowds) {
            Ok(true) => {
                tracing::warn!(pid = key.pid, "goes on: a kill had left it stopped");
                went_on.push(key.pid);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(pid = key.pid, %error, "a kill left it stopped: send it SIGCONT");
                stayed.push(key.pid);
            }
        }
    }
    let said = [
        ("let go on, as kills had left them stopped", went_on),
        ("left stopped by kills, and not let go on", stayed),
    ];
    let said = said.into_iter().filter(|(_, pids)| !pids.is_empty());
    let said: Vec<String> = said
        .map(|(what, pids)| format!("{what}: {}", named(&pids)))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Lets one go on; false where it has ended. It may not be stopped yet, where it
/// waits on a device: then it will not be.
fn let_go_on(key: ProcessKey, crowds: &Crowds) -> io::Result<bool> {
    let Some(pid) = i32::try_from(key.pid).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if crowds.pid_of(handle.as_fd()) != Some(key.pid) {
        return Ok(false);
    }
    // Read after the handle was opened, so it is of the same process, or shows
    // another start.
    let now = match crowds.one(key.pid) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if now.kin.key != key || now.state == ProcessState::Zombie {
        return Ok(false);
    }
    match go_on(&handle) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// These pids, or as many as are named and the number of the others.
fn named(pids: &[u32]) -> String {
    let mut words: Vec<String> = pids.iter().take(MOST_NAMED).map(u32::to_string).collect();
    if let Some(others @ 1..) = pids.len().checked_sub(MOST_NAMED) {
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

    /// A process of the test that is stopped, as a kill leaves it. Killed when
    /// dropped.
    struct Stopped(Child);

    impl Stopped {
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

    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn left_by(directory: &Path, keys: &[ProcessKey]) {
        let note = Note::begin(Note::open(directory).unwrap(), "boot").unwrap();
        for (place, key) in (0..).zip(keys) {
            note.write(place, *key);
        }
    }

    fn crowds() -> Crowds {
        Crowds::new("/proc".into(), "/".into(), "")
    }

    #[test]
    fn who_was_left_stopped_goes_on_and_whoever_has_the_pid_of_one_that_ended_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (left, heir) = (Stopped::new(), Stopped::new());
        let earlier = ProcessKey {
            start_ticks: heir.key().start_ticks - 1,
            ..heir.key()
        };
        let nobody = ProcessKey {
            pid: u32::MAX,
            start_ticks: 1,
        };
        left_by(directory.path(), &[earlier, nobody, left.key()]);
        let (_frozen, done) = recover(directory.path(), "boot", &crowds());
        let pid = left.0.id();
        let expected = format!("let go on, as kills had left them stopped: {pid}");
        assert_eq!(done, Some(expected));
        left.becomes("RS");
        assert_eq!(heir.stat().state, 'T');
        // It is done once.
        let (_frozen, done) = recover(directory.path(), "boot", &crowds());
        assert_eq!(done, None);
    }

    #[test]
    fn a_note_of_another_boot_lets_nobody_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = Stopped::new();
        left_by(directory.path(), &[stopped.key()]);
        let (_frozen, done) = recover(directory.path(), "another", &crowds());
        assert_eq!(done, None);
        assert_eq!(stopped.stat().state, 'T');
    }

    #[test]
    fn who_is_stopped_is_noted_until_it_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let noted = || left(&Note::open(directory.path()).unwrap(), "boot").unwrap();
        let (one, other) = (Stopped::new(), Stopped::new());
        let (frozen, _) = recover(directory.path(), "boot", &crowds());
        let handle = |of: &Stopped| {
            let pid = i32::try_from(of.0.id()).ok().and_then(Pid::from_raw);
            std::sync::Arc::new(pidfd_open(pid.unwrap(), PidfdFlags::empty()).unwrap())
        };
        let first = frozen.stop(one.key(), &handle(&one));
        assert_eq!(noted(), [one.key()]);
        let second = frozen.stop(other.key(), &handle(&other));
        assert_eq!(noted(), [one.key(), other.key()]);
        drop(first);
        assert_eq!(noted(), [other.key()]);
        // Its place is another's now.
        let third = frozen.stop(one.key(), &handle(&one));
        assert_eq!(noted(), [one.key(), other.key()]);
        frozen.end();
        assert_eq!(noted(), []);
        one.becomes("RS");
        other.becomes("RS");
        drop((second, third));
        assert_eq!(noted(), []);
    }

    #[test]
    fn a_thousand_are_counted_and_some_named() {
        let all: Vec<u32> = (1..=1_000).collect();
        assert!(named(&all).ends_with(", 49, 50, and 950 more"));
        assert_eq!(
            named(&all[..50]),
            all[..50]
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }

    #[test]
    fn where_nothing_can_be_noted_kills_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let (frozen, done) = recover(&directory.path().join("gone"), "boot", &crowds());
        assert_eq!(done, None);
        let stopped = Stopped::new();
        let pid = i32::try_from(stopped.0.id()).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(pid.unwrap(), PidfdFlags::empty()).unwrap();
        drop(frozen.stop(stopped.key(), &std::sync::Arc::new(handle)));
        stopped.becomes("RS");
    }
}
