//! How busy a client kept each engine between two readings of its counters.

use crate::backend::drm::engines::Driver;
use crate::backend::drm::fdinfo::{Engine, FdInfo};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All the time.
pub(super) const WHOLE: u64 = 1_000_000;

/// Drivers count in ticks of their own: less time than this tells nothing, and
/// what was found before still holds.
const SHORTEST: Duration = Duration::from_millis(10);

const BACK: &str = "the engine's clock went back";
const STILL: &str = "the engine's clock stands still";
const NO_SUCH: &str = "not understood: an engine with a capacity of 0";

/// The counters of one client at its last reading, and what they told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History {
    at: Instant,
    counts: BTreeMap<String, Count>,
    /// The part of its time that each engine worked for the client, in
    /// millionths. Unsupported at first sight, unless it never worked.
    pub(super) shares: BTreeMap<String, Reading<u64>>,
    /// Why it is not known at all what the client does.
    pub(super) unknown: Option<&'static str>,
}

/// A counter, and what its growth is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// Nanoseconds, by the time that went by.
    Busy(u64),
    /// Cycles, by all cycles of the same clock.
    Cycles { worked: u64, all: u64 },
    /// Cycles, by the time that went by and the most cycles a second.
    Clocked { worked: u64, hertz: u64 },
}

impl History {
    /// The first reading of a client.
    pub(super) fn first(told: &FdInfo, at: Instant) -> Self {
        let mut history = Self {
            at,
            counts: BTreeMap::new(),
            shares: BTreeMap::new(),
            unknown: told.too_much,
        };
        for (name, engine) in &told.engines {
            history.take(name, engine, None, at);
        }
        history
    }

    /// What the client did since: the next reading after this one.
    pub(super) fn next(self, told: &FdInfo, at: Instant, driver: &Driver) -> Self {
        let elapsed = at.saturating_duration_since(self.at);
        if self.unknown.is_some() || told.too_much.is_some() {
            return Self::first(told, at);
        }
        if elapsed < SHORTEST {
            return self;
        }
        let mut next = Self {
            at,
            counts: BTreeMap::new(),
            shares: BTreeMap::new(),
            unknown: None,
        };
        for (name, engine) in &told.engines {
            let before = match self.counts.get(name) {
                // It was not told because it was 0.
                None if driver.only_when_used => Some(Count::Busy(0)),
                known => known.copied(),
            };
            next.take(name, engine, before, self.at);
        }
        if driver.only_when_used {
            // A counter that fell to 0 is one that fell: the greatest stays.
            for (name, count) in self.counts {
                next.shares.entry(name.clone()).or_insert(Reading::Value(0));
                next.counts.entry(name).or_insert(count);
            }
        }
        next
    }

    /// Takes an engine's counters, and what they tell of the time since `from`.
    fn take(&mut self, name: &str, engine: &Engine, before: Option<Count>, from: Instant) {
        let elapsed = self.at.saturating_duration_since(from);
        let (count, share) = match (Count::of(engine), before) {
            (Reading::Value(now), Some(before)) => now.after(before, elapsed, capacity(engine)),
            (Reading::Value(now), None) => (now, now.at_first()),
            // Its frequency alone, or how many there are: no counter.
            (Reading::Unsupported, _) => return,
            (unknown, before) => {
                self.shares.insert(name.to_owned(), unknown.because());
                self.counts
                    .extend(before.map(|count| (name.to_owned(), count)));
                return;
            }
        };
        self.counts.insert(name.to_owned(), count);
        self.shares.insert(name.to_owned(), share);
    }
}

/// How many engines of a kind there are: one, where nothing else is told.
fn capacity(engine: &Engine) -> Reading<u64> {
    match &engine.capacity {
        Reading::Unsupported => Reading::Value(1),
        Reading::Value(0) => Reading::Failed(NO_SUCH.into()),
        told => told.clone(),
    }
}

impl Count {
    /// Time is preferred: it needs no second number.
    fn of(engine: &Engine) -> Reading<Self> {
        let counter = match &engine.busy {
            Reading::Unsupported => &engine.cycles,
            busy => return busy.clone().map(Self::Busy),
        };
        let Some(worked) = counter.known().copied() else {
            return counter.because();
        };
        match (&engine.total_cycles, &engine.hertz) {
            (Reading::Unsupported, hertz) => {
                hertz.clone().map(|hertz| Self::Clocked { worked, hertz })
            }
            (all, _) => all.clone().map(|all| Self::Cycles { worked, all }),
        }
    }

    /// What share is known of a counter that was not seen before: when it grew is
    /// not, but for one that never did. That is no fault.
    const fn at_first(self) -> Reading<u64> {
        match self {
            Self::Busy(0) | Self::Cycles { worked: 0, .. } | Self::Clocked { worked: 0, .. } => {
                Reading::Value(0)
            }
            Self::Busy(_) | Self::Cycles { .. } | Self::Clocked { .. } => Reading::Unsupported,
        }
    }

    /// What to remember, and what share of the time since `before` was worked.
    ///
    /// Drivers may let a counter fall for a while: the greatest that was seen
    /// stays, and until it is passed nothing was done.
    fn after(
        self,
        before: Self,
        elapsed: Duration,
        capacity: Reading<u64>,
    ) -> (Self, Reading<u64>) {
        let (kept, grown, period) = match (before, self) {
            (Self::Busy(before), Self::Busy(now)) => (
                Self::Busy(now.max(before)),
                now.saturating_sub(before),
                elapsed.as_nanos(),
            ),
            (Self::Cycles { all: before, .. }, Self::Cycles { all, .. }) if all < before => {
                // The GPU was reset: both start again.
                return (self, Reading::Failed(BACK.into()));
            }
            (
                Self::Cycles {
                    worked: before,
                    all: from,
                },
                Self::Cycles { worked, all },
            ) => (
                Self::Cycles {
                    worked: worked.max(before),
                    all,
                },
                worked.saturating_sub(before),
                u128::from(all - from),
            ),
            (Self::Clocked { worked: before, .. }, Self::Clocked { worked, hertz }) => (
                Self::Clocked {
                    worked: worked.max(before),
                    hertz,
                },
                worked.saturating_sub(before),
                u128::from(hertz).saturating_mul(elapsed.as_nanos()) / 1_000_000_000,
            ),
            // It is told in another way than before.
            (Self::Busy(_) | Self::Cycles { .. } | Self::Clocked { .. }, now) => {
                return (now, now.at_first());
            }
        };
        let share = match capacity {
            Reading::Value(_) if grown == 0 => Reading::Value(0),
            Reading::Value(_) if period == 0 => Reading::Failed(STILL.into()),
            Reading::Value(engines) => Reading::Value(part(grown, period, engines)),
            unknown => unknown.because(),
        };
        (kept, share)
    }
}

/// In millionths, and never more than all of it: a counter that was behind
/// catches up at once.
fn part(grown: u64, period: u128, engines: u64) -> u64 {
    let available = period.saturating_mul(u128::from(engines)).max(1);
    let part = u128::from(grown) * u128::from(WHOLE) / available;
    u64::try_from(part).unwrap_or(WHOLE).min(WHOLE)
}

#[cfg(test)]
mod tests;
