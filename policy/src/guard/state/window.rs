//! A sliding window over minutes or hours, in at most [`MAX_SLOTS`] slots.
//!
//! Slots are aligned to the wall clock, so that a second evaluation of the same time gives
//! the same result.

use super::super::limits::milliseconds;
use super::pairs::serialize_as_list;
use crate::usage::Gauge;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

pub(crate) const MAX_SLOTS: usize = 64;

/// The content of a slot.
pub(crate) trait Merge {
    /// Adds a later value.
    fn merge(&mut self, later: Self);
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window<P> {
    /// Start of the observation.
    pub(crate) since: Timestamp,
    slots: VecDeque<WindowSlot<P>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct WindowSlot<P> {
    index: i64,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) part: P,
}

serialize_as_list!(WindowSlot<P> { index, from, until, part });

impl<P: Merge> Window<P> {
    pub(crate) const fn starting_at(since: Timestamp) -> Self {
        Self {
            since,
            slots: VecDeque::new(),
        }
    }

    /// Adds the value of this time, and drops slots older than `length`.
    pub(crate) fn add(&mut self, length: u64, from: Timestamp, until: Timestamp, part: P) {
        // One slot fewer than there is room for: the oldest may lie half outside.
        let parts = MAX_SLOTS as u64 - 1;
        let each = i64::try_from(length.div_ceil(parts).max(1)).unwrap_or(i64::MAX);
        // The end of a slot belongs to it.
        let index = until.0.saturating_sub(1).div_euclid(each);
        match self.slots.back_mut().filter(|last| last.index == index) {
            Some(last) => {
                last.until = until;
                last.part.merge(part);
            }
            None => self.slots.push_back(WindowSlot {
                index,
                from,
                until,
                part,
            }),
        }
        let is_old = |slot: &WindowSlot<P>| milliseconds(until.since(slot.until)) >= length;
        while self.slots.front().is_some_and(is_old) || self.slots.len() > MAX_SLOTS {
            self.slots.pop_front();
        }
    }

    /// The slots, oldest first.
    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = &WindowSlot<P>> {
        self.slots.iter()
    }

    /// Whether the window has been observed for all of `length` up to `until`; `None` if
    /// its subject may be older than the observation.
    pub(crate) fn covers(&self, length: u64, until: Timestamp, start: Timestamp) -> Option<bool> {
        let is_long_enough = |since: Timestamp| milliseconds(until.since(since)) >= length;
        if is_long_enough(self.since) {
            Some(true)
        } else if start < self.since && is_long_enough(start) {
            None
        } else {
            Some(false)
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct UtilizationSum {
    pub(crate) seen_ms: u64,
    /// The part of it in which the device was held, or may have been.
    pub(crate) held_ms: u64,
    /// The part of `held_ms` with a reading.
    pub(crate) known_ms: u64,
    /// Percent × milliseconds of the known time.
    pub(crate) total: u64,
}

serialize_as_list!(UtilizationSum {
    seen_ms,
    held_ms,
    known_ms,
    total
});

impl Merge for UtilizationSum {
    fn merge(&mut self, later: Self) {
        self.seen_ms = self.seen_ms.saturating_add(later.seen_ms);
        self.held_ms = self.held_ms.saturating_add(later.held_ms);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.total = self.total.saturating_add(later.total);
    }
}

impl UtilizationSum {
    /// From `seen_ms` of observation, in which the device was held for `held_ms`.
    pub(crate) fn from_gauge(gauge: &Gauge, seen_ms: u64, held_ms: u64) -> Self {
        // If the device did not report its processes, it may have been held all the time.
        let held_ms = if gauge.is_failed { seen_ms } else { held_ms };
        Self {
            seen_ms,
            held_ms,
            known_ms: gauge.known_ms.min(held_ms),
            total: u64::try_from(gauge.total).unwrap_or(u64::MAX),
        }
    }

    /// Whether the readings suffice: single polls without a reading do not change the rest.
    pub(crate) const fn is_known(&self) -> bool {
        // Nine tenths: the first poll of a process has no reading, and a driver misses
        // some.
        self.held_ms > 0 && self.known_ms.saturating_mul(10) >= self.held_ms.saturating_mul(9)
    }

    /// Upper bound, in percent × milliseconds.
    pub(crate) const fn upper_bound(&self) -> u64 {
        let unknown = self.held_ms.saturating_sub(self.known_ms);
        self.total.saturating_add(unknown.saturating_mul(100))
    }

    /// Percent × milliseconds of the whole held time. If enough is known, the rest counts
    /// like the readings; otherwise this is a lower bound.
    pub(crate) fn estimate(&self) -> u64 {
        if !self.is_known() || self.known_ms == 0 {
            return self.total;
        }
        let worked = u128::from(self.total) * u128::from(self.held_ms) / u128::from(self.known_ms);
        u64::try_from(worked).unwrap_or(u64::MAX)
    }
}

/// The use that a job made of its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct WasteSum {
    /// How long its processes held devices, summed.
    pub(crate) held_ms: u64,
    /// Percent × milliseconds.
    pub(crate) total: u64,
    /// The part of that time with a reading.
    pub(crate) known_ms: u64,
    /// Lower bound of its memory at any time, in bytes.
    pub(crate) min: u64,
    pub(crate) is_memory_unknown: bool,
    /// Whether a client was connected.
    pub(crate) has_served: bool,
    /// Whether that is unknown for some of the time.
    pub(crate) may_have_served: bool,
}

serialize_as_list!(WasteSum {
    held_ms,
    total,
    known_ms,
    min,
    is_memory_unknown,
    has_served,
    may_have_served
});

impl WasteSum {
    /// Whether readings cover what it did and held.
    pub(crate) const fn is_known(&self) -> bool {
        let load = UtilizationSum {
            seen_ms: self.held_ms,
            held_ms: self.held_ms,
            known_ms: self.known_ms,
            total: self.total,
        };
        load.is_known() && !self.is_memory_unknown
    }
}

impl Merge for WasteSum {
    fn merge(&mut self, later: Self) {
        self.held_ms = self.held_ms.saturating_add(later.held_ms);
        self.total = self.total.saturating_add(later.total);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.min = self.min.min(later.min);
        self.is_memory_unknown |= later.is_memory_unknown;
        self.has_served |= later.has_served;
        self.may_have_served |= later.may_have_served;
    }
}

/// Memory that a process held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct MemorySum {
    /// Means of samples in KiB × their milliseconds: in bytes a day would overflow.
    pub(crate) total: u64,
    pub(crate) known_ms: u64,
    pub(crate) is_unknown: bool,
}

serialize_as_list!(MemorySum {
    total,
    known_ms,
    is_unknown
});

impl Merge for MemorySum {
    fn merge(&mut self, later: Self) {
        self.total = self.total.saturating_add(later.total);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.is_unknown |= later.is_unknown;
    }
}
