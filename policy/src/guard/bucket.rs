//! What is judged: a stretch of time, who used which device in it, and how much.
//!
//! Live it is made of a sample, in a replay of what the store kept of that sample:
//! both hold the same, and nothing else may matter to a rule.

use super::schedule::Civil;
use crate::usage::{DeviceUsage, RunUsage};
use gpukill_proto::guard::{JudgedRun, Person};
use gpukill_proto::snapshot::{DeviceId, Place, Scheduler};
use gpukill_proto::units::{Bytes, Timestamp};
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
    /// When it ended, as the box's people count time.
    pub civil: Civil,
    /// Every device that was there.
    pub devices: BTreeMap<DeviceId, JudgedDevice>,
    /// Every process on every device it used.
    pub runs: BTreeMap<JudgedRun, Judged>,
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

/// What is known of a process. `None` is not known; what there is none of is
/// `Some(None)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Whose it is: whom to ask.
    pub owner: Option<Person>,
    /// As whom it runs: name, where there is one, and number.
    pub user: Option<(Option<String>, u32)>,
    /// Who logged in.
    pub login_uid: Option<Option<u32>>,
    /// Whether it has the box's own user namespace.
    pub is_of_the_box: Option<bool>,
    /// The names of its owner's groups.
    pub groups: Option<Vec<String>>,
    /// The kernel's name for it.
    pub name: Option<String>,
    /// The path of its executable.
    pub executable: Option<String>,
    /// Its arguments joined by blanks.
    pub command: Option<String>,
    /// The image of its container.
    pub image: Option<Option<String>>,
    /// Its systemd unit, of the system's own systemd.
    pub unit: Option<Option<String>>,
    /// The namespace of its Kubernetes pod, and the pod.
    pub pod: Option<Option<(String, String)>>,
    /// Its job in a batch scheduler.
    pub scheduler: Option<Option<(Scheduler, String)>>,
    /// The account that job is charged to, as its environment says.
    pub account: Option<Option<String>>,
    /// Its job: what names it on this box, and how `list` shows it.
    pub job: Option<(String, String)>,
    /// Whether its parent has ended.
    pub is_orphaned: Option<bool>,
}

impl About {
    /// What is known of where it runs.
    #[must_use]
    pub fn placed(mut self, place: &Place) -> Self {
        let container = place.container.last_known();
        self.image = container.and_then(|container| match container {
            None => Some(None),
            Some(container) => container.image.last_known().cloned().map(Some),
        });
        self.pod = container.and_then(|container| {
            let pod = container.as_ref().and_then(|it| it.pod.as_ref());
            match pod {
                None => Some(None),
                Some(pod) => {
                    let namespace = pod.namespace.last_known()?.clone();
                    let name = pod.name.last_known()?.clone();
                    Some(Some((namespace, name)))
                }
            }
        });
        self.unit = place.unit.last_known().map(|unit| {
            let unit = unit.as_ref().filter(|unit| unit.manager.is_none());
            unit.map(|unit| unit.name.clone())
        });
        self.scheduler = place.scheduler.last_known().map(|job| {
            let job = job.as_ref();
            job.map(|job| (job.scheduler, job.job.clone()))
        });
        self
    }
}
