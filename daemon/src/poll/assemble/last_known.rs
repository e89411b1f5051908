//! The last process of each listed PID. A driver may keep listing a process that has ended: its
//! memory still belongs to that process, with the same owner and start.

use super::listing::ListedPids;
use crate::host::process::ProcessMetadata;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The last process of each PID in fresh lists.
#[derive(Debug, Default)]
pub(super) struct LastProcesses {
    devices: BTreeMap<DeviceId, BTreeMap<u32, LastProcess>>,
}

#[derive(Debug)]
struct LastProcess {
    identity: ProcessMetadata,
    /// When it was first missing.
    ended_at: Option<Timestamp>,
}

impl LastProcesses {
    /// Takes a process that a device lists now.
    pub(super) fn remember(&mut self, device: &DeviceId, identity: &ProcessMetadata) {
        let last = LastProcess {
            identity: identity.clone(),
            ended_at: None,
        };
        let of_device = self.devices.entry(device.clone()).or_default();
        of_device.insert(identity.key.pid, last);
    }

    /// The ended process of a listed PID that has no known process now, and when it ended.
    pub(super) fn ended_process(
        &mut self,
        (device, pid): (&DeviceId, u32),
        listings: &ListedPids,
        now: Timestamp,
    ) -> Option<(ProcessMetadata, Timestamp)> {
        let last = self.devices.get_mut(device)?.get_mut(&pid)?;
        // A process that could not be read may still exist.
        if !listings.still_belongs_to(device, last.identity.key)
            || !(last.ended_at.is_some() || listings.is_absent(pid))
        {
            return None;
        }
        let ended_at = *last.ended_at.get_or_insert(now);
        Some((last.identity.clone(), ended_at))
    }

    /// Forgets PIDs that the device's lists no longer have, or have for another process.
    pub(super) fn keep_listed(&mut self, device: &DeviceId, listings: &ListedPids) {
        if let Some(of_device) = self.devices.get_mut(device) {
            let is_listed = |key: ProcessKey| listings.still_belongs_to(device, key);
            of_device.retain_entries(|_, last| is_listed(last.identity.key));
        }
    }

    /// Forgets devices that are gone.
    pub(super) fn keep_only(&mut self, present: &BTreeSet<&DeviceId>) {
        self.devices
            .retain_entries(|device, _| present.contains(device));
    }
}
