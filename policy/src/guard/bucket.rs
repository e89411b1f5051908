//! What is judged: a stretch of time, who used which device in it, and how much.
//!
//! Live it is made of a sample, in a replay of what the store kept of that sample:
//! both hold the same, and nothing else may matter to a rule.

pub use super::about::About;
use super::rules::PersonBy;
use super::schedule::Civil;
use crate::usage::{DeviceUsage, RunUsage};
use gpukill_proto::guard::JudgedRun;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// When it began, by the wall clock.
    pub from: Timestamp,
    /// When it ended, by the wall clock.
    pub until: Timestamp,
    /// How much of it was seen; 0 of the first after a gap, which tells of its
    /// moment only.
    pub seen_ms: u64,
    /// When it began, as the box's people count time: an hour from eight to nine is no
    /// part of what begins at nine.
    pub civil: Civil,
    /// Every device that was there.
    pub devices: BTreeMap<DeviceId, JudgedDevice>,
    /// Every process on every device it used.
    pub runs: BTreeMap<Arc<JudgedRun>, Judged>,
}

impl Bucket {
    /// With everything as of the person whom these rules mean.
    pub(crate) fn by(&self, person: PersonBy) -> Cow<'_, Self> {
        let mut bucket = Cow::Borrowed(self);
        for (run, judged) in &self.runs {
            if let Cow::Owned(about) = judged.about.by(person) {
                let about = Arc::new(about);
                let judged = Judged {
                    about,
                    ..judged.clone()
                };
                bucket.to_mut().runs.insert(Arc::clone(run), judged);
            }
        }
        bucket
    }
}

/// A device, in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedDevice {
    /// Its index at the end.
    pub index: u32,
    /// Its name, where it is known.
    pub name: Option<String>,
    /// Its PCI address, where it is known.
    pub pci: Option<String>,
    /// What it has, without what the driver keeps; `None` where it is not known.
    pub memory: Option<Bytes>,
    /// Its memory is the host's: shares of it mean nothing.
    pub is_unified: bool,
    /// How it was used.
    pub usage: DeviceUsage,
}

/// A process on a device, in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What is known of the process.
    pub about: Arc<About>,
    /// Since when it holds the device, as far as was seen.
    pub first_seen: Timestamp,
    /// How it used the device.
    pub usage: RunUsage,
    /// Whether it still held the device at the end.
    pub is_present: bool,
}

/// Since when a process that was first seen then holds its device: no longer than it
/// lives. The kernel tells when it began by the clock on the wall as it is now, so that
/// a clock that is set forward makes nobody older. The store keeps what was told last:
/// of a moment before that clock was set it says nothing.
#[must_use]
pub fn held_since(
    first_seen: Timestamp,
    started_at: Option<Timestamp>,
    until: Timestamp,
) -> Timestamp {
    let started_at = started_at.filter(|it| *it <= until);
    started_at.map_or(first_seen, |it| {
        first_seen.max(Timestamp(it.0.saturating_sub(TOLERANCE)))
    })
}

/// Milliseconds: who begins within a sample counts from its beginning, and the kernel
/// tells when the box was started in whole seconds.
const TOLERANCE: i64 = 60_000;
