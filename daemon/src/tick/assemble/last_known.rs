//! Who had each listed pid last. A driver may go on listing a process that has ended: what
//! it holds is still that process's, of the same owner and since the same time.

use super::listing::Listings;
use crate::host::process::Identity;
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The last process of each pid that fresh lists have.
#[derive(Debug, Default)]
pub(super) struct LastKnown {
    devices: BTreeMap<DeviceId, BTreeMap<u32, Last>>,
}

#[derive(Debug)]
struct Last {
    identity: Identity,
    /// When it was first missed.
    ended_at: Option<Timestamp>,
}

impl LastKnown {
    /// Takes a process that a device lists now.
    pub(super) fn remember(&mut self, device: &DeviceId, identity: &Identity) {
        let last = Last {
            identity: identity.clone(),
            ended_at: None,
        };
        let of_device = self.devices.entry(device.clone()).or_default();
        of_device.insert(identity.key.pid, last);
    }

    /// The process that a listed pid of which nothing is known now was, where it has ended,
    /// and when.
    pub(super) fn ended(
        &mut self,
        (device, pid): (&DeviceId, u32),
        listings: &Listings,
        now: Timestamp,
    ) -> Option<(Identity, Timestamp)> {
        let last = self.devices.get_mut(device)?.get_mut(&pid)?;
        // One that could not be read may be there.
        if !listings.is_still_of(device, last.identity.key)
            || !(last.ended_at.is_some() || listings.is_absent(pid))
        {
            return None;
        }
        let ended_at = *last.ended_at.get_or_insert(now);
        Some((last.identity.clone(), ended_at))
    }

    /// Forgets pids of this device that the lists name no longer, or for another process.
    pub(super) fn keep_listed(&mut self, device: &DeviceId, listings: &Listings) {
        if let Some(of_device) = self.devices.get_mut(device) {
            let is_listed = |key: ProcessKey| listings.is_still_of(device, key);
            of_device.retain(|_, last| is_listed(last.identity.key));
        }
    }

    /// Forgets devices that are no more.
    pub(super) fn keep_only(&mut self, here: &BTreeSet<&DeviceId>) {
        self.devices.retain(|device, _| here.contains(device));
    }
}
