//! Which devices have told who uses them, since the daemon last began to look. Of
//! another nobody is known to be gone: a driver takes a while to answer after a start,
//! and may come and go.

use super::super::bucket::Bucket;
use crate::usage::DeviceUsage;
use gpukill_proto::snapshot::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is in sight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    told: BTreeSet<DeviceId>,
}

impl Sight {
    /// Looks at the next bucket, that follows the one before or comes after a gap.
    pub(crate) fn look(&mut self, bucket: &Bucket, follows: bool) {
        if !follows {
            self.told.clear();
        }
        self.told.retain(|id| bucket.devices.contains_key(id));
        let of_nobody = bucket.devices.iter().filter(|(_, it)| has_told(&it.usage));
        let mut tell: BTreeSet<&DeviceId> = of_nobody.map(|(id, _)| id).collect();
        let of_somebody = bucket.runs.iter();
        let of_somebody = of_somebody.filter(|(_, it)| it.usage.held_ms > 0 || bucket.seen_ms == 0);
        tell.extend(of_somebody.map(|(run, _)| &run.device));
        for id in tell {
            if !self.told.contains(id) && bucket.devices.contains_key(id) {
                self.told.insert(id.clone());
            }
        }
    }

    /// Whether all of these have told.
    pub(crate) fn is_of_all<'d>(&self, devices: impl IntoIterator<Item = &'d DeviceId>) -> bool {
        devices.into_iter().all(|id| self.told.contains(id))
    }
}

/// Whether a device that tells of nobody has told that there is nobody. One that works
/// may have been asked for that alone.
const fn has_told(usage: &DeviceUsage) -> bool {
    usage.free_ms > 0 || usage.held_ms > 0
}
