//! Decodes stored samples for benches that check their sums; not an interface.

pub use super::restore::copy;

use super::blob::decode;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// How long each run held its device, and its shares of its owner's time: busy, idle and unknown,
/// in milliseconds. `None` if the bytes are not a sample.
#[must_use]
pub fn times(sample: &[u8]) -> Option<BTreeMap<i64, [u64; 4]>> {
    let stored = decode(sample, Timestamp(0)).ok()?;
    let runs = stored.runs.into_iter();
    let times = runs.map(|(run, it)| (run, [it.held_ms, it.busy_ms, it.idle_ms, it.unknown_ms]));
    Some(times.collect())
}
