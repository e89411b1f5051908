//! How much memory a card has, and how much of it is used.
//!
//! A GPU on a die with a CPU has a small piece of the host's memory for itself,
//! nearly full at all times, and takes the rest of what it may from the GTT. Both
//! together are what it has: the piece alone would always look like a full GPU.

use super::sensors::size;
use crate::backend::MemoryReadings;
use crate::backend::drm::Listed;
use crate::backend::drm::lacking::Attributes;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::Bytes;

/// The card's memory. amdgpu does not tell what it reserves.
pub(super) fn of(
    attributes: &Attributes,
    total: Reading<Bytes>,
    vitals: &Vitals,
    integrated: bool,
) -> MemoryReadings {
    let used = size(&attributes.named("mem_info_vram_used"));
    let (total, used) = if integrated {
        (
            together(total, &vitals.gtt_total),
            together(used, &vitals.gtt_used),
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

/// A sum is known where both are.
fn together(own: Reading<Bytes>, of_host: &Reading<Bytes>) -> Reading<Bytes> {
    match (own, of_host) {
        (Reading::Value(own), Reading::Value(of_host)) => {
            Reading::Value(Bytes(own.0.saturating_add(of_host.0)))
        }
        (Reading::Value(_), unknown) => unknown.because(),
        (unknown, _) => unknown.because(),
    }
}

/// KFD counts what a process has of the card's own memory, and here most is the
/// host's: that it has none says nothing.
pub(super) fn without_zero(process: &mut Listed) {
    if process.memory == Reading::Value(Bytes(0)) {
        process.memory = Reading::Unsupported;
    }
}
