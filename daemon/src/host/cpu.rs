//! How much processor time a process takes, between two looks at it.

use gpukill_proto::reading::Reading;
use gpukill_proto::units::Percent;
use std::time::{Duration, Instant};

/// Processor time at some moment, and what it had risen by until then.
pub(super) struct Cpu {
    ticks: u64,
    at: Instant,
    shown: Reading<Percent>,
}

/// Ticks of processor time are of 10 ms: over less than this they say nothing.
const SHORTEST: Duration = Duration::from_millis(50);

impl Cpu {
    /// At first sight nothing is known of it.
    pub(super) fn first(ticks: u64) -> Self {
        Self {
            ticks,
            at: Instant::now(),
            shown: Reading::Unsupported,
        }
    }

    /// The percent of one core since the last time.
    pub(super) fn now(&mut self, ticks: u64, at: Instant, per_second: u64) -> Reading<Percent> {
        let passed = at.saturating_duration_since(self.at);
        if passed < SHORTEST {
            return self.shown.clone();
        }
        let used = u128::from(ticks.saturating_sub(self.ticks)) * 1_000_000_000 * 100;
        let possible = passed.as_nanos() * u128::from(per_second);
        let percent = u32::try_from((used + possible / 2) / possible).unwrap_or(u32::MAX);
        *self = Self {
            ticks,
            at,
            shown: Reading::Value(Percent(percent)),
        };
        self.shown.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_counted_between_two_looks() {
        let begun = Instant::now();
        let mut cpu = Cpu {
            ticks: 1_000,
            at: begun,
            shown: Reading::Unsupported,
        };
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let percent = |percent| Reading::Value(Percent(percent));
        let moments = begun + Duration::from_millis(49);
        assert_eq!(cpu.now(1_004, moments, 100), Reading::Unsupported);
        // Eight cores for two seconds.
        assert_eq!(cpu.now(2_600, after(2), 100), percent(800));
        assert_eq!(cpu.now(2_601, after(2), 100), percent(800));
        assert_eq!(cpu.now(2_601, after(4), 100), percent(1));
        assert_eq!(cpu.now(2_601, after(6), 100), percent(0));
        // A counter that falls is no load.
        assert_eq!(cpu.now(5, after(8), 100), percent(0));
    }
}
