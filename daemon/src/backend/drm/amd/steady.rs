//! What of a card stays as it is until somebody changes it: asked seldom, for
//! it costs as much as what changes all the time.

use super::sensors::{self, size};
use crate::backend::drm::hwmon::Hwmon;
use crate::backend::drm::lacking::Attributes;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Bytes, Milliwatts};
use std::time::{Duration, Instant};

/// As often as what a card seldom tells.
const EVERY: Duration = Duration::from_secs(16);

/// What was read last.
pub(super) struct Steady {
    at: Instant,
    /// Of KFD's topology: a card that is divided otherwise is another one.
    generation: Option<u64>,
    pub(super) vram_total: Reading<Bytes>,
    pub(super) gtt_total: Reading<Bytes>,
    power_limit: Reading<Milliwatts>,
    compute_partition: Reading<String>,
    memory_partition: Reading<String>,
}

impl Steady {
    /// Reads it now.
    pub(super) fn read(
        attributes: &Attributes,
        hwmon: Option<&Hwmon>,
        generation: Option<u64>,
        at: Instant,
    ) -> Self {
        Self {
            at,
            generation,
            vram_total: size(&attributes.named("mem_info_vram_total")),
            gtt_total: size(&attributes.named("mem_info_gtt_total")),
            power_limit: sensors::power_limit(hwmon),
            compute_partition: sensors::mode(&attributes.named("current_compute_partition")),
            memory_partition: sensors::mode(&attributes.named("current_memory_partition")),
        }
    }

    /// Whether it can be taken for what it is now. What failed is asked for again
    /// at the next poll.
    pub(super) fn holds(&self, generation: Option<u64>, at: Instant) -> bool {
        let failures = [
            self.vram_total.failure(),
            self.gtt_total.failure(),
            self.power_limit.failure(),
            self.compute_partition.failure(),
            self.memory_partition.failure(),
        ];
        generation == self.generation
            && failures == [None; 5]
            && at.saturating_duration_since(self.at) < EVERY
    }

    /// Those vitals, with what was read here.
    pub(super) fn fill(&self, vitals: Vitals) -> Vitals {
        Vitals {
            power_limit: self.power_limit.clone(),
            compute_partition: self.compute_partition.clone(),
            memory_partition: self.memory_partition.clone(),
            ..vitals
        }
    }
}
