//! The civil days of the host as spans of time. A day has 23 or 25 hours where clocks change, and
//! none where a zone skips it.

use chrono::{DateTime, Days, Duration, NaiveDate, NaiveDateTime, Offset as _, TimeZone};
use gpukill_proto::units::Timestamp;

/// A zone may skip a whole day. Samoa did, in 2011.
const MAX_SKIPPED_MINUTES: i64 = 25 * 60;

/// The first moment of a day. `None` outside of the calendar.
///
/// The day ends where the next one starts, so days leave no gap and do not overlap.
pub(crate) fn day_start(date: NaiveDate, zone: &impl TimeZone) -> Option<Timestamp> {
    let midnight = date.and_hms_opt(0, 0, 0)?;
    // Where clocks are put forward at midnight, the day begins with the first minute that exists.
    (0..=MAX_SKIPPED_MINUTES).find_map(|minutes| {
        let local = midnight.checked_add_signed(Duration::minutes(minutes))?;
        first_moment(local, zone)
    })
}

/// The first moment at which clocks of the zone show this time.
fn first_moment(local: NaiveDateTime, zone: &impl TimeZone) -> Option<Timestamp> {
    let found = zone.from_local_datetime(&local);
    let moments = [found.clone().earliest(), found.latest()];
    // At the very moment of a change, chrono also reports the time that clocks no longer show.
    let is_shown = |moment: &DateTime<_>| {
        let utc = moment.naive_utc();
        utc.checked_add_offset(zone.offset_from_utc_datetime(&utc).fix()) == Some(local)
    };
    let moment = moments.into_iter().flatten().find(is_shown)?;
    Some(Timestamp(moment.timestamp_millis()))
}

/// The day that contains this moment.
pub(crate) fn day_of(at: Timestamp, zone: &impl TimeZone) -> Option<NaiveDate> {
    let local = DateTime::from_timestamp_millis(at.0)?.with_timezone(zone);
    // A clock that goes back over midnight shows the day before again for a while.
    let mut date = local.date_naive().checked_sub_days(Days::new(1))?;
    while day_start(next_day(date)?, zone)? <= at {
        date = next_day(date)?;
    }
    Some(date)
}

/// The day after this one.
pub(crate) fn next_day(date: NaiveDate) -> Option<NaiveDate> {
    date.checked_add_days(Days::new(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{FixedOffset, MappedLocalTime};
    use proptest::prelude::*;

    /// A zone with changes of its offset: the moment of each in seconds, and the offset after it in
    /// minutes. Before the first change the offset is 0.
    #[derive(Debug, Clone)]
    struct ChangingZone(Vec<(i64, i32)>);

    impl ChangingZone {
        fn offset_at(&self, utc: i64) -> FixedOffset {
            let passed = self.0.iter().rev().find(|(at, _)| *at <= utc);
            let minutes = passed.map_or(0, |(_, minutes)| *minutes);
            FixedOffset::east_opt(minutes * 60).unwrap()
        }
    }

    impl TimeZone for ChangingZone {
        type Offset = FixedOffset;

        fn from_offset(_: &FixedOffset) -> Self {
            Self(Vec::new())
        }

        fn offset_from_local_date(&self, _: &NaiveDate) -> MappedLocalTime<FixedOffset> {
            unreachable!("chrono asks for times only")
        }

        fn offset_from_local_datetime(
            &self,
            local: &NaiveDateTime,
        ) -> MappedLocalTime<FixedOffset> {
            let seconds = local.and_utc().timestamp();
            let mut offsets: Vec<i32> = self.0.iter().map(|(_, minutes)| *minutes).collect();
            offsets.push(0);
            offsets.sort_unstable();
            offsets.dedup();
            let shown = offsets.into_iter().rev().map(|minutes| minutes * 60);
            let shown = shown.filter(|offset| {
                self.offset_at(seconds - i64::from(*offset))
                    .local_minus_utc()
                    == *offset
            });
            let shown: Vec<_> = shown
                .map(|offset| FixedOffset::east_opt(offset).unwrap())
                .collect();
            match shown[..] {
                [] => MappedLocalTime::None,
                [one] => MappedLocalTime::Single(one),
                [first, .., last] => MappedLocalTime::Ambiguous(first, last),
            }
        }

        fn offset_from_utc_date(&self, _: &NaiveDate) -> FixedOffset {
            unreachable!("chrono asks for times only")
        }

        fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> FixedOffset {
            self.offset_at(utc.and_utc().timestamp())
        }
    }

    fn date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn seconds(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp()
    }

    /// The start of a day in UTC, and its length in minutes.
    fn span(day: &str, zone: &ChangingZone) -> (String, i64) {
        let start = day_start(date(day), zone).unwrap();
        let end = day_start(next_day(date(day)).unwrap(), zone).unwrap();
        (start.to_rfc3339(), (end.0 - start.0) / 60_000)
    }

    #[test]
    fn days_of_clock_changes_have_23_and_25_hours() {
        let berlin = ChangingZone(vec![
            (seconds("2025-10-26T01:00:00Z"), 60),
            (seconds("2026-03-29T01:00:00Z"), 120),
            (seconds("2026-10-25T01:00:00Z"), 60),
        ]);
        for (day, start, hours) in [
            ("2026-03-28", "2026-03-27T23:00:00.000Z", 24),
            ("2026-03-29", "2026-03-28T23:00:00.000Z", 23),
            ("2026-03-30", "2026-03-29T22:00:00.000Z", 24),
            ("2026-10-25", "2026-10-24T22:00:00.000Z", 25),
            ("2026-10-26", "2026-10-25T23:00:00.000Z", 24),
        ] {
            assert_eq!(span(day, &berlin), (start.into(), hours * 60), "{day}");
        }
    }

    #[test]
    fn midnight_may_be_skipped_or_repeated() {
        // As in Asunción: from 00:00 to 01:00, and from 24:00 back to 23:00.
        let asuncion = ChangingZone(vec![
            (seconds("2020-01-01T00:00:00Z"), -240),
            (seconds("2022-10-02T04:00:00Z"), -180),
            (seconds("2023-03-26T03:00:00Z"), -240),
        ]);
        let skipped = ("2022-10-02T04:00:00.000Z".to_owned(), 23 * 60);
        assert_eq!(span("2022-10-02", &asuncion), skipped);
        let long = ("2023-03-25T03:00:00.000Z".to_owned(), 25 * 60);
        assert_eq!(span("2023-03-25", &asuncion), long);
        // As in Havana: from 01:00 back to 00:00.
        let havana = ChangingZone(vec![
            (seconds("2022-03-13T05:00:00Z"), -240),
            (seconds("2022-11-06T05:00:00Z"), -300),
        ]);
        let repeated = ("2022-11-06T04:00:00.000Z".to_owned(), 25 * 60);
        assert_eq!(span("2022-11-06", &havana), repeated);
        // As in St. John's until 2011: from 00:01 back to 23:01 of the day before.
        let st_johns = ChangingZone(vec![
            (seconds("2010-03-14T03:31:00Z"), -150),
            (seconds("2010-11-07T02:31:00Z"), -210),
        ]);
        let early = ("2010-11-07T02:30:00.000Z".to_owned(), 25 * 60);
        assert_eq!(span("2010-11-07", &st_johns), early);
        let again = Timestamp(1000 * seconds("2010-11-07T03:00:00Z"));
        assert_eq!(day_of(again, &st_johns), Some(date("2010-11-07")));
    }

    #[test]
    fn skipped_day_is_empty() {
        // As in Samoa: after 2011-12-29 came 2011-12-31.
        let samoa = ChangingZone(vec![
            (seconds("2011-09-24T14:00:00Z"), -600),
            (seconds("2011-12-30T10:00:00Z"), 840),
        ]);
        assert_eq!(span("2011-12-29", &samoa).1, 24 * 60);
        let start = "2011-12-30T10:00:00.000Z";
        assert_eq!(span("2011-12-30", &samoa), (start.into(), 0));
        assert_eq!(span("2011-12-31", &samoa), (start.into(), 24 * 60));
        let at = Timestamp(1000 * seconds("2011-12-30T10:00:00Z"));
        assert_eq!(day_of(at, &samoa), Some(date("2011-12-31")));
        let before = Timestamp(at.0 - 1);
        assert_eq!(day_of(before, &samoa), Some(date("2011-12-29")));
    }

    #[test]
    fn dates_outside_of_the_calendar_are_none() {
        let utc = ChangingZone(Vec::new());
        assert_eq!(day_of(Timestamp(i64::MAX), &utc), None);
        assert_eq!(day_of(Timestamp(i64::MIN), &utc), None);
        assert_eq!(next_day(NaiveDate::MAX), None);
    }

    fn zones() -> impl Strategy<Value = ChangingZone> {
        // Changes are weeks apart, by whole minutes up to a day.
        let change = (30_000_i64..300_000, -11 * 60..=13 * 60_i32);
        proptest::collection::vec(change, 0..8).prop_map(|changes| {
            let mut at = 1_600_000_000;
            let changes = changes.into_iter().map(|(minutes, offset)| {
                at += minutes * 60;
                (at, offset)
            });
            ChangingZone(changes.collect())
        })
    }

    proptest! {
        #[test]
        fn each_moment_is_in_one_day(zone in zones(), minutes in 0_i64..3_000_000, ms in 0_i64..60_000) {
            let at = Timestamp((1_590_000_000 + minutes * 60) * 1000 + ms);
            let day = day_of(at, &zone).unwrap();
            let start = day_start(day, &zone).unwrap();
            let end = day_start(next_day(day).unwrap(), &zone).unwrap();
            prop_assert!(start <= at && at < end, "{day}: {start} {at} {end}");
            let hours = (end.0 - start.0) / 3_600_000;
            prop_assert!(hours <= 48, "{hours}");
        }

        #[test]
        fn days_are_in_order(zone in zones(), first in 0_u64..2_000) {
            let mut day = date("2020-09-01") + Days::new(first);
            let mut start = day_start(day, &zone).unwrap();
            for _ in 0..40 {
                day = next_day(day).unwrap();
                let next = day_start(day, &zone).unwrap();
                prop_assert!(start <= next, "{day}: {start} {next}");
                start = next;
            }
        }
    }
}
