//! The local hour, weekday and week of a row.

use super::super::super::blob::DecodedUsage;
use super::super::range::RollupLevel;
use chrono::{DateTime, NaiveDate, Offset as _, TimeZone};
use gpukill_proto::audit::UsageTimes;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The times that are converted, years 1 to 9999. No row is outside them, and chrono panics where a
/// zone's offset leads out of its calendar.
const VALID_TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_510_400_000..=253_402_214_399_999;

/// One hour of one day of one week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalHour {
    /// From 0 to 23.
    pub(super) hour: usize,
    /// From 0, Monday, to 6.
    pub(super) day: usize,
    /// The week's Monday, in days since 1970.
    pub(super) monday: i64,
}

/// How the time of a row is divided: it belongs to the local hour in which the row began. An hour
/// row that spans two local hours, as all do in a zone that is half an hour off, is divided as if
/// the usage had been constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HourSplit {
    first: LocalHour,
    /// The next local hour, and the part of the whole that belongs to the first: two durations.
    rest: Option<(LocalHour, i64, i64)>,
}

impl HourSplit {
    pub(super) fn from_row(zone: &impl TimeZone, level: RollupLevel, row: &DecodedUsage) -> Self {
        let from = row
            .from
            .0
            .clamp(*VALID_TIMES_MS.start(), *VALID_TIMES_MS.end());
        let (local_ms, first) = local_hour(zone, from);
        let rest = match level {
            // Samples and minutes never span two local hours, except by chance a sample.
            RollupLevel::Samples | RollupLevel::Minutes => None,
            RollupLevel::Hours => {
                let next_hour = from - local_ms.rem_euclid(HOUR_MS) + HOUR_MS;
                // A clock that jumped makes a row longer than its hour.
                let until = row.until.0.min(from - from.rem_euclid(HOUR_MS) + HOUR_MS);
                (next_hour < until).then(|| {
                    (
                        local_hour(zone, next_hour).1,
                        next_hour - from,
                        until - from,
                    )
                })
            }
        };
        Self { first, rest }
    }

    /// The Monday of the week in which the row began.
    pub(super) const fn monday(&self) -> i64 {
        self.first.monday
    }

    /// Divides these times over the hours; the parts add up to the times.
    pub(super) fn divide(
        &self,
        times: UsageTimes,
    ) -> impl Iterator<Item = (LocalHour, UsageTimes)> + use<> {
        let (first, rest) = match self.rest {
            None => (times, None),
            Some((slot, of_first, of_all)) => {
                let part = |ms: u64| {
                    let of = |ms: i64| u128::from(ms.unsigned_abs());
                    let part = u128::from(ms) * of(of_first) / of(of_all).max(1);
                    u64::try_from(part).unwrap_or(ms).min(ms)
                };
                let first = combine(times, UsageTimes::default(), |ms, _| part(ms));
                (
                    first,
                    Some((slot, combine(times, first, |ms, part| ms - part))),
                )
            }
        };
        [Some((self.first, first)), rest].into_iter().flatten()
    }
}

/// Combines two times field by field.
pub(super) fn combine(
    one: UsageTimes,
    other: UsageTimes,
    make: impl Fn(u64, u64) -> u64,
) -> UsageTimes {
    UsageTimes {
        busy_ms: make(one.busy_ms, other.busy_ms),
        held_ms: make(one.held_ms, other.held_ms),
        free_ms: make(one.free_ms, other.free_ms),
        unknown_ms: make(one.unknown_ms, other.unknown_ms),
    }
}

/// The local time of a moment, in milliseconds as if it were UTC, and its slot.
fn local_hour(zone: &impl TimeZone, moment: i64) -> (i64, LocalHour) {
    let utc = DateTime::from_timestamp_millis(moment).map(|it| it.naive_utc());
    let offset = utc.map_or(0, |utc| {
        let offset = zone.offset_from_utc_datetime(&utc).fix();
        i64::from(offset.local_minus_utc())
    });
    let local_ms = moment + offset * 1000;
    let days = local_ms.div_euclid(DAY_MS);
    // 1970 began on a Thursday.
    let day = (days + 3).rem_euclid(7);
    let slot = LocalHour {
        hour: usize::try_from(local_ms.rem_euclid(DAY_MS) / HOUR_MS).unwrap_or(0),
        day: usize::try_from(day).unwrap_or(0),
        monday: days - day,
    };
    (local_ms, slot)
}

/// Formats a day as `2026-11-16`.
pub(super) fn format_date(days: i64) -> String {
    let date = i32::try_from(days)
        .ok()
        .and_then(NaiveDate::from_epoch_days);
    date.map_or_else(String::new, |date| date.to_string())
}
