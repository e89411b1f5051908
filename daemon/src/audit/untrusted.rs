//! What is stored of a sample, for whoever looks at a store from outside. For
//! benches that check its sums; no interface.

pub use super::restore::copy;

use super::packed::unpack;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// How long each run held its device, and its shares of its owner's time: busy,
/// idle and unknown, in milliseconds. `None` of bytes that are no sample.
#[must_use]
pub fn times(sample: &[u8]) -> Option<BTreeMap<i64, [u64; 4]>> {
    let stored = unpack(sample, Timestamp(0)).ok()?;
    let runs = stored.runs.into_iter();
    let times = runs.map(|(run, it)| (run, [it.held_ms, it.busy_ms, it.idle_ms, it.unknown_ms]));
    Some(times.collect())
}
