//! Whether the wall clock can be trusted to say what is old. A clock that jumps
//! ahead for a minute must not make a week of samples look too old to keep.

use gpukill_proto::units::Timestamp;
use std::time::{Duration, Instant};

/// Watches the wall clock beside one that never jumps.
pub(super) struct SteadyClock {
    wall: Timestamp,
    monotonic: Instant,
    trusted_from: Instant,
}

/// More than this within one look is a jump and no correction.
const JUMP: Duration = Duration::from_secs(60);

/// So long after a jump the new time is believed.
const DOUBT: Duration = Duration::from_secs(3_600);

impl SteadyClock {
    /// Believes the time it starts with.
    pub(super) fn starting(wall: Timestamp, monotonic: Instant) -> Self {
        Self {
            wall,
            monotonic,
            trusted_from: monotonic,
        }
    }

    /// Whether the wall clock has not jumped for a while.
    pub(super) fn is_steady(&mut self, wall: Timestamp, monotonic: Instant) -> bool {
        let elapsed = monotonic.saturating_duration_since(self.monotonic);
        let moved = wall.since(self.wall);
        if wall < self.wall || moved.abs_diff(elapsed) > JUMP {
            self.trusted_from = monotonic + DOUBT;
        }
        (self.wall, self.monotonic) = (wall, monotonic);
        monotonic >= self.trusted_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumped_is_doubted_for_an_hour() {
        let start = Instant::now();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let wall = |n: i64| Timestamp(1_000_000_000_000).plus_seconds(60 * n);
        let mut clock = SteadyClock::starting(wall(0), start);
        assert!(clock.is_steady(wall(5), start + minutes(5)));
        // Ahead by years, and back.
        assert!(!clock.is_steady(wall(5_000_000), start + minutes(6)));
        assert!(!clock.is_steady(wall(7), start + minutes(7)));
        assert!(!clock.is_steady(wall(66), start + minutes(66)));
        assert!(clock.is_steady(wall(67), start + minutes(67)));
    }
}
