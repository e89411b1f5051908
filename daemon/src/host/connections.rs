//! How many clients are connected to the TCP ports that a process listens on, and with
//! whom it has connected itself.
//!
//! A thread of its own looks: a table of sockets may be megabytes. As a client counts
//! every established connection to a port on which the process has a listening
//! socket open, whoever holds the connection: a server that forks serves through its
//! children, and each that has the listening socket open tells of all of them.
//! Other kinds of sockets are not counted.

mod look;

mod table;

#[doc(hidden)]
pub mod measured;

pub(crate) mod untrusted;

use core::net::SocketAddr;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use look::Look;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process, and the table of a network namespace, are looked at again after so
/// long.
const EVERY: Duration = Duration::from_secs(10);

/// What is older is told as old: the thread does not keep up, or is stuck.
const OLD: Duration = Duration::from_secs(60);

/// A look that takes longer is not waited for.
const SLOW: Duration = Duration::from_secs(1);

/// So many processes are looked at.
const MOST: usize = 4_096;

/// The asking side of the thread that looks. Dropping it ends the thread.
pub(crate) struct Connections(Arc<Shared>);

/// What a look found of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    /// How many are connected to it; unsupported where it listens on nothing.
    clients: Reading<u32>,
    /// `None` where that is not known.
    sockets: Option<Sockets>,
}

/// The TCP sockets that a process has open in its own network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// The ports on which it listens: the 64 lowest of them.
    pub(crate) listens: BTreeSet<u16>,
    /// The far ends of its established connections, but of those at whose port anybody in
    /// its network listens: they may have been made to it, and a stranger chooses the port
    /// that he comes from. 256 of them, and those of this very box only as far as there is
    /// room.
    pub(crate) peers: BTreeSet<SocketAddr>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    wanted: BTreeSet<ProcessKey>,
    found: BTreeMap<ProcessKey, (Found, Instant)>,
    /// Since when it looks.
    since: Option<Instant>,
    ended: bool,
}

impl Connections {
    /// Looks below this root, `/proc` but in tests.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(root: PathBuf) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("connections".into())
            .spawn(move || answers.look_again_and_again(Look::below(root)))?;
        Ok(Self(shared))
    }

    /// Looks at these from now on, and at those that are new at once.
    pub(crate) fn want(&self, processes: BTreeSet<ProcessKey>) {
        let mut known = self.0.lock();
        if known.wanted == processes {
            return;
        }
        known.found.retain(|key, _| processes.contains(key));
        known.wanted = processes;
        self.0.changed.notify_all();
    }

    /// Waits until all of them were looked at once, but not past `deadline`, and
    /// not for a look that takes long.
    pub(crate) fn settle(&self, deadline: Instant) {
        let mut known = self.0.lock();
        while known.is_worth_waiting() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many are connected to a process, by the last look at it; unsupported
    /// where it listens on nothing.
    pub(crate) fn of(&self, process: ProcessKey) -> Reading<u32> {
        let known = self.0.lock();
        match known.found.get(&process) {
            Some((found, at)) if at.elapsed() > OLD => {
                let seconds = u32::try_from(at.elapsed().as_secs()).unwrap_or(u32::MAX);
                found.clients.clone().aged(seconds)
            }
            Some((found, _)) => found.clients.clone(),
            None => Reading::Failed("not looked at yet".into()),
        }
    }

    /// The sockets of a process, by the last look at it; `None` where it was not looked
    /// at, they could not be told, or that is too long ago.
    pub(crate) fn sockets_of(&self, process: ProcessKey) -> Option<Sockets> {
        let known = self.0.lock();
        let (found, at) = known.found.get(&process)?;
        let sockets = found.sockets.as_ref().filter(|_| at.elapsed() <= OLD);
        sockets.cloned()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Known {
    fn is_worth_waiting(&self) -> bool {
        let is_slow = self.since.is_some_and(|since| since.elapsed() > SLOW);
        let mut wanted = self.wanted.iter().take(MOST);
        !is_slow && wanted.any(|key| !self.found.contains_key(key))
    }

    /// Those that are new, or were looked at too long ago.
    fn due(&self) -> Vec<ProcessKey> {
        let is_due = |key: &&ProcessKey| {
            let found = self.found.get(key);
            found.is_none_or(|(_, at)| at.elapsed() >= EVERY)
        };
        let wanted = self.wanted.iter().take(MOST);
        wanted.filter(is_due).copied().collect()
    }

    /// How long until somebody is due.
    fn wait(&self) -> Duration {
        let looked_at = self.found.values().map(|(_, at)| at.elapsed());
        let oldest = looked_at.max().unwrap_or_default();
        EVERY.saturating_sub(oldest)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_again_and_again(&self, mut look: Look) {
        while let Some(due) = self.next() {
            let found = look.at(&due);
            let now = Instant::now();
            let mut known = self.lock();
            known.since = None;
            for (key, found) in found {
                if known.wanted.contains(&key) {
                    known.found.insert(key, (found, now));
                }
            }
            self.changed.notify_all();
        }
    }

    /// Whom to look at, when it is time; `None` at the end.
    fn next(&self) -> Option<Vec<ProcessKey>> {
        let mut known = self.lock();
        loop {
            if known.ended {
                return None;
            }
            let due = known.due();
            if !due.is_empty() {
                known.since = Some(Instant::now());
                return Some(due);
            }
            let wait = known.wait().max(Duration::from_millis(100));
            let waited = self.changed.wait_timeout(known, wait);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
