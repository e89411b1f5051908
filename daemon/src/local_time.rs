//! Converts timestamps to local time, for rules about hours of the week.

use chrono::{DateTime, Datelike as _, TimeZone, Timelike as _};
use gpukill_policy::guard::schedule::{LocalTime, Weekday};
use gpukill_proto::units::Timestamp;

/// The local time of a timestamp in a zone. A timestamp outside the calendar gives the default.
pub(crate) fn to_civil_time(zone: &impl TimeZone, moment: Timestamp) -> LocalTime {
    let Some(utc) = DateTime::from_timestamp_millis(moment.0.clamp(MIN_MILLIS, MAX_MILLIS)) else {
        return LocalTime::default();
    };
    let local = utc.with_timezone(zone);
    let minute = local.hour() * 60 + local.minute();
    LocalTime {
        day: to_day(local.weekday()),
        minute: u16::try_from(minute).unwrap_or(0),
    }
}

/// No timestamp of ours is outside the years 1 to 9999, and chrono panics where a zone's offset
/// leads out of its calendar.
const MIN_MILLIS: i64 = -62_135_510_400_000;
const MAX_MILLIS: i64 = 253_402_214_399_999;

const fn to_day(day: chrono::Weekday) -> Weekday {
    match day {
        chrono::Weekday::Mon => Weekday::Monday,
        chrono::Weekday::Tue => Weekday::Tuesday,
        chrono::Weekday::Wed => Weekday::Wednesday,
        chrono::Weekday::Thu => Weekday::Thursday,
        chrono::Weekday::Fri => Weekday::Friday,
        chrono::Weekday::Sat => Weekday::Saturday,
        chrono::Weekday::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;
    use gpukill_policy::guard::schedule::Hours;

    #[test]
    fn timestamp_converts_to_the_zone() {
        let zone = FixedOffset::east_opt(5 * 3_600 + 1_800).unwrap();
        // 1970-01-01 was a Thursday.
        let time = to_civil_time(&zone, Timestamp(20 * 3_600_000));
        let expected = LocalTime {
            day: Weekday::Friday,
            minute: 90,
        };
        assert_eq!(time, expected);
    }

    #[test]
    fn extreme_timestamps_do_not_panic() {
        for moment in [i64::MIN, i64::MAX] {
            for offset in [-86_399, 86_399] {
                let zone = FixedOffset::east_opt(offset).unwrap();
                to_civil_time(&zone, Timestamp(moment));
            }
        }
    }

    /// The local time in the zone that `TZ` names, each minute from a time on, as a child process
    /// prints it.
    fn local_minutes(zone: &str, from: &str, minutes: usize) -> Vec<LocalTime> {
        let from = DateTime::parse_from_rfc3339(from).unwrap();
        let exe = std::env::current_exe().unwrap();
        let output = std::process::Command::new(exe)
            .args([
                "--exact",
                "local_time::tests::child_prints_local_time",
                "--nocapture",
            ])
            .args(["--test-threads", "1"])
            .env("TZ", zone)
            .env(
                CHILD_VARIABLE,
                format!("{} {minutes}", from.timestamp_millis()),
            )
            .output()
            .unwrap();
        let times = String::from_utf8(output.stdout).unwrap();
        let times = times.lines().filter_map(|line| line.strip_prefix("shows "));
        let times: Vec<LocalTime> = times
            .map(|line| {
                let (day, minute) = line.split_once(' ').unwrap();
                let day = Weekday::ALL.into_iter().find(|it| it.name() == day);
                LocalTime {
                    day: day.unwrap(),
                    minute: minute.parse().unwrap(),
                }
            })
            .collect();
        assert_eq!(times.len(), minutes, "{zone}");
        times
    }

    const CHILD_VARIABLE: &str = "GPUKILL_TEST_CIVIL";

    /// Runs in a child process of the tests below, because a time zone applies to the whole
    /// process.
    #[test]
    fn child_prints_local_time() {
        let Ok(range) = std::env::var(CHILD_VARIABLE) else {
            return;
        };
        let (from, minutes) = range.split_once(' ').unwrap();
        let (from, minutes): (i64, i64) = (from.parse().unwrap(), minutes.parse().unwrap());
        println!();
        for minute in 0..minutes {
            let time = to_civil_time(&chrono::Local, Timestamp(from + minute * 60_000));
            println!("shows {} {}", time.day.name(), time.minute);
        }
    }

    /// The current rules of the zone, in a form that needs no installed zone tables.
    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn hours(from: u16, to: u16, days: &[Weekday]) -> Hours {
        Hours {
            from: from * 60,
            to: to * 60,
            days: days.to_vec(),
        }
    }

    /// The number of these minutes that are within a window.
    fn minutes_within(shown: &[LocalTime], hours: &Hours) -> usize {
        shown
            .iter()
            .filter(|moment| hours.contains(**moment))
            .count()
    }

    fn civil_time(day: Weekday, hour: u16, minute: u16) -> LocalTime {
        LocalTime {
            day,
            minute: hour * 60 + minute,
        }
    }

    #[test]
    fn night_with_a_clock_change() {
        let night = hours(22, 6, &[Weekday::Saturday]);
        let missing = hours(2, 3, &[]);
        for (from, length, in_missing) in [
            // In spring 2:00 becomes 3:00, and in autumn 3:00 becomes 2:00 again.
            ("2026-03-28T12:00:00Z", 7 * 60, 0),
            ("2026-10-24T12:00:00Z", 9 * 60, 120),
            ("2026-06-06T12:00:00Z", 8 * 60, 60),
        ] {
            let shown = local_minutes(BERLIN, from, 24 * 60);
            assert_eq!(minutes_within(&shown, &night), length, "{from}");
            assert_eq!(minutes_within(&shown, &missing), in_missing, "{from}");
            // The window is one period: its end occurs once.
            let edges = shown.windows(2);
            let edges = edges.filter(|pair| night.contains(pair[0]) != night.contains(pair[1]));
            assert_eq!(edges.count(), 2, "{from}");
        }
    }

    #[test]
    fn missing_and_repeated_hours() {
        let spring = local_minutes(BERLIN, "2026-03-29T00:59:00Z", 2);
        let expected = [
            civil_time(Weekday::Sunday, 1, 59),
            civil_time(Weekday::Sunday, 3, 0),
        ];
        assert_eq!(spring, expected);
        let autumn = local_minutes(BERLIN, "2026-10-25T00:59:00Z", 2);
        assert_eq!(
            autumn,
            [
                civil_time(Weekday::Sunday, 2, 59),
                civil_time(Weekday::Sunday, 2, 0)
            ]
        );
    }

    #[test]
    fn zone_with_quarter_hour_offset() {
        let shown = local_minutes("<+0545>-5:45", "2026-01-01T18:14:00Z", 2);
        assert_eq!(
            shown,
            [
                civil_time(Weekday::Thursday, 23, 59),
                civil_time(Weekday::Friday, 0, 0)
            ]
        );
    }

    /// A zone file as in RFC 9636, first version: two offsets, and the start of the second.
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
    fn missing_day_keeps_its_night() {
        // Samoa crossed the date line at the end of Thursday, 29 December 2011.
        let change = DateTime::parse_from_rfc3339("2011-12-30T10:00:00Z").unwrap();
        let change = i32::try_from(change.timestamp()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Apia");
        std::fs::write(&path, zone_file(-10 * 3_600, 14 * 3_600, change)).unwrap();
        let zone = format!(":{}", path.display());
        // From noon to noon.
        let shown = local_minutes(&zone, "2011-12-29T22:00:00Z", 24 * 60);
        let around = &shown[12 * 60 - 1..=12 * 60];
        assert_eq!(
            around,
            [
                civil_time(Weekday::Thursday, 23, 59),
                civil_time(Weekday::Saturday, 0, 0)
            ]
        );
        assert_eq!(minutes_within(&shown, &hours(9, 17, &[Weekday::Friday])), 0);
        // A night belongs to the day on which it begins. The night that begins on the day before
        // ends with that day; the night of the missing day would have begun on it, and its rest
        // applies.
        assert_eq!(
            minutes_within(&shown, &hours(22, 6, &[Weekday::Thursday])),
            2 * 60
        );
        assert_eq!(
            minutes_within(&shown, &hours(22, 6, &[Weekday::Friday])),
            6 * 60
        );
        assert_eq!(minutes_within(&shown, &hours(22, 6, &[])), 8 * 60);
    }
}
