//! What of a card changes seldom, or costs much to ask.

use super::clocks;
use super::ras;
use crate::backend::drm::card::Card;
use crate::backend::drm::link;
use crate::backend::drm::sysfs;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::Megahertz;
use std::path::Path;
use std::time::{Duration, Instant};

/// As often as the seldom getters of other vendors are asked.
const EVERY: Duration = Duration::from_secs(16);

/// What was read last.
pub(super) struct Seldom {
    at: Instant,
    errors: ras::Errors,
    bad_pages: Reading<u64>,
    clock_sm_max: Reading<Megahertz>,
    clock_memory_max: Reading<Megahertz>,
    pcie_generation_max: Reading<u32>,
    pcie_width_max: Reading<u32>,
    serial: Reading<String>,
}

impl Seldom {
    /// Reads it now.
    pub(super) fn read(card: &Card, at: Instant) -> Self {
        let device = card.device();
        let greatest = |name: &str| clocks::read(&device.join(name)).map(|steps| steps.greatest);
        Self {
            at,
            errors: ras::errors(&device.join("ras")),
            bad_pages: ras::bad_pages(&device.join("ras/gpu_vram_bad_pages")),
            clock_sm_max: greatest("pp_dpm_sclk"),
            clock_memory_max: greatest("pp_dpm_mclk"),
            pcie_generation_max: link::generation(&device.join("max_link_speed")),
            pcie_width_max: link::width(&device.join("max_link_width")),
            serial: serial(&device.join("serial_number")),
        }
    }

    /// Whether it is time to read it again.
    pub(super) fn is_old(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.at) >= EVERY
    }

    /// Those vitals, with what was read here.
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

/// The number on the board. One that is blank, or the same sign again and again,
/// is none: consumers' cards have no number, and some are masked.
fn serial(file: &Path) -> Reading<String> {
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
