//! The times that people type: `2h` or `2h ago`, a time of today, a date, a date and a time,
//! RFC 3339.

use chrono::{DateTime, Duration, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};
use gpukill_proto::settings::value::parse_duration;
use gpukill_proto::units::Timestamp;

/// Reads a time; where it names no zone, it is meant in `zone`.
///
/// The error says what was typed and what can be.
pub(crate) fn parse(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Result<Timestamp, String> {
    let text = typed.trim();
    ago(text, now)
        .or_else(|| absolute(text))
        .or_else(|| civil(text, zone))
        .or_else(|| of_today(text, now, zone))
        .ok_or_else(|| {
            format!("{typed:?} is no time: write 2h for two hours ago, 14:00 for today, 2026-11-20, \"2026-11-20 14:00\" or RFC 3339")
        })
}

/// A length of time, which is only ever meant back from now: nothing is recorded
/// of what comes.
fn ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    let length = match text.strip_suffix("ago") {
        Some(before) if before.ends_with(|c: char| c.is_ascii_whitespace()) => before,
        Some(_) => return None,
        None => text,
    };
    let length = parse_duration(length)?;
    let milliseconds = i64::try_from(length.as_millis()).ok()?;
    Some(Timestamp(now.0.checked_sub(milliseconds)?))
}

fn absolute(text: &str) -> Option<Timestamp> {
    let moment = DateTime::parse_from_rfc3339(text).ok()?;
    Some(Timestamp(moment.timestamp_millis()))
}

fn civil(text: &str, zone: &impl TimeZone) -> Option<Timestamp> {
    let midnight = |date: NaiveDate| date.and_hms_opt(0, 0, 0);
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .ok()
        .and_then(midnight);
    let forms = [
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
    ];
    let time = || {
        forms
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    };
    in_zone(date.or_else(time)?, zone)
}

/// A time on the clocks of today, as tables show it.
fn of_today(text: &str, now: Timestamp, zone: &impl TimeZone) -> Option<Timestamp> {
    let forms = ["%H:%M", "%H:%M:%S"];
    let read = |form: &&str| NaiveTime::parse_from_str(text, form).ok();
    let time = forms.iter().find_map(read)?;
    let today = DateTime::from_timestamp_millis(now.0)?.with_timezone(zone);
    in_zone(today.date_naive().and_time(time), zone)
}

fn in_zone(time: NaiveDateTime, zone: &impl TimeZone) -> Option<Timestamp> {
    let moment = match zone.from_local_datetime(&time) {
        LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => moment,
        // The clock was put forward over this time: an hour later it exists.
        LocalResult::None => zone
            .from_local_datetime(&time.checked_add_signed(Duration::hours(1))?)
            .earliest()?,
    };
    Some(Timestamp(moment.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    fn parsed(typed: &str) -> Option<String> {
        let zone = FixedOffset::east_opt(3600).expect("an hour is an offset");
        parse(typed, NOW, &zone).ok().map(Timestamp::to_rfc3339)
    }

    #[test]
    fn times_are_read_in_every_form_that_the_help_names() {
        assert_eq!(NOW.to_rfc3339(), "2026-11-21T14:02:31.250Z");
        let cases = [
            ("2h ago", "2026-11-21T12:02:31.250Z"),
            ("7d ago", "2026-11-14T14:02:31.250Z"),
            ("30 min ago", "2026-11-21T13:32:31.250Z"),
            ("2 days ago", "2026-11-19T14:02:31.250Z"),
            ("1.5h ago", "2026-11-21T12:32:31.250Z"),
            ("1h", "2026-11-21T13:02:31.250Z"),
            ("1d", "2026-11-20T14:02:31.250Z"),
            ("90 min", "2026-11-21T12:32:31.250Z"),
            ("2 h ago", "2026-11-21T12:02:31.250Z"),
            (" 2h  ago ", "2026-11-21T12:02:31.250Z"),
            ("500ms", "2026-11-21T14:02:30.750Z"),
            ("2026-11-20", "2026-11-19T23:00:00.000Z"),
            ("2026-11-20 14:00", "2026-11-20T13:00:00.000Z"),
            (" 2026-11-20T14:00:05 ", "2026-11-20T13:00:05.000Z"),
            ("21:50", "2026-11-21T20:50:00.000Z"),
            ("00:30", "2026-11-20T23:30:00.000Z"),
            (" 09:05:07 ", "2026-11-21T08:05:07.000Z"),
            ("2026-11-20T14:00:00Z", "2026-11-20T14:00:00.000Z"),
            ("2026-11-20T14:00:00-05:00", "2026-11-20T19:00:00.000Z"),
        ];
        for (typed, expected) in cases {
            assert_eq!(parsed(typed).as_deref(), Some(expected), "{typed}");
        }
    }

    #[test]
    fn what_is_no_time_is_said_and_never_guessed() {
        for typed in [
            "",
            "ago",
            "2",
            "h",
            "2h2",
            "2hago",
            "2 ago",
            "2h ago ago",
            "2h later",
            "+2h",
            "-2h",
            "1e3s",
            "2H",
            "2026-13-01",
            "2026-02-30",
            "yesterday-ish",
            "99999999999999999999y ago",
            "999999999y ago",
            "2026-11-20 25:00",
            "25:00",
            "21:60",
            "21:",
            "21:50:",
            ":50",
            "-2h ago",
        ] {
            assert_eq!(parsed(typed), None, "{typed}");
        }
        let zone = FixedOffset::east_opt(0).expect("no offset is an offset");
        assert_eq!(
            parse("soon", NOW, &zone).err().as_deref(),
            Some(
                "\"soon\" is no time: write 2h for two hours ago, 14:00 for today, 2026-11-20, \"2026-11-20 14:00\" or RFC 3339"
            )
        );
    }
}
