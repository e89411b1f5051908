//! Decides whether the wall clock can be trusted to say what is old. A clock that jumps ahead for a
//! minute must not make a week of samples look too old to keep, nor must a clock that is years
//! ahead when the host starts.

use gpukill_proto::units::Timestamp;
use std::time::{Duration, Instant};

/// Compares the wall clock with a monotonic clock.
pub(super) struct ClockGuard {
    wall: Timestamp,
    monotonic: Instant,
    trusted_from: Instant,
    /// Since the last jump, or the start.
    steady_since: Instant,
    /// A time that was right, and the monotonic time of it. The inner `None` means that no such
    /// time exists, the outer that it was not looked up yet.
    reference: Option<Option<(Timestamp, Instant)>>,
}

/// A larger change between two checks is a jump, not a correction.
const MIN_JUMP: Duration = Duration::from_secs(60);

/// How long after a jump the new time is not trusted.
const DISTRUST_TIME: Duration = Duration::from_secs(3_600);

/// How long the clock must be steady until it alone decides what is deleted, even against the known
/// time.
const LONG_DISTRUST_TIME: Duration = Duration::from_secs(86_400);

/// How far the wall clock may be ahead of the known time meanwhile.
const LEEWAY_SECONDS: i64 = 3_600;

impl ClockGuard {
    /// Trusts the time at the start.
    pub(super) fn new(wall: Timestamp, monotonic: Instant) -> Self {
        Self {
            wall,
            monotonic,
            trusted_from: monotonic,
            steady_since: monotonic,
            reference: None,
        }
    }

    /// Whether the wall clock has not jumped for a while.
    pub(super) fn is_steady(&mut self, wall: Timestamp, monotonic: Instant) -> bool {
        let elapsed = monotonic.saturating_duration_since(self.monotonic);
        let moved = wall.since(self.wall);
        if wall < self.wall || moved.abs_diff(elapsed) > MIN_JUMP {
            self.trusted_from = monotonic + DISTRUST_TIME;
            self.steady_since = monotonic;
            let before = (self.wall, self.monotonic);
            if let Some(known) = &mut self.reference {
                known.get_or_insert(before);
            }
        }
        (self.wall, self.monotonic) = (wall, monotonic);
        monotonic >= self.trusted_from
    }

    /// The time by which old history is deleted; `None` if no time can be trusted. It is the wall
    /// clock after a steady day. Until then it is at most the end of the recorded history at the
    /// start, from `recorded`, plus the time since.
    pub(super) fn trusted_time<E>(
        &mut self,
        wall: Timestamp,
        monotonic: Instant,
        recorded: impl FnOnce() -> Result<Option<Timestamp>, E>,
    ) -> Result<Option<Timestamp>, E> {
        if self.reference.is_none() {
            self.reference = Some(recorded()?.map(|at| (at, monotonic)));
        }
        if !self.is_steady(wall, monotonic) {
            return Ok(None);
        }
        if monotonic.saturating_duration_since(self.steady_since) >= LONG_DISTRUST_TIME {
            self.reference = Some(Some((wall, monotonic)));
            return Ok(Some(wall));
        }
        let latest = self.reference.flatten().map(|(at, then)| {
            let since = monotonic.saturating_duration_since(then).as_secs();
            let since = i64::try_from(since).unwrap_or(i64::MAX);
            at.plus_seconds(since.saturating_add(LEEWAY_SECONDS))
        });
        Ok(Some(latest.map_or(wall, |latest| latest.min(wall))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_is_distrusted_for_an_hour() {
        let start = Instant::now();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let wall = |n: i64| Timestamp(1_000_000_000_000).plus_seconds(60 * n);
        let mut clock = ClockGuard::new(wall(0), start);
        assert!(clock.is_steady(wall(5), start + minutes(5)));
        // Ahead by years, and back.
        assert!(!clock.is_steady(wall(5_000_000), start + minutes(6)));
        assert!(!clock.is_steady(wall(7), start + minutes(7)));
        assert!(!clock.is_steady(wall(66), start + minutes(66)));
        assert!(clock.is_steady(wall(67), start + minutes(67)));
    }

    /// Ten years, in minutes.
    const YEARS: i64 = 10 * 365 * 24 * 60;

    /// The trusted time for each pair of minutes since the start and minutes of the wall clock; in
    /// minutes.
    fn believed(clock: &mut ClockGuard, start: Instant, looks: &[(u64, i64)]) -> Vec<Option<i64>> {
        let wall = |minutes: i64| Timestamp(minutes * 60_000);
        let never = || -> Result<Option<Timestamp>, ()> { unreachable!("it was asked before") };
        let looks = looks.iter().map(|&(after, says)| {
            let now = start + Duration::from_secs(60 * after);
            let believed = clock.trusted_time(wall(says), now, never).unwrap();
            believed.map(|at| at.0 / 60_000)
        });
        looks.collect()
    }

    fn starting(says: i64, recorded: Option<i64>, start: Instant) -> ClockGuard {
        let wall = |minutes: i64| Timestamp(minutes * 60_000);
        let mut clock = ClockGuard::new(wall(says), start);
        let recorded = || -> Result<_, ()> { Ok(recorded.map(wall)) };
        clock.trusted_time(wall(says), start, recorded).unwrap();
        clock
    }

    #[test]
    fn clock_ahead_at_start_is_trusted_after_a_day() {
        let start = Instant::now();
        let mut clock = starting(1_000 + YEARS, Some(1_000), start);
        let looks =
            [1, 60, 1_439, 1_440].map(|after: u64| (after, 1_000 + YEARS + after.cast_signed()));
        let actual = believed(&mut clock, start, &looks);
        let day = 1_440;
        let expected = [1_061, 1_120, 1_000 + day - 1 + 60, 1_000 + YEARS + day];
        assert_eq!(actual, expected.map(Some));
    }

    #[test]
    fn jump_ahead_deletes_no_more_for_a_day() {
        let start = Instant::now();
        for recorded in [None, Some(1_000)] {
            let mut clock = starting(1_000, recorded, start);
            let ahead = |after: u64| (after, 1_000 + YEARS + after.cast_signed());
            let looks = [(5, 1_005), ahead(6), ahead(65), ahead(66), ahead(1_446)];
            let actual = believed(&mut clock, start, &looks);
            let (latest, after) = (1_000 + 66 + 60, 1_000 + YEARS + 1_446);
            let expected = [Some(1_005), None, None, Some(latest), Some(after)];
            assert_eq!(actual, expected, "{recorded:?}");
        }
    }

    #[test]
    fn right_and_late_clocks_are_trusted() {
        let start = Instant::now();
        for says in [1_000, -5_000] {
            let mut clock = starting(says, Some(990), start);
            let looks = [1, 700, 5_000].map(|after: u64| (after, says + after.cast_signed()));
            let expected = looks.map(|(_, says)| Some(says));
            assert_eq!(believed(&mut clock, start, &looks), expected);
        }
        // If nothing is recorded, nothing can be lost.
        let mut clock = starting(1_000, None, start);
        assert_eq!(believed(&mut clock, start, &[(1, 1_001)]), [Some(1_001)]);
    }
}
