//! Devices that told nothing while others were judged: no rule is judged by what is held of
//! them, and a replay says so.

use super::super::bucket::Bucket;
use super::super::losses::Losses;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{NotJudged, Subject};
use gpukill_proto::snapshot::DeviceId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Every device that was there once.
#[derive(Debug, Default)]
pub(super) struct Silences(BTreeMap<DeviceId, Silence>);

#[derive(Debug, Default)]
struct Silence {
    index: u32,
    for_ms: u64,
    /// It told nothing in the last bucket.
    is_now: bool,
}

/// A silence that is over and was no longer than this, in milliseconds, is the time that a
/// driver takes to answer after a start.
const SHORT: u64 = 60_000;

impl Silences {
    /// Looks at the next bucket, which is judged or comes before those that are.
    pub(super) fn add(&mut self, bucket: &Bucket, is_judged: bool) {
        for (id, device) in &bucket.devices {
            self.0.entry(id.clone()).or_default().index = device.index;
        }
        // The first bucket after a gap tells of a moment.
        if !is_judged || bucket.seen_ms == 0 {
            return;
        }
        for (id, silence) in &mut self.0 {
            let device = bucket.devices.get(id);
            let told_ms = device.map_or(0, |device| device.usage.seen_ms());
            let missing = bucket.seen_ms.saturating_sub(told_ms);
            // Polls come late. A sum of an hour may lack more than a moment.
            silence.is_now = missing.saturating_mul(2) >= bucket.seen_ms;
            if silence.is_now {
                silence.for_ms = silence.for_ms.saturating_add(missing);
            }
        }
    }

    /// What is told of them, the longest first, with what is lost now.
    pub(super) fn told(self, losses: &Losses) -> Vec<NotJudged> {
        let silences = self.0.into_iter();
        let silences = silences.filter(|(_, it)| it.is_now || it.for_ms > SHORT);
        let told = silences.map(|(id, silence)| NotJudged {
            rule: None,
            why: match silence.is_now {
                true => format!("GPU {} {}", silence.index, losses.why(&id)),
                false => format!("GPU {} told nothing", silence.index),
            },
            subject: Subject::Device(id),
            subjects: 1,
            for_ms: silence.for_ms,
        });
        let mut told: Vec<NotJudged> = told.collect();
        told.sort_indirect_by_key(|it| Reverse(it.for_ms));
        told
    }
}
