//! Which devices have reported their processes since the daemon last began to observe. A
//! process on any other device is not known to be gone: a driver takes a while to answer
//! after a start, and may come and go. A device that reports nothing for a whole day does
//! not come back.

use super::super::device_losses::DeviceLosses;
use super::super::sample::GuardSample;
use super::GuardState;
use super::evidence::ObservedRun;
use crate::usage::DeviceUsage;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceReporting {
    /// Devices that the evidence needs and that report.
    reporting: BTreeSet<DeviceId>,
    /// Other devices that the evidence needs, and for how many evaluated milliseconds they
    /// have reported nothing.
    silent: BTreeMap<DeviceId, u64>,
}

/// Evaluated milliseconds without a report after which the processes on a device count as
/// gone. A driver that is repaired, or a card that waits for an admin overnight, comes
/// back; a card that was taken out does not.
const GONE_AFTER_MS: u64 = 24 * 3_600_000;

impl DeviceReporting {
    /// Updates from the next sample, which follows the one before or comes after a gap.
    pub(crate) fn update(&mut self, sample: &GuardSample, follows: bool) {
        let is_kept = |id: &DeviceId| follows && sample.devices.contains_key(id);
        for id in self.reporting.extract_if(.., |id| !is_kept(id)) {
            self.silent.insert(id, 0);
        }
        let of_nobody = sample
            .devices
            .iter()
            .filter(|(_, it)| has_reported_none(&it.usage));
        let mut reporting_devices: BTreeSet<&DeviceId> = of_nobody.map(|(id, _)| id).into_set();
        let of_somebody = sample.runs.iter();
        let of_somebody =
            of_somebody.filter(|(_, it)| it.usage.held_ms > 0 || sample.observed_ms == 0);
        reporting_devices.extend(of_somebody.map(|(run, _)| &run.device));
        for id in reporting_devices {
            if !self.reporting.contains(id) && sample.devices.contains_key(id) {
                self.reporting.insert(id.clone());
            }
        }
        for run in sample.runs.keys() {
            if !self.reporting.contains(&run.device) && !self.silent.contains_key(&run.device) {
                self.silent.insert(run.device.clone(), 0);
            }
        }
        self.count_silence(sample.observed_ms);
    }

    /// Marks the devices that their drivers report as gone: nothing waits for them.
    fn mark_gone(&mut self, losses: &DeviceLosses) {
        let gone = self.reporting.extract_if(.., |id| losses.is_gone(id));
        let gone: Vec<DeviceId> = gone.collect();
        self.silent
            .extend(gone.into_iter().map(|id| (id, GONE_AFTER_MS)));
        for (id, ms) in &mut self.silent {
            if losses.is_gone(id) {
                *ms = GONE_AFTER_MS;
            }
        }
    }

    /// Counts the time of silent devices, and forgets them once no evidence needs them:
    /// every other device of the same evidence has reported by then, or is gone as well.
    fn count_silence(&mut self, seen_ms: u64) {
        let reported = &self.reporting;
        self.silent.retain_entries(|id, ms| {
            *ms = ms.saturating_add(seen_ms);
            !reported.contains(id) && *ms < 2 * GONE_AFTER_MS
        });
    }

    /// Whether all of these devices have reported, or will not any more.
    pub(crate) fn covers_all<'d>(&self, devices: impl IntoIterator<Item = &'d DeviceId>) -> bool {
        let is_gone = |id| self.silent.get(id).is_some_and(|ms| *ms >= GONE_AFTER_MS);
        let mut devices = devices.into_iter();
        devices.all(|id| self.reporting.contains(id) || is_gone(id))
    }
}

impl GuardState {
    /// Applies what is known beyond the samples: the devices that their drivers no longer
    /// list, even since before the daemon was started, and whether a process is alive. A
    /// violation waits for neither: what a device held that is gone, or a process that has
    /// ended, is no longer held.
    pub fn apply_losses(&mut self, losses: &DeviceLosses, lives: &dyn Fn(u32, u64) -> bool) {
        self.device_reporting.mark_gone(losses);
        let reporting = &self.device_reporting;
        let stays = |observed: &ObservedRun| {
            let run = &observed.run;
            reporting.reporting.contains(&run.device) || lives(run.pid, run.start_ticks)
        };
        let violations = self
            .violations
            .values_mut()
            .flat_map(|it| it.of.values_mut());
        for opened in violations.filter_map(|violation| violation.opened.as_mut()) {
            let evidence = &mut opened.evidence;
            // It is unknown whether processes that the evidence does not name are alive.
            if evidence.runs.len() == evidence.count as usize {
                evidence.runs.retain(stays);
                evidence.count = u32::try_from(evidence.runs.len()).unwrap_or(u32::MAX);
            }
        }
    }
}

/// Whether a device without processes has reported that there are none. A device that works
/// may have been read for its utilization alone.
const fn has_reported_none(usage: &DeviceUsage) -> bool {
    usage.free_ms > 0 || usage.held_ms > 0
}
