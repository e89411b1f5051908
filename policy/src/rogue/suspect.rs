//! What is known of a process that uses a GPU. `None` is not known; what there is none of
//! is empty. Every text in it is the process's own to choose.

use crate::guard::about::About;
use core::net::SocketAddr;
use gpukill_proto::rogue::Finding;
use gpukill_proto::snapshot::{GpuProcess, Parent};
use std::collections::BTreeSet;
use std::time::Duration;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Suspect {
    /// As whom it runs, by name.
    pub user: Option<String>,
    /// The kernel's name for it, `/proc/PID/comm`: 15 bytes at most.
    pub name: Option<String>,
    /// `/proc/PID/exe` as the kernel prints it, ` (deleted)` and all.
    pub executable: Option<String>,
    /// Its arguments, the first is what it calls itself.
    pub arguments: Option<Vec<String>>,
    /// The SHA-256 of its executable in small hexadecimal digits, where that was read.
    pub sha256: Option<String>,
    /// Whether it has the box's own user namespace: in another one people put what they
    /// like in the place of the system's files.
    pub is_of_the_box: Option<bool>,
    /// The image of its container; `Some(None)` where it is in none.
    pub image: Option<Option<String>>,
    /// The names of those it was started by, the nearest first.
    pub ancestors: Option<Vec<String>>,
    /// The names of the shared objects that are mapped into it, without directories.
    pub libraries: Option<BTreeSet<String>>,
    /// The ports on which it listens, TCP.
    pub listens: Option<BTreeSet<u16>>,
    /// The far ends of the TCP connections that it made; not of those that were made to it.
    pub peers: Option<BTreeSet<SocketAddr>>,
    /// What its network namespace has sent since the process holds a device.
    pub sent: Sent,
    /// How it used its devices.
    pub load: Option<Load>,
    /// How often a rule of access refused it a device; 0 where none did.
    pub refused: u32,
}

/// What a network namespace has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sent {
    /// Not known.
    #[default]
    Unknown,
    /// It has the box's own, and what it sent cannot be told from what others did.
    Shared,
    /// Bytes, of a namespace that is its own or its container's.
    Own(u64),
}

/// How a process used its devices of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// For how long it has held them.
    pub held: Duration,
    /// Of how much of that time, the last of it, the rest tells.
    pub seen: Duration,
    /// Of every thousand moments in which its utilisation is known, so many were at 90 %
    /// at least, and so many below 5 %; `None` where it is not known of nine in ten.
    pub utilization: Option<Shares>,
    /// The mean of that in percent.
    pub mean: Option<u32>,
    /// The device memory that it held, on all of them.
    pub memory: Option<Held>,
    /// The mean of the host CPUs it kept busy, in thousandths of one.
    pub host_cpu: Option<u32>,
    /// Bytes a second over PCIe, both ways, of the device that moved most.
    pub bus: Option<u64>,
}

/// Device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The least at any moment, in bytes.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Of every thousand moments, so many at which it held what it mostly held, give or
    /// take a fiftieth or 64 MiB.
    pub steady: u16,
}

/// Of every thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    /// At 90 % at least.
    pub saturated: u16,
    /// Below 5 %.
    pub idle: u16,
}

/// What the kernel adds to the path of a file that has no name any more.
const DELETED: &str = " (deleted)";

impl Suspect {
    /// What a poll tells of a process: neither what it has loaded nor whom it speaks with.
    #[must_use]
    pub fn of(process: &GpuProcess) -> Self {
        let uid = || process.uid.last_known().map(u32::to_string);
        let container = process.place.container.last_known();
        let parents = process.parents.iter();
        Self {
            user: process.user.last_known().cloned().or_else(uid),
            name: process.name.last_known().cloned(),
            executable: process.executable.last_known().cloned(),
            is_of_the_box: process.namespace_owner.last_known().map(Option::is_none),
            image: container.and_then(|container| match container {
                None => Some(None),
                Some(container) => container.image.last_known().cloned().map(Some),
            }),
            // Of a pid that no process has, nobody is known to have started it.
            ancestors: process
                .key()
                .map(|_| parents.map(|Parent { name, .. }| name.clone()).collect()),
            ..Self::default()
        }
    }

    /// What the record tells of one that was found.
    #[must_use]
    pub fn of_finding(finding: &Finding) -> Self {
        let owner = finding
            .owner
            .as_ref()
            .filter(|owner| owner.uid == finding.uid);
        let uid = || finding.uid.map(|uid| uid.to_string());
        Self {
            user: owner.map(|owner| owner.name.clone()).or_else(uid),
            name: finding.name.clone(),
            executable: finding.executable.clone(),
            // It is not recorded; whoever was allowed then was not found.
            is_of_the_box: Some(true),
            image: Some(None),
            ..Self::default()
        }
    }

    /// Whether a poll tells the same of it, but for its executable.
    #[must_use]
    pub fn is_of(&self, process: &GpuProcess) -> bool {
        let user = match (process.user.last_known(), process.uid.last_known()) {
            (Some(name), _) => self.user.as_ref() == Some(name),
            (None, Some(uid)) => self.user == Some(uid.to_string()),
            (None, None) => self.user.is_none(),
        };
        let image = match process.place.container.last_known() {
            None => self.image.is_none(),
            Some(None) => self.image == Some(None),
            Some(Some(container)) => {
                let told = container.image.last_known();
                self.image.as_ref().and_then(Option::as_ref) == told
            }
        };
        let parents = process.parents.iter().map(|parent| &parent.name);
        let ancestors = self.ancestors.iter().flatten();
        let is_of_the_box = process.namespace_owner.last_known().map(Option::is_none);
        user && image
            && self.is_of_the_box == is_of_the_box
            && self.name.as_ref() == process.name.last_known()
            && self.ancestors.is_some() == process.key().is_some()
            && ancestors.eq(parents)
    }

    /// What the store tells of one.
    #[must_use]
    pub fn of_past(about: &About) -> Self {
        let user = about.user.as_ref();
        let words = |command: &String| command.split_whitespace().map(str::to_owned).collect();
        Self {
            user: user.map(|(name, uid)| name.clone().unwrap_or_else(|| uid.to_string())),
            name: about.name.clone(),
            executable: about.executable.clone(),
            is_of_the_box: about.is_of_the_box,
            arguments: about.command.as_ref().map(words),
            image: about.image.clone(),
            ..Self::default()
        }
    }

    /// The path of its executable, without what the kernel adds.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        let path = self.executable.as_deref()?;
        Some(path.strip_suffix(DELETED).unwrap_or(path))
    }

    /// Whether its executable lies where the box says that it lies: neither in a container
    /// nor in a namespace of somebody's own. Where that is not known it does not.
    #[must_use]
    pub fn is_on_the_box(&self) -> bool {
        self.is_of_the_box == Some(true) && self.image == Some(None)
    }

    /// Whether its executable has no name any more.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        let path = self.executable.as_deref();
        path.is_some_and(|path| path.ends_with(DELETED))
    }

    /// What it is called: by the kernel, by its file, and by itself.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        let itself = self.arguments.iter().flatten().next();
        // What stands behind a blank is what it works on, in a title.
        let itself = itself.and_then(|itself| itself.split(' ').next());
        let names = [self.name.as_deref(), self.path(), itself];
        names.into_iter().flatten().map(base)
    }
}

/// The last part of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
