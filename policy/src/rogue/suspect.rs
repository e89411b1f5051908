//! The known facts about a process that uses a GPU. `None` is unknown; an empty
//! collection is known to be empty. The process controls every text here.

use crate::guard::facts::ProcessFacts;
use core::net::SocketAddr;
use gpukill_proto::model::{Ancestor, GpuProcess};
use gpukill_proto::rogue::RogueFinding;
use std::collections::BTreeSet;
use std::time::Duration;

/// The facts about a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Suspect {
    /// The user it runs as, by name.
    pub user: Option<String>,
    /// The kernel's name, `/proc/PID/comm`: at most 15 bytes.
    pub name: Option<String>,
    /// `/proc/PID/exe` as the kernel prints it, including ` (deleted)`.
    pub executable: Option<String>,
    /// The arguments; the process chooses the first, its title.
    pub arguments: Option<Vec<String>>,
    /// The SHA-256 of the executable in lower-case hexadecimal, where it was read.
    pub sha256: Option<String>,
    /// Whether it is in the host's user namespace. In another user namespace people can
    /// replace the files of the system.
    pub is_in_host_namespace: Option<bool>,
    /// The image of its container; `Some(None)` without a container.
    pub image: Option<Option<String>>,
    /// The names of its ancestors, the nearest first.
    pub ancestors: Option<Vec<String>>,
    /// The names of the mapped shared objects, without directories.
    pub libraries: Option<BTreeSet<String>>,
    /// The TCP ports on which it listens.
    pub listens: Option<BTreeSet<u16>>,
    /// The remote ends of TCP connections that it opened, without accepted ones.
    pub peers: Option<BTreeSet<SocketAddr>>,
    /// The traffic that its network namespace has sent since the process holds a device.
    pub sent: SentTraffic,
    /// How it used its devices.
    pub load: Option<DeviceLoad>,
    /// How often an access rule refused it a device.
    pub refused: u32,
}

/// The traffic that a network namespace has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SentTraffic {
    /// The amount is unknown.
    #[default]
    Unknown,
    /// It is in the host's namespace, where the traffic of processes cannot be
    /// separated.
    Shared,
    /// Bytes of a namespace that belongs to the process or its container.
    OwnNamespace(u64),
}

/// How a process used its devices recently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceLoad {
    /// How long it has held its devices.
    pub held: Duration,
    /// The observed time, at the end of the hold time, that the other fields cover.
    pub seen: Duration,
    /// The shares of the time with known utilization; `None` where it is known for less
    /// than nine tenths of the time.
    pub utilization: Option<UtilizationShares>,
    /// The mean utilization in percent.
    pub mean: Option<u32>,
    /// The device memory that it held, on all devices.
    pub memory: Option<HeldMemory>,
    /// The mean use of host CPUs, in thousandths of one CPU.
    pub host_cpu: Option<u32>,
    /// Bytes per second over PCIe in both directions, of the device with most traffic.
    pub bus_bytes: Option<u64>,
}

/// The device memory that a process held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldMemory {
    /// The minimum, in bytes.
    pub min: u64,
    /// The maximum, in bytes.
    pub max: u64,
    /// The thousandths of time at the most frequent memory level, with a tolerance of a
    /// fiftieth or 64 MiB.
    pub steady: u16,
}

/// Shares of time, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UtilizationShares {
    /// At or above 90 %.
    pub saturated: u16,
    /// Below 5 %.
    pub idle: u16,
}

/// The kernel's suffix for the path of a file without a name.
const DELETED: &str = " (deleted)";

impl Suspect {
    /// The facts from a poll, without loaded libraries and network peers.
    #[must_use]
    pub fn from_process(process: &GpuProcess) -> Self {
        let uid = || process.uid.last_known().map(u32::to_string);
        let container = process.location.container.last_known();
        let parents = process.parents.iter();
        Self {
            user: process.user.last_known().cloned().or_else(uid),
            name: process.name.last_known().cloned(),
            executable: process.executable.last_known().cloned(),
            is_in_host_namespace: process.namespace_owner.last_known().map(Option::is_none),
            image: container.and_then(|container| match container {
                None => Some(None),
                Some(container) => container.image.last_known().cloned().map(Some),
            }),
            // The ancestors of a pid without a process are unknown.
            ancestors: process
                .key()
                .map(|_| parents.map(|Ancestor { name, .. }| name.clone()).collect()),
            ..Self::default()
        }
    }

    /// The facts from a recorded finding.
    #[must_use]
    pub fn from_finding(finding: &RogueFinding) -> Self {
        let owner = finding
            .owner
            .as_ref()
            .filter(|owner| owner.uid == finding.uid);
        let uid = || finding.uid.map(|uid| uid.to_string());
        Self {
            user: owner.map(|owner| owner.name.clone()).or_else(uid),
            name: finding.name.clone(),
            executable: finding.executable.clone(),
            // This is not recorded; a process that was allowed at the time was not
            // recorded as a finding.
            is_in_host_namespace: Some(true),
            image: Some(None),
            ..Self::default()
        }
    }

    /// Whether a poll reports the same facts, except for the executable.
    #[must_use]
    pub fn matches_process(&self, process: &GpuProcess) -> bool {
        let user = match (process.user.last_known(), process.uid.last_known()) {
            (Some(name), _) => self.user.as_ref() == Some(name),
            (None, Some(uid)) => self.user == Some(uid.to_string()),
            (None, None) => self.user.is_none(),
        };
        let image = match process.location.container.last_known() {
            None => self.image.is_none(),
            Some(None) => self.image == Some(None),
            Some(Some(container)) => {
                let other_image = container.image.last_known();
                self.image.as_ref().and_then(Option::as_ref) == other_image
            }
        };
        let parents = process.parents.iter().map(|parent| &parent.name);
        let ancestors = self.ancestors.iter().flatten();
        let is_of_host = process.namespace_owner.last_known().map(Option::is_none);
        user && image
            && self.is_in_host_namespace == is_of_host
            && self.name.as_ref() == process.name.last_known()
            && self.ancestors.is_some() == process.key().is_some()
            && ancestors.eq(parents)
    }

    /// The facts from the store.
    #[must_use]
    pub fn from_store(facts: &ProcessFacts) -> Self {
        let user = facts.user.as_ref();
        let words = |command: &String| command.split_whitespace().map(str::to_owned).collect();
        Self {
            user: user.map(|(name, uid)| name.clone().unwrap_or_else(|| uid.to_string())),
            name: facts.name.clone(),
            executable: facts.executable.clone(),
            is_in_host_namespace: facts.in_host_user_namespace,
            arguments: facts.command.as_ref().map(words),
            image: facts.image.clone(),
            ..Self::default()
        }
    }

    /// The path of the executable, without the kernel's suffix.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        let path = self.executable.as_deref()?;
        Some(path.strip_suffix(DELETED).unwrap_or(path))
    }

    /// Whether the executable is the host's file at that path: neither in a container
    /// nor in another user namespace. False where that is unknown.
    #[must_use]
    pub fn has_host_executable(&self) -> bool {
        self.is_in_host_namespace == Some(true) && self.image == Some(None)
    }

    /// Whether the executable has no name any more.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        let path = self.executable.as_deref();
        path.is_some_and(|path| path.ends_with(DELETED))
    }

    /// Its names: the kernel's, the file name and its own title.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let itself = self.arguments.iter().flatten().next();
        // The text behind the first space of a title is an operand.
        let itself = itself.and_then(|itself| itself.split(' ').next());
        let names = [self.name.as_deref(), self.path(), itself];
        names.into_iter().flatten().map(file_name)
    }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
