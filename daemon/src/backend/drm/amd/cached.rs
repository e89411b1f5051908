//! Caches the values of a card that change only by an administrator's action: reading them costs as
//! much as reading those that change all the time.

use super::sensors::{self, read_size};
use crate::backend::drm::hwmon::Hwmon;
use crate::backend::drm::missing_attributes::CardAttributes;
use crate::backend::drm::sysfs;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::time::{Duration, Instant};

/// The interval of the slow attributes.
const READ_INTERVAL: Duration = Duration::from_secs(16);

/// The values of the last reading.
pub(super) struct CachedAttributes {
    read_at: Instant,
    /// The generation of KFD's topology: after a change of partitions the card counts as another
    /// one.
    generation: Option<u64>,
    pub(super) vram_total: Reading<Bytes>,
    /// All evidence says that the card's memory is part of the host's memory.
    pub(super) is_host_memory: bool,
    /// The GTT's size, the power limit and the partition modes.
    pub(super) vitals: Vitals,
}

impl CachedAttributes {
    pub(super) fn read(
        attributes: &CardAttributes,
        hwmon: Option<&Hwmon>,
        generation: Option<u64>,
        at: Instant,
    ) -> Self {
        let vram_total = read_size(&attributes.attribute("mem_info_vram_total"));
        let gtt_total = read_size(&attributes.attribute("mem_info_gtt_total"));
        let mode = |name| sensors::read_mode(&attributes.attribute(name));
        Self {
            read_at: at,
            generation,
            is_host_memory: is_host_memory(attributes, &vram_total, &gtt_total),
            vram_total,
            vitals: Vitals {
                gtt_total,
                power_limit: sensors::power_limit(hwmon),
                compute_partition: mode("current_compute_partition"),
                memory_partition: mode("current_memory_partition"),
                ..Vitals::unknown(&Reading::Unsupported)
            },
        }
    }

    /// Whether the cached values are still valid. A failed value is read again at the next poll.
    pub(super) fn is_valid(&self, generation: Option<u64>, at: Instant) -> bool {
        generation == self.generation
            && self.vram_total.failure().is_none()
            && self.vitals.failures().next().is_none()
            && at.saturating_duration_since(self.read_at) < READ_INTERVAL
    }
}

/// The largest part of the host's memory that a BIOS gives to a GPU without `gpu_metrics`: a larger
/// memory is more likely the card's own.
const MAX_HOST_PART: Bytes = Bytes(4 << 30);

/// Whether the memory of a card without other evidence is part of the host's: it is small, all of
/// it within the CPU's reach, and smaller than the GTT; it has no memory vendor
/// (`mem_info_vram_vendor`) and no memory controller of its own (`mem_busy_percent`), which amdgpu
/// shows for discrete cards only.
fn is_host_memory(
    attributes: &CardAttributes,
    vram_total: &Reading<Bytes>,
    gtt_total: &Reading<Bytes>,
) -> bool {
    let (Reading::Value(own), Reading::Value(of_host)) = (vram_total, gtt_total) else {
        return false;
    };
    let visible = read_size(&attributes.attribute("mem_info_vis_vram_total"));
    let maker = sysfs::text(&attributes.attribute("mem_info_vram_vendor"));
    let has_no_maker = match &maker {
        Reading::Unsupported => true,
        maker => maker.known().is_some_and(|maker| maker == "unknown"),
    };
    Bytes(0) < *own
        && *own <= MAX_HOST_PART
        && own < of_host
        && visible == Reading::Value(*own)
        && has_no_maker
        && sysfs::number(&attributes.attribute("mem_busy_percent")) == Reading::Unsupported
}
