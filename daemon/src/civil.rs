//! Moments as the box's people count time, for rules about hours of the week.

use chrono::{DateTime, Datelike as _, TimeZone, Timelike as _, Weekday};
use gpukill_policy::guard::schedule::{Civil, Day};
use gpukill_proto::units::Timestamp;

/// This moment in that zone. One outside the calendar is the beginning of it.
pub(crate) fn civil(zone: &impl TimeZone, moment: Timestamp) -> Civil {
    let Some(utc) = DateTime::from_timestamp_millis(moment.0.clamp(FIRST, LAST)) else {
        return Civil::default();
    };
    let local = utc.with_timezone(zone);
    let minute = local.hour() * 60 + local.minute();
    Civil {
        day: day(local.weekday()),
        minute: u16::try_from(minute).unwrap_or(0),
    }
}

/// Nothing of ours happens outside the years 1 to 9999, and there chrono panics
/// where a zone's offset leads out of its calendar.
const FIRST: i64 = -62_135_510_400_000;
const LAST: i64 = 253_402_214_399_999;

const fn day(day: Weekday) -> Day {
    match day {
        Weekday::Mon => Day::Monday,
        Weekday::Tue => Day::Tuesday,
        Weekday::Wed => Day::Wednesday,
        Weekday::Thu => Day::Thursday,
        Weekday::Fri => Day::Friday,
        Weekday::Sat => Day::Saturday,
        Weekday::Sun => Day::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    #[test]
    fn a_moment_is_told_in_the_time_of_the_box() {
        let zone = FixedOffset::east_opt(5 * 3_600 + 1_800).unwrap();
        // 1970-01-01 was a Thursday.
        let told = civil(&zone, Timestamp(20 * 3_600_000));
        let expected = Civil {
            day: Day::Friday,
            minute: 90,
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn no_moment_is_too_early_or_too_late() {
        for moment in [i64::MIN, i64::MAX] {
            for offset in [-86_399, 86_399] {
                let zone = FixedOffset::east_opt(offset).unwrap();
                civil(&zone, Timestamp(moment));
            }
        }
    }
}
