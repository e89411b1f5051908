//! File descriptor scan: finds the processes of the host that have a device file open.
//!
//! Device files are identified by device number: a container may give them any name. Scanning every
//! descriptor of a big host takes seconds, so a thread of its own does it in small steps, and
//! callers get the last result. A process that has not run since its last scan cannot have opened
//! anything and is scanned less often: checking that costs a hundredth of a scan.
//!
//! Files that a process has mapped and then closed are not found. Reading the mappings takes a lock
//! that a process stuck in a driver may hold.

mod denied;
mod descriptors;
pub(crate) mod full_scan;
mod procfs_scanner;
mod quota;
mod scanner;
mod schedule;
mod short_lived;
mod state;
mod worker;

use self::procfs_scanner::ProcfsScanner;
use self::scanner::FdScanner;
use self::worker::{ScanTiming, ScanWorker};
use gpukill_proto::model::ProcessKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    pub(crate) const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

/// When a device is scanned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// All the time: no other source lists its users.
    Always,
    /// On request: its driver has a list of its own.
    OnRequest,
}

/// A process's descriptor that is open on a watched device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenDescriptor {
    pub(crate) number: DeviceNumber,
    pub(crate) fd: u32,
    /// The thread with the descriptor, where the first thread does not have it: that thread has
    /// ended, or does not share its descriptors.
    pub(crate) thread: Option<u32>,
}

/// Why the result is incomplete during the first scan.
pub(crate) const FIRST_SCAN_PENDING: &str = "not all processes have been scanned yet";

/// Maps a uid to the person it belongs to.
pub(crate) type PersonMapping = Box<dyn Fn(u32) -> u32 + Send + Sync>;

/// The result of the last scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileHolders {
    pub(crate) processes: BTreeMap<ProcessKey, Vec<OpenDescriptor>>,
    /// Processes with more descriptors than are kept, because their person has too many in all.
    pub(crate) truncated: BTreeSet<ProcessKey>,
    /// Persons with short-lived processes that hold these devices one after the other: each process
    /// ends before anything can be done about it.
    pub(crate) short_lived: BTreeMap<u32, BTreeSet<DeviceNumber>>,
    /// Why other holders may exist; `None` after a scan of the descriptors of every process.
    pub(crate) incomplete_reason: Option<String>,
}

/// A handle on the scan thread: a pointer to it. Dropping the last one stops the thread.
#[derive(Clone)]
pub(crate) struct FdScanHandle(Arc<StopOnDrop>);

impl Deref for FdScanHandle {
    type Target = Arc<ScanWorker>;

    fn deref(&self) -> &Self::Target {
        &self.0.0
    }
}

/// Stops the scan when dropped.
struct StopOnDrop(Arc<ScanWorker>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl FdScanHandle {
    /// Scans below this root, `/proc` except in tests. Each user is a person.
    ///
    /// # Errors
    /// When the directory does not exist, or the system cannot start a thread.
    pub(crate) fn start(root: PathBuf) -> std::io::Result<Self> {
        Self::start_custom(
            Box::new(ProcfsScanner::open(&root)?),
            Box::new(|uid| uid),
            ScanTiming::DEFAULT,
        )
    }

    /// The same with a lookup of the person behind a uid, which must not block.
    ///
    /// # Errors
    /// When the directory does not exist, or the system cannot start a thread.
    pub(crate) fn start_with_persons(root: &Path, persons: PersonMapping) -> std::io::Result<Self> {
        Self::start_custom(
            Box::new(ProcfsScanner::open(root)?),
            persons,
            ScanTiming::DEFAULT,
        )
    }

    fn start_custom(
        scanner: Box<dyn FdScanner>,
        persons: PersonMapping,
        timing: ScanTiming,
    ) -> std::io::Result<Self> {
        let worker = ScanWorker::start(scanner, persons, timing)?;
        Ok(Self(Arc::new(StopOnDrop(worker))))
    }
}
