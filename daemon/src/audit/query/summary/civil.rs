//! Which hour of the day, day of the week, and week a row is in, by the clocks on
//! the wall.

use super::super::super::packed::Unpacked;
use super::super::range::Level;
use chrono::{DateTime, NaiveDate, Offset as _, TimeZone};
use gpukill_proto::audit::Times;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Nothing of ours happens outside the years 1 to 9999, and there chrono panics
/// where a zone's offset leads out of its calendar.
const YEARS: std::ops::RangeInclusive<i64> = -62_135_510_400_000..=253_402_214_399_999;

/// One hour of one day of one week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// From 0 to 23.
    pub(super) hour: usize,
    /// From 0, Monday, to 6.
    pub(super) day: usize,
    /// The week's Monday, in days since 1970.
    pub(super) monday: i64,
}

/// Where a row's time belongs: to the hour in which it began. One of an hour that
/// lies in two, as all do where the zone is half an hour apart, is split as if the
/// use had been the same all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    first: Slot,
    /// The next hour, and how much of how much belongs to the first.
    rest: Option<(Slot, i64, i64)>,
}

impl Split {
    pub(super) fn of(zone: &impl TimeZone, level: Level, row: &Unpacked) -> Self {
        let from = row.from.0.clamp(*YEARS.start(), *YEARS.end());
        let (civil, first) = at(zone, from);
        let rest = match level {
            // They never lie in two hours, but for a sample that does by chance.
            Level::Samples | Level::Minutes => None,
            Level::Hours => {
                let turn = from - civil.rem_euclid(HOUR_MS) + HOUR_MS;
                // A clock that jumped makes a row longer than its hour.
                let until = row.until.0.min(from - from.rem_euclid(HOUR_MS) + HOUR_MS);
                (turn < until).then(|| (at(zone, turn).1, turn - from, until - from))
            }
        };
        Self { first, rest }
    }

    /// The Monday of the week in which it began.
    pub(super) const fn week(&self) -> i64 {
        self.first.monday
    }

    /// Parts of these times, which together are these times.
    pub(super) fn share(&self, times: Times) -> impl Iterator<Item = (Slot, Times)> + use<> {
        let (first, rest) = match self.rest {
            None => (times, None),
            Some((slot, of_first, of_all)) => {
                let part = |ms: u64| {
                    let of = |ms: i64| u128::from(ms.unsigned_abs());
                    let part = u128::from(ms) * of(of_first) / of(of_all).max(1);
                    u64::try_from(part).unwrap_or(ms).min(ms)
                };
                let first = each(times, Times::default(), |ms, _| part(ms));
                (
                    first,
                    Some((slot, each(times, first, |ms, part| ms - part))),
                )
            }
        };
        [Some((self.first, first)), rest].into_iter().flatten()
    }
}

/// Makes one of two, kind by kind.
pub(super) fn each(one: Times, other: Times, make: impl Fn(u64, u64) -> u64) -> Times {
    Times {
        busy_ms: make(one.busy_ms, other.busy_ms),
        held_ms: make(one.held_ms, other.held_ms),
        free_ms: make(one.free_ms, other.free_ms),
        unknown_ms: make(one.unknown_ms, other.unknown_ms),
    }
}

/// A moment of the clocks on the wall, in milliseconds as if they showed UTC, and
/// its slot.
fn at(zone: &impl TimeZone, moment: i64) -> (i64, Slot) {
    let utc = DateTime::from_timestamp_millis(moment).map(|it| it.naive_utc());
    let offset = utc.map_or(0, |utc| {
        let offset = zone.offset_from_utc_datetime(&utc).fix();
        i64::from(offset.local_minus_utc())
    });
    let civil = moment + offset * 1000;
    let days = civil.div_euclid(DAY_MS);
    // 1970 began on a Thursday.
    let day = (days + 3).rem_euclid(7);
    let slot = Slot {
        hour: usize::try_from(civil.rem_euclid(DAY_MS) / HOUR_MS).unwrap_or(0),
        day: usize::try_from(day).unwrap_or(0),
        monday: days - day,
    };
    (civil, slot)
}

/// A day as it is written: `2026-11-16`.
pub(super) fn date(days: i64) -> String {
    let date = i32::try_from(days)
        .ok()
        .and_then(NaiveDate::from_epoch_days);
    date.map_or_else(String::new, |date| date.to_string())
}
