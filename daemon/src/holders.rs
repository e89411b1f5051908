//! Who has which device file open, of all processes of the box.
//!
//! Files are known by their device number: a container may call them what it
//! likes. Looking at every descriptor of a big box takes seconds, so a thread of
//! its own does it, a little at a time; whoever asks gets what was last seen. Who
//! has not run since the last look has opened nothing since, and is looked at less
//! often: that costs a hundredth of a look.
//!
//! What is not looked at is what a process has mapped and closed since. To read
//! what is mapped takes a lock that a process stuck in a driver may hold.

mod fleeting;

mod look;

mod descriptors;

mod tree;

mod table;

mod refused;

mod shares;

mod state;

mod search;

pub mod measured;

use self::look::Eyes;
use self::search::{Pace, Search};
use self::tree::Tree;
use crate::faults::FaultCause;
use gpukill_proto::snapshot::ProcessKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// When holders of a device are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// All the time: nothing else tells who uses it.
    Always,
    /// When somebody asks: its driver has a list of its own.
    OnRequest,
}

/// A descriptor of a process that is open on a watched device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Open {
    pub(crate) number: DeviceNumber,
    pub(crate) fd: u32,
    /// The thread whose descriptor it is, where the process's first thread does not
    /// have it: it has ended, or does not share its descriptors.
    pub(crate) thread: Option<u32>,
}

/// Why there may be other holders, as long as the first look goes on.
pub(crate) const NOT_YET: &str = "not looked everywhere yet";

/// Tells which person is behind a user.
pub(crate) type Persons = Box<dyn Fn(u32) -> u32 + Send + Sync>;

/// What was last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) processes: BTreeMap<ProcessKey, Vec<Open>>,
    /// Those of which fewer descriptors are kept than they have, because all of their
    /// person have too many.
    pub(crate) cut: BTreeSet<ProcessKey>,
    /// Persons whose processes hold these one after the other, each for a moment: they end
    /// before anything can be done about them.
    pub(crate) fleeting: BTreeMap<u32, BTreeSet<DeviceNumber>>,
    /// Why there may be others; `None` after a look at every process, of which the
    /// descriptors were looked at and nothing else.
    pub(crate) unseen: Option<String>,
}

/// The asking side of the thread that looks. Dropping the last one ends it.
#[derive(Clone)]
pub(crate) struct Holders {
    search: Arc<Ending>,
}

/// Ends the search when it is dropped.
struct Ending(Arc<Search>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Holders {
    /// Looks below this root, `/proc` but in tests. Each user is a person.
    ///
    /// # Errors
    /// When there is no such directory, or the system gives no thread.
    pub(crate) fn start(root: PathBuf) -> std::io::Result<Self> {
        Self::start_with(
            Box::new(Tree::open(&root)?),
            Box::new(|uid| uid),
            Pace::REAL,
        )
    }

    /// The same, where this tells which person is behind a user. It must not wait.
    ///
    /// # Errors
    /// When there is no such directory, or the system gives no thread.
    pub(crate) fn start_among(root: &Path, persons: Persons) -> std::io::Result<Self> {
        Self::start_with(Box::new(Tree::open(root)?), persons, Pace::REAL)
    }

    fn start_with(eyes: Box<dyn Eyes>, persons: Persons, pace: Pace) -> std::io::Result<Self> {
        let search = Search::start(eyes, persons, pace)?;
        Ok(Self {
            search: Arc::new(Ending(search)),
        })
    }

    /// Looks for holders of these from now on. They take the place of those that
    /// the same watcher named before.
    pub(crate) fn watch(&self, watcher: &'static str, numbers: BTreeSet<DeviceNumber>, when: When) {
        self.search.0.watch(watcher, numbers, when);
    }

    /// Looks at these processes soon: a driver says that they use a device.
    pub(crate) fn hint(&self, pids: impl IntoIterator<Item = u32>) {
        self.search.0.hint(pids);
    }

    /// These have ended, or their pids are others' now: whoever knows need not wait
    /// for the next look at them.
    pub(crate) fn forget(&self, holders: impl IntoIterator<Item = ProcessKey>) {
        self.search.0.forget(holders);
    }

    /// Looks at every process now, and at those of its threads that have descriptors
    /// of their own. The answer is for [`Self::has_looked`].
    pub(crate) fn look_now(&self) -> u64 {
        self.search.0.look_now()
    }

    /// Whether every process was looked at since that [`Self::look_now`], but for
    /// those that do not answer.
    pub(crate) fn has_looked(&self, since: u64) -> bool {
        self.search.0.has_looked(since)
    }

    /// What was last seen.
    pub(crate) fn found(&self) -> Arc<Found> {
        self.search.0.found()
    }

    /// What is wrong with looking, if anything.
    pub(crate) fn fault(&self) -> Option<FaultCause> {
        self.search.0.fault()
    }
}
