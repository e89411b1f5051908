//! Parses typed times: `now`, `2h`, `1h30m` or `2h ago`, a clock time such as `14:00`, `9am` or
//! `noon`, a day such as `yesterday`, `monday`, `2026-11-20`, `Nov 20` or the month `2026-11`, a day
//! with a clock time, seconds since 1970 as `@1764000000`, RFC 3339.

use chrono::{
    DateTime, Datelike as _, Days, LocalResult, Month, NaiveDate, NaiveDateTime, NaiveTime,
    TimeDelta, TimeZone, Weekday,
};
use gpukill_proto::settings::value::parse_duration;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// Parses a past time; without a zone in the text it is in `zone`. A clock time or a weekday with
/// one that is later than now is that of the day or the week before.
///
/// The error states what was typed and what is possible.
pub(crate) fn parse(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Result<Timestamp, String> {
    parse_moment(typed, now, zone, LaterThanNow::Repeated)
}

/// Parses the end of a time range, like [`parse`], but a clock time is always that of its day.
pub(crate) fn parse_end(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Result<Timestamp, String> {
    parse_moment(typed, now, zone, LaterThanNow::Kept)
}

/// What a clock time that is later than now means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaterThanNow {
    /// The same time of an earlier day.
    Repeated,
    /// The time itself.
    Kept,
}

fn parse_moment(
    typed: &str,
    now: Timestamp,
    zone: &impl TimeZone,
    later: LaterThanNow,
) -> Result<Timestamp, String> {
    let text = typed.trim();
    parse_ago(text, now)
        .or_else(|| parse_epoch(text))
        .or_else(|| parse_rfc3339(text))
        .or_else(|| parse_civil(text, now, zone, later))
        .ok_or_else(|| {
            format!(
                "{typed:?} is not a time: write 2h for two hours ago, 1h30m, now, 14:00, 9am, \
                 noon, yesterday, monday, \"yesterday 14:00\", 2026-11-20, \"2026-11-20 14:00\", \
                 2026-11, \"Nov 20\", @1764000000 or RFC 3339"
            )
        })
}

/// Parses `now`, or a length of time, counted back from now, because nothing is recorded in the
/// future.
fn parse_ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    if text.eq_ignore_ascii_case("now") {
        return Some(now);
    }
    let length = match text.strip_suffix("ago") {
        Some(before) if before.ends_with(|c: char| c.is_ascii_whitespace()) => before,
        Some(_) => return None,
        None => text,
    };
    let length = parse_length(length.trim_end())?;
    let milliseconds = i64::try_from(length.as_millis()).ok()?;
    Some(Timestamp(now.0.checked_sub(milliseconds)?))
}

/// Parses `2h`, or the sum of parts of which each is shorter than the one before: `1h30m`,
/// `1d 12h`.
fn parse_length(mut text: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    let mut part_before = Duration::MAX;
    while !text.is_empty() {
        let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let after_unit = text
            .get(unit..)?
            .find(|c: char| c.is_ascii_digit())
            .map_or(text.len(), |length| unit + length);
        let (part, rest) = text.split_at_checked(after_unit)?;
        let length = parse_duration(part)?;
        if length >= part_before {
            return None;
        }
        (sum, part_before, text) = (sum.checked_add(length)?, length, rest);
    }
    (part_before != Duration::MAX).then_some(sum)
}

/// Parses `@1764000000`, as `date +@%s` prints it.
fn parse_epoch(text: &str) -> Option<Timestamp> {
    let digits = text.strip_prefix('@')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let seconds: i64 = digits.parse().ok().filter(|_| is_number)?;
    Some(Timestamp(seconds.checked_mul(1000)?))
}

fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let moment = DateTime::parse_from_rfc3339(text).ok()?;
    Some(Timestamp(moment.timestamp_millis()))
}

/// Parses a day, which begins at midnight, a clock time of today, as tables show it, or a day with a
/// clock time.
fn parse_civil(
    text: &str,
    now: Timestamp,
    zone: &impl TimeZone,
    later: LaterThanNow,
) -> Option<Timestamp> {
    let today = DateTime::from_timestamp_millis(now.0)?.with_timezone(zone);
    let today = today.date_naive();
    let (day, time) = split_clock(text)?;
    let day = match day {
        None => CivilDay::repeated(today, 1),
        Some(day) => parse_day(day, today)?,
    };
    let moment = resolve_in_zone(day.date.and_time(time), zone)?;
    match day.repeated_days {
        Some(days) if moment > now && later == LaterThanNow::Repeated => {
            let date = day.date.checked_sub_days(Days::new(days))?;
            resolve_in_zone(date.and_time(time), zone)
        }
        Some(_) | None => Some(moment),
    }
}

/// The day and the clock time of a text; no day for a clock time alone, and midnight for a day
/// alone.
fn split_clock(text: &str) -> Option<(Option<&str>, NaiveTime)> {
    if let Some(time) = parse_clock(text) {
        return Some((None, time));
    }
    // The day in the form of RFC 3339, without a zone.
    if let Some((day, time)) = text.split_once('T')
        && parse_date(day).is_some()
    {
        return Some((Some(day), parse_clock(time)?));
    }
    let last_word = text.rsplit_once(|c: char| c.is_ascii_whitespace());
    let with_clock = last_word.and_then(|(day, time)| Some((Some(day), parse_clock(time)?)));
    with_clock.or(Some((Some(text), NaiveTime::MIN)))
}

/// Parses `14:00`, `14:00:05`, `9am`, `9:30pm`, `noon` or `midnight`.
fn parse_clock(text: &str) -> Option<NaiveTime> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "noon" => return NaiveTime::from_hms_opt(12, 0, 0),
        "midnight" => return Some(NaiveTime::MIN),
        _ => {}
    }
    let (time, first_hour) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(time), _) => (time, 0),
        (None, Some(time)) => (time, 12),
        (None, None) => {
            let forms = ["%H:%M", "%H:%M:%S"];
            let read = |form: &&str| NaiveTime::parse_from_str(&text, form).ok();
            return forms.iter().find_map(read);
        }
    };
    let number = |digits: &str| {
        let is_number =
            (1..=2).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| is_number)
    };
    let (hour, minute) = match time.split_once(':') {
        Some((hour, minute)) => (number(hour)?, number(minute)?),
        None => (number(time)?, 0),
    };
    let hour = Some(hour).filter(|hour| (1..=12).contains(hour))? % 12;
    NaiveTime::from_hms_opt(first_hour + hour, minute, 0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CivilDay {
    date: NaiveDate,
    /// After so many days its name names another day.
    repeated_days: Option<u64>,
}

impl CivilDay {
    const fn once(date: NaiveDate) -> Self {
        Self {
            date,
            repeated_days: None,
        }
    }

    const fn repeated(date: NaiveDate, days: u64) -> Self {
        Self {
            date,
            repeated_days: Some(days),
        }
    }
}

/// Parses a day: of those with this name, the last one that has begun.
fn parse_day(text: &str, today: NaiveDate) -> Option<CivilDay> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let day = match words.as_slice() {
        [word] if word.eq_ignore_ascii_case("today") => CivilDay::once(today),
        [word] if word.eq_ignore_ascii_case("yesterday") => {
            CivilDay::once(today.checked_sub_days(Days::new(1))?)
        }
        [word] => match word.parse::<Weekday>() {
            Ok(weekday) => CivilDay::repeated(last_weekday(weekday, today)?, 7),
            Err(_) => CivilDay::once(parse_date(word).or_else(|| parse_month_start(word))?),
        },
        [last, word] if last.eq_ignore_ascii_case("last") => {
            let yesterday = today.checked_sub_days(Days::new(1))?;
            CivilDay::once(last_weekday(word.parse().ok()?, yesterday)?)
        }
        [first, second] => CivilDay::once(last_day_of_year(first, second, today)?),
        [first, second, year] => {
            let (month, day) = parse_day_and_month(first, second)?;
            CivilDay::once(NaiveDate::from_ymd_opt(year.parse().ok()?, month, day)?)
        }
        _ => return None,
    };
    Some(day)
}

/// Parses `2026-11-20`.
fn parse_date(text: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()
}

/// Parses `2026-11`: the first day of this month.
fn parse_month_start(text: &str) -> Option<NaiveDate> {
    parse_date(&format!("{text}-01"))
}

/// The last such weekday up to this day.
fn last_weekday(weekday: Weekday, up_to: NaiveDate) -> Option<NaiveDate> {
    let [last, first] = [up_to.weekday(), weekday].map(|day| day.num_days_from_monday());
    let days = (last + 7 - first) % 7;
    up_to.checked_sub_days(Days::new(days.into()))
}

/// Parses a day and a month in any order.
fn parse_day_and_month(first: &str, second: &str) -> Option<(u32, u32)> {
    let month = |text: &str| {
        text.parse::<Month>()
            .ok()
            .map(|month| month.number_from_month())
    };
    let day = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    match (month(first), month(second)) {
        (Some(month), None) => Some((month, day(second)?)),
        (None, Some(month)) => Some((month, day(first)?)),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// The last day of this name that has begun: of this year, or of a year before it.
fn last_day_of_year(first: &str, second: &str, today: NaiveDate) -> Option<NaiveDate> {
    /// The longest time between two leap days.
    const MAX_YEARS: i32 = 8;
    let (month, day) = parse_day_and_month(first, second)?;
    (0..=MAX_YEARS)
        .filter_map(|years| NaiveDate::from_ymd_opt(today.year() - years, month, day))
        .find(|date| *date <= today)
}

fn resolve_in_zone(time: NaiveDateTime, zone: &impl TimeZone) -> Option<Timestamp> {
    let moment = match zone.from_local_datetime(&time) {
        LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => moment,
        // The clock was put forward over this time; an hour later the time exists.
        LocalResult::None => zone
            .from_local_datetime(&time.checked_add_signed(TimeDelta::hours(1))?)
            .earliest()?,
    };
    Some(Timestamp(moment.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;
    use proptest::prelude::*;

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
            ("now", "2026-11-21T14:02:31.250Z"),
            ("1h30m", "2026-11-21T12:32:31.250Z"),
            ("1d 2h 3m 4s ago", "2026-11-20T11:59:27.250Z"),
            ("9am", "2026-11-21T08:00:00.000Z"),
            ("9:30pm", "2026-11-20T20:30:00.000Z"),
            ("12am", "2026-11-20T23:00:00.000Z"),
            ("12pm", "2026-11-21T11:00:00.000Z"),
            ("noon", "2026-11-21T11:00:00.000Z"),
            ("Noon", "2026-11-21T11:00:00.000Z"),
            ("midnight", "2026-11-20T23:00:00.000Z"),
            ("yesterday 9am", "2026-11-20T08:00:00.000Z"),
            // Today is a Saturday.
            ("saturday", "2026-11-20T23:00:00.000Z"),
            ("last saturday", "2026-11-13T23:00:00.000Z"),
            ("Sat 16:00", "2026-11-14T15:00:00.000Z"),
            ("monday", "2026-11-15T23:00:00.000Z"),
            ("last mon 9am", "2026-11-16T08:00:00.000Z"),
            ("2026-11", "2026-10-31T23:00:00.000Z"),
            ("Nov 20", "2026-11-19T23:00:00.000Z"),
            ("28 Nov", "2025-11-27T23:00:00.000Z"),
            ("Nov 28 2025 14:00", "2025-11-28T13:00:00.000Z"),
            ("feb 29", "2024-02-28T23:00:00.000Z"),
            ("@1764000000", "2025-11-24T16:00:00.000Z"),
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
        let expected = "2026-11-21T20:00:00.000Z".to_owned();
        assert_eq!(end("sat 9pm"), Ok(expected));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}", at in 0..253_402_000_000_000_i64) {
            let zone = FixedOffset::east_opt(-7_200).expect("it is an offset");
            let _ = parse(&text, Timestamp(at), &zone);
        }

        #[test]
        fn words_are_parsed_or_refused(
            words in prop::collection::vec(
                prop_oneof![
                    "last|mon|sunday|today|yesterday|nov|12|31|2026|2026-02|noon|9am|ago",
                    "[0-9]{1,3}(s|m|h|d|w|y)?",
                    "[0-9]{1,2}:[0-9]{2}(am|pm)?",
                ],
                0..4,
            ),
        ) {
            let zone = FixedOffset::east_opt(3_600).expect("it is an offset");
            let text = words.join(" ");
            let Ok(moment) = parse(&text, NOW, &zone) else {
                return Ok(());
            };
            // Only a clock time of a date that is written out may be later than now.
            let dates = ["today", "2026", "nov"];
            let is_written_out = dates.iter().any(|date| text.contains(date));
            prop_assert!(moment <= NOW || is_written_out, "{text}: {}", moment.to_rfc3339());
        }

        #[test]
        fn printed_times_are_parsed_again(seconds in 0..4_000_000_000_i64, offset in -12..=14) {
            let zone = FixedOffset::east_opt(3_600 * offset).expect("it is an offset");
            let moment = DateTime::from_timestamp(seconds, 0).expect("it is in the calendar");
            let local = moment.with_timezone(&zone);
            let expected = Ok(Timestamp(seconds * 1_000));
            for form in ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%:z", "@%s"] {
                let text = local.format(form).to_string();
                prop_assert_eq!(parse(&text, NOW, &zone), expected.clone(), "{}", text);
            }
        }

        #[test]
        fn lengths_add_up(hours in 1..1_000_i64, minutes in 1..60_i64, seconds in 1..60_i64) {
            let zone = FixedOffset::east_opt(0).expect("it is an offset");
            let expected = NOW.plus_seconds(-(3_600 * hours + 60 * minutes + seconds));
            for text in [
                format!("{hours}h{minutes}m{seconds}s"),
                format!("{hours}h {minutes}m {seconds}s ago"),
            ] {
                prop_assert_eq!(parse(&text, NOW, &zone), Ok(expected));
            }
        }

        #[test]
        fn weekday_is_in_the_last_seven_days(days in 0..4_000_i64, day in 0..7_usize) {
            let zone = FixedOffset::east_opt(3_600).expect("it is an offset");
            let now = NOW.plus_seconds(-86_400 * days);
            let names = ["monday", "tue", "Wednesday", "THU", "friday", "sat", "sunday"];
            let found = parse(names[day], now, &zone).expect("it is a day");
            let age = now.0 - found.0;
            prop_assert!((0..7 * 86_400_000).contains(&age), "{age}");
            let local = DateTime::from_timestamp_millis(found.0).expect("it is in the calendar");
            let local = local.with_timezone(&zone);
            prop_assert_eq!(local.weekday().num_days_from_monday() as usize, day);
            prop_assert_eq!(local.time(), NaiveTime::MIN);
        }
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
            "30m1h",
            "1h1h",
            "1h 30",
            "now ago",
            "13pm",
            "0am",
            "9:60am",
            "am",
            "noon monday",
            "next monday",
            "last",
            "last 2h",
            "2026-13",
            "2026-00",
            "Nov 31",
            "Nov Dec",
            "20 20",
            "@",
            "@-1",
            "@1.5",
            "@99999999999999999999",
            "2026-11-20T9",
        ] {
            assert_eq!(parsed(typed), None, "{typed}");
        }
        let zone = FixedOffset::east_opt(0).expect("no offset is an offset");
        assert_eq!(
            parse("soon", NOW, &zone).err().as_deref(),
            Some(
                "\"soon\" is not a time: write 2h for two hours ago, 1h30m, now, 14:00, 9am, \
                 noon, yesterday, monday, \"yesterday 14:00\", 2026-11-20, \"2026-11-20 14:00\", \
                 2026-11, \"Nov 20\", @1764000000 or RFC 3339"
            )
        );
    }
}
