//! The attributes of a card that change rarely or are expensive to read.

use super::clocks;
use super::ras;
use crate::backend::drm::card::DrmCard;
use crate::backend::drm::link;
use crate::backend::drm::sysfs;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Megahertz;
use std::path::Path;
use std::time::{Duration, Instant};

/// The interval at which rarely changing values of other vendors are read.
const READ_INTERVAL: Duration = Duration::from_secs(16);

/// The values of the last reading.
pub(super) struct SlowAttributes {
    read_at: Instant,
    errors: ras::RasErrors,
    bad_pages: Reading<u64>,
    clock_sm_max: Reading<Megahertz>,
    clock_memory_max: Reading<Megahertz>,
    pcie_generation_max: Reading<u32>,
    pcie_width_max: Reading<u32>,
    serial: Reading<String>,
}

impl SlowAttributes {
    pub(super) fn read(card: &DrmCard, at: Instant) -> Self {
        let device = card.device_directory();
        let greatest =
            |name: &str| clocks::read_steps(&device.join(name)).map(|steps| steps.greatest);
        Self {
            read_at: at,
            errors: ras::read_errors(&device.join("ras")),
            bad_pages: ras::read_bad_pages(&device.join("ras/gpu_vram_bad_pages")),
            clock_sm_max: greatest("pp_dpm_sclk"),
            clock_memory_max: greatest("pp_dpm_mclk"),
            pcie_generation_max: link::generation(&device.join("max_link_speed")),
            pcie_width_max: link::width(&device.join("max_link_width")),
            serial: read_serial(&device.join("serial_number")),
        }
    }

    /// Whether it is time to read the attributes again.
    pub(super) fn is_old(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.read_at) >= READ_INTERVAL
    }

    /// Adds these values to `vitals`.
    pub(super) fn fill(&self, vitals: Vitals) -> Vitals {
        Vitals {
            ecc_volatile: self.errors.uncorrected.clone(),
            ecc_volatile_corrected: self.errors.corrected.clone(),
            bad_pages: self.bad_pages.clone(),
            clock_sm_max: self.clock_sm_max.clone(),
            clock_memory_max: self.clock_memory_max.clone(),
            pcie_generation_max: self.pcie_generation_max.clone(),
            pcie_width_max: self.pcie_width_max.clone(),
            serial: self.serial.clone(),
            ..vitals
        }
    }
}

/// The serial number of the board. A blank one, or one of a single repeated character, is
/// unsupported: consumer cards have none, and some are masked.
fn read_serial(file: &Path) -> Reading<String> {
    match sysfs::text(file) {
        Reading::Value(text) => {
            let mut signs = text.chars();
            let first = signs.next();
            if signs.all(|sign| Some(sign) == first) || text == "N/A" {
                return Reading::Unsupported;
            }
            Reading::Value(text.chars().take(64).collect())
        }
        unknown => unknown,
    }
}
