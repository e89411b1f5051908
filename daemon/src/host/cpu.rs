//! The processor time that a process uses between two polls.

use gpukill_proto::reading::Reading;
use gpukill_proto::units::Percent;
use std::time::{Duration, Instant};

/// The processor time at some moment, and the share up to then.
pub(super) struct CpuUsage {
    ticks: u64,
    at: Instant,
    last_percent: Reading<Percent>,
}

/// A tick of processor time is 10 ms: over a shorter time it is meaningless.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

impl CpuUsage {
    /// The first reading has no share yet.
    pub(super) fn new(ticks: u64) -> Self {
        Self {
            ticks,
            at: Instant::now(),
            last_percent: Reading::Unsupported,
        }
    }

    /// The percent of one core since the last update.
    pub(super) fn update(&mut self, ticks: u64, at: Instant, per_second: u64) -> Reading<Percent> {
        let passed = at.saturating_duration_since(self.at);
        if passed < MIN_INTERVAL {
            return self.last_percent.clone();
        }
        let used = u128::from(ticks.saturating_sub(self.ticks)) * 1_000_000_000 * 100;
        let possible = passed.as_nanos() * u128::from(per_second);
        let percent = u32::try_from((used + possible / 2) / possible).unwrap_or(u32::MAX);
        *self = Self {
            ticks,
            at,
            last_percent: Reading::Value(Percent(percent)),
        };
        self.last_percent.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_counted_between_readings() {
        let start = Instant::now();
        let mut cpu = CpuUsage {
            ticks: 1_000,
            at: start,
            last_percent: Reading::Unsupported,
        };
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let percent = |percent| Reading::Value(Percent(percent));
        let moments = start + Duration::from_millis(49);
        assert_eq!(cpu.update(1_004, moments, 100), Reading::Unsupported);
        // Eight cores for two seconds.
        assert_eq!(cpu.update(2_600, after(2), 100), percent(800));
        assert_eq!(cpu.update(2_601, after(2), 100), percent(800));
        assert_eq!(cpu.update(2_601, after(4), 100), percent(1));
        assert_eq!(cpu.update(2_601, after(6), 100), percent(0));
        // A counter that falls is no load.
        assert_eq!(cpu.update(5, after(8), 100), percent(0));
    }
}
