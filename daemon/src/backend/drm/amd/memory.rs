//! Computes the total and used memory of a card.
//!
//! A GPU on a die with a CPU has a small, nearly always full part of the host's memory for itself,
//! and takes the rest from the GTT. Its memory is the sum of both: the part alone would always look
//! like a full GPU.

use super::sensors::read_size;
use crate::backend::MemoryReadings;
use crate::backend::drm::KfdProcess;
use crate::backend::drm::missing_attributes::CardAttributes;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;

/// The card's memory. amdgpu does not report a reserved amount.
pub(super) fn read_memory(
    attributes: &CardAttributes,
    total: Reading<Bytes>,
    vitals: &Vitals,
    integrated: bool,
) -> MemoryReadings {
    let used = read_size(&attributes.attribute("mem_info_vram_used"));
    let (total, used) = if integrated {
        (
            add_known(total, &vitals.gtt_total),
            add_known(used, &vitals.gtt_used),
        )
    } else {
        (total, used)
    };
    let (total, used) = match (&total, &used) {
        (Reading::Value(Bytes(0)), _) => (Reading::Unsupported, Reading::Unsupported),
        (Reading::Value(all), Reading::Value(part)) if part > all => {
            let what = format!("{} of {} bytes", part.0, all.0);
            (total, Reading::impossible(what))
        }
        _ => (total, used),
    };
    MemoryReadings {
        total,
        used,
        reserved: Reading::Unsupported,
        unified: integrated,
    }
}

/// The sum, known where both values are.
fn add_known(own: Reading<Bytes>, of_host: &Reading<Bytes>) -> Reading<Bytes> {
    match (own, of_host) {
        (Reading::Value(own), Reading::Value(of_host)) => {
            Reading::Value(Bytes(own.0.saturating_add(of_host.0)))
        }
        (Reading::Value(_), unknown) => unknown.as_unknown(),
        (unknown, _) => unknown.as_unknown(),
    }
}

/// KFD counts the card's own memory, and on such a GPU most memory is the host's: a zero there
/// means unknown.
pub(super) fn clear_zero_memory(process: &mut KfdProcess) {
    if process.memory == Reading::Value(Bytes(0)) {
        process.memory = Reading::Unsupported;
    }
}
