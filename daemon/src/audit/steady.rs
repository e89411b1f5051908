//! Whether the wall clock can be trusted to say what is old. A clock that jumps
//! ahead for a minute must not make a week of samples look too old to keep, nor one
//! that is years ahead when the box starts.

use gpukill_proto::units::Timestamp;
use std::time::{Duration, Instant};

/// Watches the wall clock beside one that never jumps.
pub(super) struct SteadyClock {
    wall: Timestamp,
    monotonic: Instant,
    trusted_from: Instant,
    /// Since the last jump, or the start.
    steady_since: Instant,
    /// Another time that was right, and when that was. `None` where there is none,
    /// and nothing yet where nobody looked.
    known: Option<Option<(Timestamp, Instant)>>,
}

/// More than this within one look is a jump and no correction.
const JUMP: Duration = Duration::from_secs(60);

/// So long after a jump the new time is believed.
const DOUBT: Duration = Duration::from_secs(3_600);

/// So long it must have been steady until that is deleted by it which would stay by
/// the time that is known otherwise.
const LONG_DOUBT: Duration = Duration::from_secs(86_400);

/// So much further than that it may be meanwhile.
const LEEWAY_SECONDS: i64 = 3_600;

impl SteadyClock {
    /// Believes the time it starts with.
    pub(super) fn starting(wall: Timestamp, monotonic: Instant) -> Self {
        Self {
            wall,
            monotonic,
            trusted_from: monotonic,
            steady_since: monotonic,
            known: None,
        }
    }

    /// Whether the wall clock has not jumped for a while.
    pub(super) fn is_steady(&mut self, wall: Timestamp, monotonic: Instant) -> bool {
        let elapsed = monotonic.saturating_duration_since(self.monotonic);
        let moved = wall.since(self.wall);
        if wall < self.wall || moved.abs_diff(elapsed) > JUMP {
            self.trusted_from = monotonic + DOUBT;
            self.steady_since = monotonic;
            let before = (self.wall, self.monotonic);
            if let Some(known) = &mut self.known {
                known.get_or_insert(before);
            }
        }
        (self.wall, self.monotonic) = (wall, monotonic);
        monotonic >= self.trusted_from
    }

    /// The time by which what is old is deleted; `None` where none is to be trusted.
    /// That is the wall clock's where it has been steady for a day. Until then it is
    /// no later than what `recorded` says that was recorded last at the start, and
    /// the time since.
    ///
    /// # Errors
    /// As `recorded`.
    pub(super) fn believed<E>(
        &mut self,
        wall: Timestamp,
        monotonic: Instant,
        recorded: impl FnOnce() -> Result<Option<Timestamp>, E>,
    ) -> Result<Option<Timestamp>, E> {
        if self.known.is_none() {
            self.known = Some(recorded()?.map(|at| (at, monotonic)));
        }
        if !self.is_steady(wall, monotonic) {
            return Ok(None);
        }
        if monotonic.saturating_duration_since(self.steady_since) >= LONG_DOUBT {
            self.known = Some(Some((wall, monotonic)));
            return Ok(Some(wall));
        }
        let latest = self.known.flatten().map(|(at, then)| {
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

    /// Ten years, in minutes.
    const YEARS: i64 = 10 * 365 * 24 * 60;

    /// What is believed so many minutes after the start, when the wall clock says
    /// so many; in minutes.
    fn believed(clock: &mut SteadyClock, start: Instant, looks: &[(u64, i64)]) -> Vec<Option<i64>> {
        let wall = |minutes: i64| Timestamp(minutes * 60_000);
        let never = || -> Result<Option<Timestamp>, ()> { unreachable!("it was asked before") };
        let looks = looks.iter().map(|&(after, says)| {
            let now = start + Duration::from_secs(60 * after);
            let believed = clock.believed(wall(says), now, never).unwrap();
            believed.map(|at| at.0 / 60_000)
        });
        looks.collect()
    }

    fn starting(says: i64, recorded: Option<i64>, start: Instant) -> SteadyClock {
        let wall = |minutes: i64| Timestamp(minutes * 60_000);
        let mut clock = SteadyClock::starting(wall(says), start);
        let recorded = || -> Result<_, ()> { Ok(recorded.map(wall)) };
        clock.believed(wall(says), start, recorded).unwrap();
        clock
    }

    #[test]
    fn a_clock_that_is_ahead_when_it_starts_is_believed_after_a_day() {
        let start = Instant::now();
        let mut clock = starting(1_000 + YEARS, Some(1_000), start);
        let looks =
            [1, 60, 1_439, 1_440].map(|after: u64| (after, 1_000 + YEARS + after.cast_signed()));
        let looked = believed(&mut clock, start, &looks);
        let day = 1_440;
        let expected = [1_061, 1_120, 1_000 + day - 1 + 60, 1_000 + YEARS + day];
        assert_eq!(looked, expected.map(Some));
    }

    #[test]
    fn a_clock_that_jumps_ahead_deletes_no_more_than_it_would_have_for_a_day() {
        let start = Instant::now();
        for recorded in [None, Some(1_000)] {
            let mut clock = starting(1_000, recorded, start);
            let ahead = |after: u64| (after, 1_000 + YEARS + after.cast_signed());
            let looks = [(5, 1_005), ahead(6), ahead(65), ahead(66), ahead(1_446)];
            let looked = believed(&mut clock, start, &looks);
            let (latest, after) = (1_000 + 66 + 60, 1_000 + YEARS + 1_446);
            let expected = [Some(1_005), None, None, Some(latest), Some(after)];
            assert_eq!(looked, expected, "{recorded:?}");
        }
    }

    #[test]
    fn a_clock_that_is_right_is_believed_and_so_is_one_that_is_behind() {
        let start = Instant::now();
        for says in [1_000, -5_000] {
            let mut clock = starting(says, Some(990), start);
            let looks = [1, 700, 5_000].map(|after: u64| (after, says + after.cast_signed()));
            let expected = looks.map(|(_, says)| Some(says));
            assert_eq!(believed(&mut clock, start, &looks), expected);
        }
        // Where nothing is recorded, nothing can be lost.
        let mut clock = starting(1_000, None, start);
        assert_eq!(believed(&mut clock, start, &[(1, 1_001)]), [Some(1_001)]);
    }
}
