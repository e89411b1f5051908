//! What of a card stays as it is until somebody changes it: asked seldom, for
//! it costs as much as what changes all the time.

use super::sensors::{self, size};
use crate::backend::drm::hwmon::Hwmon;
use crate::backend::drm::lacking::Attributes;
use crate::backend::drm::sysfs;
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
    /// Everything told of its memory says that it is a piece of the host's.
    pub(super) is_host_memory: bool,
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
        let vram_total = size(&attributes.named("mem_info_vram_total"));
        let gtt_total = size(&attributes.named("mem_info_gtt_total"));
        Self {
            at,
            generation,
            is_host_memory: is_host_memory(attributes, &vram_total, &gtt_total),
            vram_total,
            gtt_total,
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

/// The greatest piece of the host's memory that a BIOS gives to a GPU whose driver writes
/// no `gpu_metrics`: beyond it a card's own memory is likelier.
const PIECE_MAX: Bytes = Bytes(4 << 30);

/// Whether the memory of a card that tells it in no other way is a piece of the host's:
/// small, all of it in the CPU's reach, less than it may take besides, and made by no
/// maker of memory (`mem_info_vram_vendor`) and without a controller of its own
/// (`mem_busy_percent`), which amdgpu shows for cards only.
fn is_host_memory(
    attributes: &Attributes,
    vram_total: &Reading<Bytes>,
    gtt_total: &Reading<Bytes>,
) -> bool {
    let (Reading::Value(own), Reading::Value(of_host)) = (vram_total, gtt_total) else {
        return false;
    };
    let visible = size(&attributes.named("mem_info_vis_vram_total"));
    let maker = sysfs::text(&attributes.named("mem_info_vram_vendor"));
    let has_no_maker = match &maker {
        Reading::Unsupported => true,
        maker => maker.known().is_some_and(|maker| maker == "unknown"),
    };
    Bytes(0) < *own
        && *own <= PIECE_MAX
        && own < of_host
        && visible == Reading::Value(*own)
        && has_no_maker
        && sysfs::number(&attributes.named("mem_busy_percent")) == Reading::Unsupported
}
