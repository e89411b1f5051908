//! Parses typed times: `2h` or `2h ago`, a clock time, `yesterday`, `yesterday 09:00`, a date, a
//! date and a time, RFC 3339.

use chrono::{DateTime, Duration, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};
use gpukill_proto::settings::value::parse_duration;
use gpukill_proto::units::Timestamp;

/// Parses a past time; without a zone in the text it is in `zone`. A clock time that is later than
/// now is that of yesterday.
///
/// The error states what was typed and what is possible.
pub(crate) fn parse(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Result<Timestamp, String> {
    let today = parse_end(typed, now, zone)?;
    let is_clock_time = parse_clock(typed.trim()).is_some();
    if is_clock_time && today > now {
        return parse_end(&format!("yesterday {}", typed.trim()), now, zone);
    }
    Ok(today)
}

/// Parses the end of a time range, like [`parse`], but a clock time is always that of today.
pub(crate) fn parse_end(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Result<Timestamp, String> {
    let text = typed.trim();
    parse_ago(text, now)
        .or_else(|| parse_rfc3339(text))
        .or_else(|| parse_local(text, zone))
        .or_else(|| parse_on_day(text, now, zone))
        .ok_or_else(|| {
            format!(
                "{typed:?} is not a time: write 2h for two hours ago, 14:00, yesterday, \
                \"yesterday 14:00\", 2026-11-20, \"2026-11-20 14:00\" or RFC 3339"
            )
        })
}

/// Parses a length of time, counted back from now, because nothing is recorded in the future.
fn parse_ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    let length = match text.strip_suffix("ago") {
        Some(before) if before.ends_with(|c: char| c.is_ascii_whitespace()) => before,
        Some(_) => return None,
        None => text,
    };
    let length = parse_duration(length)?;
    let milliseconds = i64::try_from(length.as_millis()).ok()?;
    Some(Timestamp(now.0.checked_sub(milliseconds)?))
}

fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let moment = DateTime::parse_from_rfc3339(text).ok()?;
    Some(Timestamp(moment.timestamp_millis()))
}

fn parse_local(text: &str, zone: &impl TimeZone) -> Option<Timestamp> {
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
    resolve_in_zone(date.or_else(time)?, zone)
}

/// Parses a clock time of today, as tables show it, or `today` or `yesterday`, which begin at
/// midnight, or such a day with a clock time.
fn parse_on_day(text: &str, now: Timestamp, zone: &impl TimeZone) -> Option<Timestamp> {
    let (day, time) = match text.split_once(|c: char| c.is_ascii_whitespace()) {
        Some((day, time)) => (day, parse_clock(time.trim_start())?),
        None => match parse_clock(text) {
            Some(time) => ("today", time),
            None => (text, NaiveTime::MIN),
        },
    };
    let days_ago = match day {
        "today" => 0,
        "yesterday" => 1,
        _ => return None,
    };
    let today = DateTime::from_timestamp_millis(now.0)?.with_timezone(zone);
    let date = today.date_naive();
    let date = date.checked_sub_signed(Duration::days(days_ago))?;
    resolve_in_zone(date.and_time(time), zone)
}

fn parse_clock(text: &str) -> Option<NaiveTime> {
    let forms = ["%H:%M", "%H:%M:%S"];
    let read = |form: &&str| NaiveTime::parse_from_str(text, form).ok();
    forms.iter().find_map(read)
}

fn resolve_in_zone(time: NaiveDateTime, zone: &impl TimeZone) -> Option<Timestamp> {
    let moment = match zone.from_local_datetime(&time) {
        LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => moment,
        // The clock was put forward over this time; an hour later the time exists.
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
    fn every_documented_form_is_parsed() {
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
            ("15:02", "2026-11-21T14:02:00.000Z"),
            ("15:03", "2026-11-20T14:03:00.000Z"),
            ("21:50", "2026-11-20T20:50:00.000Z"),
            ("today", "2026-11-20T23:00:00.000Z"),
            ("yesterday", "2026-11-19T23:00:00.000Z"),
            ("yesterday 09:00", "2026-11-20T08:00:00.000Z"),
            (" today  09:05:07 ", "2026-11-21T08:05:07.000Z"),
            ("today 21:50", "2026-11-21T20:50:00.000Z"),
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
    fn clock_time_of_an_end_is_of_today() {
        let zone = FixedOffset::east_opt(3600).expect("an hour is an offset");
        let end = |typed| parse_end(typed, NOW, &zone).map(Timestamp::to_rfc3339);
        let expected = "2026-11-21T20:50:00.000Z".to_owned();
        assert_eq!(end("21:50"), Ok(expected));
        assert_eq!(end("15:00").ok(), parsed("15:00"));
    }

    #[test]
    fn invalid_times_are_refused() {
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
            "yesterday 25:00",
            "yesterday 2h",
            "today ago",
            "tomorrow",
            "tomorrow 09:00",
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
                "\"soon\" is not a time: write 2h for two hours ago, 14:00, yesterday, \
                \"yesterday 14:00\", 2026-11-20, \"2026-11-20 14:00\" or RFC 3339"
            )
        );
    }
}
