//! Limits how many bytes people add to the record in an hour: the record is only added to, and
//! any user can cause rows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The period of the allowance.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) trait AllowanceHolder: Ord {
    /// Whether this person has room whatever the others use.
    fn is_exempt_from_total(&self) -> bool;
}

/// The part of the hour's allowance that was used.
pub(super) struct ByteAllowance<P> {
    /// The bytes an hour for one person, and for all without an exemption.
    max_bytes_per_person: usize,
    max_bytes: usize,
    since: Option<Instant>,
    used: BTreeMap<P, usize>,
    /// The sum for all without an exemption.
    used_by_all: usize,
}

impl<P: AllowanceHolder> ByteAllowance<P> {
    pub(super) const fn new(max_bytes_per_person: usize, max_bytes: usize) -> Self {
        Self {
            max_bytes_per_person,
            max_bytes,
            since: None,
            used: BTreeMap::new(),
            used_by_all: 0,
        }
    }

    /// Whether the person may add so many bytes; if so, counts them.
    pub(super) fn use_bytes(&mut self, person: P, bytes: usize, now: Instant) -> bool {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= HOUR;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                ..Self::new(self.max_bytes_per_person, self.max_bytes)
            };
        }
        let is_exempt = person.is_exempt_from_total();
        let used = self.used.get(&person).copied().unwrap_or(0);
        let fits = used + bytes <= self.max_bytes_per_person
            && (is_exempt || self.used_by_all + bytes <= self.max_bytes);
        // A person without room takes no memory either.
        if fits {
            self.used.insert(person, used + bytes);
            if !is_exempt {
                self.used_by_all += bytes;
            }
        }
        fits
    }
}
