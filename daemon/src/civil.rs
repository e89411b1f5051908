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
    use gpukill_policy::guard::schedule::Hours;

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

    /// What the clocks on the wall show in a zone, each minute from a moment on: as the
    /// daemon tells it, of the zone that `TZ` names.
    fn shown(zone: &str, from: &str, minutes: usize) -> Vec<Civil> {
        let from = DateTime::parse_from_rfc3339(from).unwrap();
        let exe = std::env::current_exe().unwrap();
        let output = std::process::Command::new(exe)
            .args([
                "--exact",
                "civil::tests::what_this_zone_shows",
                "--nocapture",
            ])
            .args(["--test-threads", "1"])
            .env("TZ", zone)
            .env(ASKED, format!("{} {minutes}", from.timestamp_millis()))
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let told = told.lines().filter_map(|line| line.strip_prefix("shows "));
        let told: Vec<Civil> = told
            .map(|line| {
                let (day, minute) = line.split_once(' ').unwrap();
                let day = Day::ALL.into_iter().find(|it| it.name() == day);
                Civil {
                    day: day.unwrap(),
                    minute: minute.parse().unwrap(),
                }
            })
            .collect();
        assert_eq!(told.len(), minutes, "{zone}");
        told
    }

    const ASKED: &str = "GPUKILL_TEST_CIVIL";

    /// Asked by the tests below, in a process of its own: a zone is the process's.
    #[test]
    fn what_this_zone_shows() {
        let Ok(asked) = std::env::var(ASKED) else {
            return;
        };
        let (from, minutes) = asked.split_once(' ').unwrap();
        let (from, minutes): (i64, i64) = (from.parse().unwrap(), minutes.parse().unwrap());
        println!();
        for minute in 0..minutes {
            let told = civil(&chrono::Local, Timestamp(from + minute * 60_000));
            println!("shows {} {}", told.day.name(), told.minute);
        }
    }

    /// Where the tables of zones are not installed, this says the same of today.
    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn hours(from: u16, to: u16, days: &[Day]) -> Hours {
        Hours {
            from: from * 60,
            to: to * 60,
            days: days.to_vec(),
        }
    }

    /// Of these minutes, how many lie in a window.
    fn within(shown: &[Civil], hours: &Hours) -> usize {
        shown
            .iter()
            .filter(|moment| hours.contains(**moment))
            .count()
    }

    fn at(day: Day, hour: u16, minute: u16) -> Civil {
        Civil {
            day,
            minute: hour * 60 + minute,
        }
    }

    #[test]
    fn a_night_in_which_clocks_are_set_is_as_long_as_it_is() {
        let night = hours(22, 6, &[Day::Saturday]);
        let missing = hours(2, 3, &[]);
        for (from, length, in_missing) in [
            // In spring 2:00 is 3:00, and in autumn 3:00 is 2:00 again.
            ("2026-03-28T12:00:00Z", 7 * 60, 0),
            ("2026-10-24T12:00:00Z", 9 * 60, 120),
            ("2026-06-06T12:00:00Z", 8 * 60, 60),
        ] {
            let shown = shown(BERLIN, from, 24 * 60);
            assert_eq!(within(&shown, &night), length, "{from}");
            assert_eq!(within(&shown, &missing), in_missing, "{from}");
            // It is one stretch: whoever waits for its end is not told twice.
            let edges = shown.windows(2);
            let edges = edges.filter(|pair| night.contains(pair[0]) != night.contains(pair[1]));
            assert_eq!(edges.count(), 2, "{from}");
        }
    }

    #[test]
    fn the_hour_that_is_missing_is_passed_over_and_the_one_that_comes_twice_is_twice() {
        let spring = shown(BERLIN, "2026-03-29T00:59:00Z", 2);
        let expected = [at(Day::Sunday, 1, 59), at(Day::Sunday, 3, 0)];
        assert_eq!(spring, expected);
        let autumn = shown(BERLIN, "2026-10-25T00:59:00Z", 2);
        assert_eq!(autumn, [at(Day::Sunday, 2, 59), at(Day::Sunday, 2, 0)]);
    }

    #[test]
    fn a_zone_may_be_off_by_quarters_of_an_hour() {
        let shown = shown("<+0545>-5:45", "2026-01-01T18:14:00Z", 2);
        assert_eq!(shown, [at(Day::Thursday, 23, 59), at(Day::Friday, 0, 0)]);
    }

    /// A file of a zone as in RFC 9636, of its first version: two offsets, and when the
    /// second began.
    fn zone_file(before: i32, after: i32, changes: i32) -> Vec<u8> {
        let mut file = b"TZif\0".to_vec();
        file.extend([0; 15]);
        for count in [0_u32, 0, 0, 1, 2, 4] {
            file.extend(count.to_be_bytes());
        }
        file.extend(changes.to_be_bytes());
        file.push(1);
        for offset in [before, after] {
            file.extend(offset.to_be_bytes());
            file.extend([0, 0]);
        }
        file.extend(b"XXX\0");
        file
    }

    #[test]
    fn of_a_day_that_never_was_only_the_hours_after_midnight_are() {
        // Samoa crossed the date line at the end of Thursday, 29 December 2011.
        let change = DateTime::parse_from_rfc3339("2011-12-30T10:00:00Z").unwrap();
        let change = i32::try_from(change.timestamp()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Apia");
        std::fs::write(&path, zone_file(-10 * 3_600, 14 * 3_600, change)).unwrap();
        let zone = format!(":{}", path.display());
        // From noon to noon.
        let shown = shown(&zone, "2011-12-29T22:00:00Z", 24 * 60);
        let around = &shown[12 * 60 - 1..=12 * 60];
        assert_eq!(around, [at(Day::Thursday, 23, 59), at(Day::Saturday, 0, 0)]);
        assert_eq!(within(&shown, &hours(9, 17, &[Day::Friday])), 0);
        // A night belongs to the day that it begins on. What begins on the day before
        // ends with it; what would have begun on the one that is missing goes on.
        assert_eq!(within(&shown, &hours(22, 6, &[Day::Thursday])), 2 * 60);
        assert_eq!(within(&shown, &hours(22, 6, &[Day::Friday])), 6 * 60);
        assert_eq!(within(&shown, &hours(22, 6, &[])), 8 * 60);
    }
}
