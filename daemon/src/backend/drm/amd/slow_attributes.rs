//! The attributes of a card that change rarely or are expensive to read.

use super::clocks;
use super::ras;
use crate::backend::drm::card::DrmCard;
use crate::backend::drm::link;
use crate::backend::drm::sysfs;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use std::path::Path;
use std::time::Duration;

/// The interval at which rarely changing values of other vendors are read.
pub(super) const READ_INTERVAL: Duration = Duration::from_secs(16);

pub(super) fn read(card: &DrmCard) -> Vitals {
    let device = card.device_directory();
    let greatest = |name: &str| clocks::read_steps(&device.join(name)).map(|steps| steps.greatest);
    let errors = ras::read_errors(&device.join("ras"));
    Vitals {
        ecc_volatile: errors.clone().map(|(uncorrected, _)| uncorrected),
        ecc_volatile_corrected: errors.map(|(_, corrected)| corrected),
        bad_pages: ras::read_bad_pages(&device.join("ras/gpu_vram_bad_pages")),
        clock_sm_max: greatest("pp_dpm_sclk"),
        clock_memory_max: greatest("pp_dpm_mclk"),
        pcie_generation_max: link::generation(&device.join("max_link_speed")),
        pcie_width_max: link::width(&device.join("max_link_width")),
        serial: read_serial(&device.join("serial_number")),
        ..Vitals::unknown(&Reading::Unsupported)
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
