//! Computes how busy a client kept each engine between two readings of its counters.

use crate::backend::drm::engines::Driver;
use crate::backend::drm::fdinfo::{Engine, FdInfo};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All the time, in millionths.
pub(super) const FULL_SHARE: u64 = 1_000_000;

/// Drivers count in ticks of their own: a shorter interval gives no meaningful share, and the last
/// result is kept.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

const CLOCK_WENT_BACK: &str = "the engine's clock went back";
const CLOCK_STOPPED: &str = "the engine's clock stands still";
const ZERO_CAPACITY: &str = "not understood: an engine with a capacity of 0";

/// The counters of one client at its last reading, and the shares computed from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CounterHistory {
    read_at: Instant,
    counts: BTreeMap<String, EngineCounter>,
    /// The share of time that each engine worked for the client, in millionths. Unsupported after
    /// the first reading, unless the engine never worked.
    pub(super) shares: BTreeMap<String, Reading<u64>>,
    /// Why the client's activity is entirely unknown.
    pub(super) unknown_reason: Option<&'static str>,
}

/// A counter, and the reference for its growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineCounter {
    /// Nanoseconds, relative to the elapsed time.
    Busy(u64),
    /// Cycles, relative to all cycles of the same clock.
    Cycles { worked: u64, all: u64 },
    /// Cycles, relative to the elapsed time and the highest frequency.
    Clocked { worked: u64, hertz: u64 },
}

impl CounterHistory {
    /// The first reading of a client.
    pub(super) fn from_first_reading(fdinfo: &FdInfo, at: Instant) -> Self {
        let mut history = Self {
            read_at: at,
            counts: BTreeMap::new(),
            shares: BTreeMap::new(),
            unknown_reason: fdinfo.oversize_reason,
        };
        for (name, engine) in &fdinfo.engines {
            history.record_engine(name, engine, None, at);
        }
        history
    }

    /// The state after the next reading, with the activity since this one.
    pub(super) fn after_reading(self, fdinfo: &FdInfo, at: Instant, driver: &Driver) -> Self {
        let elapsed = at.saturating_duration_since(self.read_at);
        if self.unknown_reason.is_some() || fdinfo.oversize_reason.is_some() {
            return Self::from_first_reading(fdinfo, at);
        }
        if elapsed < MIN_INTERVAL {
            return self;
        }
        let mut next = Self {
            read_at: at,
            counts: BTreeMap::new(),
            shares: BTreeMap::new(),
            unknown_reason: None,
        };
        for (name, engine) in &fdinfo.engines {
            let before = match self.counts.get(name) {
                // The engine was not reported because its counter was 0.
                None if driver.omits_unused_engines => Some(EngineCounter::Busy(0)),
                known => known.copied(),
            };
            next.record_engine(name, engine, before, self.read_at);
        }
        if driver.omits_unused_engines {
            // A counter that fell to 0 is not reported: its greatest value stays.
            for (name, count) in self.counts {
                next.shares.entry(name.clone()).or_insert(Reading::Value(0));
                next.counts.entry(name).or_insert(count);
            }
        }
        next
    }

    /// Records an engine's counter, and its share of the time since `from`.
    fn record_engine(
        &mut self,
        name: &str,
        engine: &Engine,
        before: Option<EngineCounter>,
        from: Instant,
    ) {
        let elapsed = self.read_at.saturating_duration_since(from);
        let (count, share) = match (EngineCounter::from_engine(engine), before) {
            (Reading::Value(now), Some(before)) => now.advance(before, elapsed, capacity(engine)),
            (Reading::Value(now), None) => (now, now.initial_share()),
            // Only a frequency or a capacity: no counter.
            (Reading::Unsupported, _) => return,
            (unknown, before) => {
                self.shares.insert(name.to_owned(), unknown.as_unknown());
                self.counts
                    .extend(before.map(|count| (name.to_owned(), count)));
                return;
            }
        };
        self.counts.insert(name.to_owned(), count);
        self.shares.insert(name.to_owned(), share);
    }
}

/// The number of engines of a kind: one, unless the driver reports another.
fn capacity(engine: &Engine) -> Reading<u64> {
    match &engine.capacity {
        Reading::Unsupported => Reading::Value(1),
        Reading::Value(0) => Reading::Failed(ZERO_CAPACITY.into()),
        fdinfo => fdinfo.clone(),
    }
}

impl EngineCounter {
    /// Time is preferred: it needs no second number.
    fn from_engine(engine: &Engine) -> Reading<Self> {
        let counter = match &engine.busy {
            Reading::Unsupported => &engine.cycles,
            busy => return busy.clone().map(Self::Busy),
        };
        let Some(worked) = counter.known().copied() else {
            return counter.as_unknown();
        };
        match (&engine.total_cycles, &engine.hertz) {
            (Reading::Unsupported, hertz) => {
                hertz.clone().map(|hertz| Self::Clocked { worked, hertz })
            }
            (all, _) => all.clone().map(|all| Self::Cycles { worked, all }),
        }
    }

    /// The share of a counter without an earlier value: unknown, because the time of its growth is
    /// unknown, or 0 if it never grew. An unknown share is no fault.
    const fn initial_share(self) -> Reading<u64> {
        match self {
            Self::Busy(0) | Self::Cycles { worked: 0, .. } | Self::Clocked { worked: 0, .. } => {
                Reading::Value(0)
            }
            Self::Busy(_) | Self::Cycles { .. } | Self::Clocked { .. } => Reading::Unsupported,
        }
    }

    /// The counter to keep, and the share of the time since `before` that was worked.
    ///
    /// Drivers may let a counter fall for a while: the greatest value is kept, and the share is 0
    /// until the counter exceeds it.
    fn advance(
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
                // The GPU was reset: both counters start again.
                return (self, Reading::Failed(CLOCK_WENT_BACK.into()));
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
            // The driver reports it in another form than before.
            (Self::Busy(_) | Self::Cycles { .. } | Self::Clocked { .. }, now) => {
                return (now, now.initial_share());
            }
        };
        let share = match capacity {
            Reading::Value(_) if grown == 0 => Reading::Value(0),
            Reading::Value(_) if period == 0 => Reading::Failed(CLOCK_STOPPED.into()),
            Reading::Value(engines) => Reading::Value(busy_millionths(grown, period, engines)),
            unknown => unknown.as_unknown(),
        };
        (kept, share)
    }
}

/// In millionths, capped at the whole: a counter that was behind catches up at once.
fn busy_millionths(grown: u64, period: u128, engines: u64) -> u64 {
    let available = period.saturating_mul(u128::from(engines)).max(1);
    let part = u128::from(grown) * u128::from(FULL_SHARE) / available;
    u64::try_from(part).unwrap_or(FULL_SHARE).min(FULL_SHARE)
}

#[cfg(test)]
mod tests;
