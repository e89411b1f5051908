//! The last so many minutes or hours of something, in at most [`SLOTS`] parts.
//!
//! Parts lie where the wall clock puts them, so that whoever looks at the same time
//! again sees the same.

use super::super::limits::milliseconds;
use crate::usage::Gauge;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The most parts of a window.
pub(crate) const SLOTS: usize = 64;

/// What a part of a window holds.
pub(crate) trait Part {
    /// Adds what came after.
    fn merge(&mut self, later: Self);
}

/// The last of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window<P> {
    /// Since when it has been looked at.
    pub(crate) since: Timestamp,
    slots: VecDeque<Slot<P>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot<P> {
    index: i64,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) part: P,
}

impl<P: Part> Window<P> {
    pub(crate) const fn from(since: Timestamp) -> Self {
        Self {
            since,
            slots: VecDeque::new(),
        }
    }

    /// Adds what was between these moments, and lets go what is older than `length`.
    pub(crate) fn add(&mut self, length: u64, from: Timestamp, until: Timestamp, part: P) {
        // One part less than there is room for: the oldest may lie half outside.
        let parts = SLOTS as u64 - 1;
        let each = i64::try_from(length.div_ceil(parts).max(1)).unwrap_or(i64::MAX);
        // The moment that a part ends at is its own.
        let index = until.0.saturating_sub(1).div_euclid(each);
        match self.slots.back_mut().filter(|last| last.index == index) {
            Some(last) => {
                last.until = until;
                last.part.merge(part);
            }
            None => self.slots.push_back(Slot {
                index,
                from,
                until,
                part,
            }),
        }
        let is_old = |slot: &Slot<P>| milliseconds(until.since(slot.until)) >= length;
        while self.slots.front().is_some_and(is_old) || self.slots.len() > SLOTS {
            self.slots.pop_front();
        }
    }

    /// Its parts, oldest first.
    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot<P>> {
        self.slots.iter()
    }

    /// Whether it has been looked at for all of `length` up to `until`; `None` where it
    /// could have been there before.
    pub(crate) fn covers(&self, length: u64, until: Timestamp, began: Timestamp) -> Option<bool> {
        let is_long_enough = |since: Timestamp| milliseconds(until.since(since)) >= length;
        if is_long_enough(self.since) {
            Some(true)
        } else if began < self.since && is_long_enough(began) {
            None
        } else {
            Some(false)
        }
    }
}

/// Utilisation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) seen_ms: u64,
    /// Of which it could be worked: the device was held, or may have been.
    pub(crate) held_ms: u64,
    /// Of which a reading tells.
    pub(crate) known_ms: u64,
    /// Percent × milliseconds, of the time that is known.
    pub(crate) total: u64,
}

impl Part for Load {
    fn merge(&mut self, later: Self) {
        self.seen_ms = self.seen_ms.saturating_add(later.seen_ms);
        self.held_ms = self.held_ms.saturating_add(later.held_ms);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.total = self.total.saturating_add(later.total);
    }
}

impl Load {
    /// Of a stretch of so much time, in which a device was held for so long.
    pub(crate) fn of(gauge: &Gauge, seen_ms: u64, held_ms: u64) -> Self {
        // Where the device did not tell who uses it, it may have been held all the time.
        let held_ms = if gauge.is_failed { seen_ms } else { held_ms };
        Self {
            seen_ms,
            held_ms,
            known_ms: gauge.known_ms.min(held_ms),
            total: u64::try_from(gauge.total).unwrap_or(u64::MAX),
        }
    }

    /// Whether readings tell of it: single polls without one say nothing else of the rest.
    pub(crate) const fn is_known(&self) -> bool {
        // Nine tenths: a process's first poll has no reading, and a driver misses some.
        self.held_ms > 0 && self.known_ms.saturating_mul(10) >= self.held_ms.saturating_mul(9)
    }

    /// The most that it may be, in percent × milliseconds.
    pub(crate) const fn most(&self) -> u64 {
        let unknown = self.held_ms.saturating_sub(self.known_ms);
        self.total.saturating_add(unknown.saturating_mul(100))
    }

    /// Percent × milliseconds of the whole time that it was held: where it is known, as if
    /// the rest had been like what readings tell of; else the least that it may be.
    pub(crate) fn worked(&self) -> u64 {
        if !self.is_known() || self.known_ms == 0 {
            return self.total;
        }
        let worked = u128::from(self.total) * u128::from(self.held_ms) / u128::from(self.known_ms);
        u64::try_from(worked).unwrap_or(u64::MAX)
    }
}

/// What a job did with what it held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waste {
    /// How long its processes held devices, added up.
    pub(crate) held_ms: u64,
    /// Percent × milliseconds.
    pub(crate) total: u64,
    /// How much of that time readings tell of.
    pub(crate) known_ms: u64,
    /// The least that it held, in bytes, as far as is known.
    pub(crate) least: u64,
    pub(crate) is_memory_unknown: bool,
    /// Whether somebody was connected to it.
    pub(crate) has_served: bool,
    /// Whether that is not known of some of the time.
    pub(crate) may_have_served: bool,
}

impl Waste {
    /// Whether readings tell what it did and held.
    pub(crate) const fn is_known(&self) -> bool {
        let load = Load {
            seen_ms: self.held_ms,
            held_ms: self.held_ms,
            known_ms: self.known_ms,
            total: self.total,
        };
        load.is_known() && !self.is_memory_unknown
    }
}

impl Part for Waste {
    fn merge(&mut self, later: Self) {
        self.held_ms = self.held_ms.saturating_add(later.held_ms);
        self.total = self.total.saturating_add(later.total);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.least = self.least.min(later.least);
        self.is_memory_unknown |= later.is_memory_unknown;
        self.has_served |= later.has_served;
        self.may_have_served |= later.may_have_served;
    }
}

/// Memory that a process held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Means of buckets in KiB × their milliseconds: of bytes a day would overflow.
    pub(crate) total: u64,
    pub(crate) known_ms: u64,
    pub(crate) is_unknown: bool,
}

impl Part for Held {
    fn merge(&mut self, later: Self) {
        self.total = self.total.saturating_add(later.total);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.is_unknown |= later.is_unknown;
    }
}
