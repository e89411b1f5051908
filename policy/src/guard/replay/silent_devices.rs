//! Devices that reported nothing while others were evaluated: no rule is evaluated by their
//! usage, and a replay reports that.

use super::super::device_losses::DeviceLosses;
use super::super::sample::GuardSample;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{UnevaluatedTime, ViolationSubject};
use gpukill_proto::model::DeviceId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Every device that was present once.
#[derive(Debug, Default)]
pub(super) struct SilentDevices(BTreeMap<DeviceId, DeviceSilence>);

#[derive(Debug, Default)]
struct DeviceSilence {
    index: u32,
    for_ms: u64,
    /// Whether it reported nothing in the last sample.
    is_silent: bool,
}

/// A silence that is over and was no longer than this, in milliseconds, is the time that a
/// driver takes to answer after a start.
const STARTUP_MS: u64 = 60_000;

impl SilentDevices {
    /// Adds the next sample, which is evaluated or comes before those that are.
    pub(super) fn add(&mut self, sample: &GuardSample, is_evaluated: bool) {
        for (id, device) in &sample.devices {
            self.0.entry(id.clone()).or_default().index = device.index;
        }
        // The first sample after a gap describes a moment only.
        if !is_evaluated || sample.observed_ms == 0 {
            return;
        }
        for (id, silence) in &mut self.0 {
            let device = sample.devices.get(id);
            let reported_ms = device.map_or(0, |device| device.usage.covered_ms());
            let missing = sample.observed_ms.saturating_sub(reported_ms);
            // Polls come late. A sum of an hour may lack more than a moment.
            silence.is_silent = missing.saturating_mul(2) >= sample.observed_ms;
            if silence.is_silent {
                silence.for_ms = silence.for_ms.saturating_add(missing);
            }
        }
    }

    /// The silent devices, the longest first, with their current losses.
    pub(super) fn into_not_evaluated(self, losses: &DeviceLosses) -> Vec<UnevaluatedTime> {
        let silences = self.0.into_iter();
        let silences = silences.filter(|(_, it)| it.is_silent || it.for_ms > STARTUP_MS);
        let times = silences.map(|(id, silence)| UnevaluatedTime {
            rule: None,
            why: match silence.is_silent {
                true => format!("GPU {} {}", silence.index, losses.reason(&id)),
                false => format!("GPU {} reported nothing", silence.index),
            },
            subject: ViolationSubject::Device(id),
            subjects: 1,
            for_ms: silence.for_ms,
        });
        let mut times: Vec<UnevaluatedTime> = times.collect();
        times.sort_indirect_by_key(|it| Reverse(it.for_ms));
        times
    }
}
