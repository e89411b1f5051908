//! Hours, days and weeks are in the local time of the host.

use super::super::super::sample_store::{HOUR, MINUTE, MONDAY, SampleStore, all_times, device};
use chrono::{FixedOffset, NaiveDate, NaiveDateTime, TimeZone};
use gpukill_proto::audit::{AuditSummary, UsageTimes};

/// Central Europe in 2026: summer time from March 29 to October 25, 1:00 UTC.
#[derive(Debug, Clone, Copy)]
struct Europe;

impl TimeZone for Europe {
    type Offset = FixedOffset;

    fn from_offset(_: &FixedOffset) -> Self {
        Self
    }

    fn offset_from_local_date(&self, _: &NaiveDate) -> chrono::MappedLocalTime<FixedOffset> {
        chrono::MappedLocalTime::None
    }

    fn offset_from_local_datetime(
        &self,
        _: &NaiveDateTime,
    ) -> chrono::MappedLocalTime<FixedOffset> {
        chrono::MappedLocalTime::None
    }

    fn offset_from_utc_date(&self, day: &NaiveDate) -> FixedOffset {
        self.offset_from_utc_datetime(&day.and_hms_opt(0, 0, 0).unwrap())
    }

    fn offset_from_utc_datetime(&self, moment: &NaiveDateTime) -> FixedOffset {
        let at = |month, day| {
            let day = NaiveDate::from_ymd_opt(2026, month, day).unwrap();
            day.and_hms_opt(1, 0, 0).unwrap()
        };
        let is_summer = (at(3, 29)..at(10, 25)).contains(moment);
        FixedOffset::east_opt(if is_summer { 7_200 } else { 3_600 }).unwrap()
    }
}

/// The seconds in each hour of the day and each weekday, where not zero, and in each week.
type Slots = (Vec<(usize, u64)>, Vec<(usize, u64)>, Vec<(String, u64)>);

fn slots(summary: &AuditSummary) -> Slots {
    let seconds = |it: &UsageTimes| (it.busy_ms + it.held_ms + it.free_ms + it.unknown_ms) / 1000;
    let some = |all: &[UsageTimes]| {
        let all = all.iter().map(seconds).enumerate();
        all.filter(|(_, seconds)| *seconds > 0).collect()
    };
    let weeks = summary.weeks.iter();
    let weeks = weeks.map(|it| (it.monday.clone(), seconds(&it.times)));
    (some(&summary.hours), some(&summary.days), weeks.collect())
}

/// A device that was observed for some hours, stored as hours or as minutes.
fn observed_hours(from: i64, hours: i64, unit: &str) -> SampleStore {
    let mut store = SampleStore::new();
    let free = [device(0, 0, 0)];
    store.samples(from, from + hours * HOUR, MINUTE, &free, &[]);
    if unit == "minute" {
        store.execute("DELETE FROM hour");
    }
    store
}

#[test]
fn hours_follow_the_local_clock() {
    // Sunday, October 25, 2026, 0:00 UTC: two o'clock comes twice.
    let autumn = 1_792_886_400_000;
    for unit in ["hour", "minute"] {
        let summary = observed_hours(autumn, 3, unit).summary_in(&all_times(), &Europe);
        let week = vec![("2026-10-19".to_owned(), 10_800)];
        let expected = (vec![(2, 7_200), (3, 3_600)], vec![(6, 10_800)], week);
        assert_eq!(slots(&summary), expected);
        // Sunday, March 29: two o'clock never comes.
        let spring = autumn - 210 * 24 * HOUR;
        let summary = observed_hours(spring, 2, unit).summary_in(&all_times(), &Europe);
        let week = vec![("2026-03-23".to_owned(), 7_200)];
        let expected = (vec![(1, 3_600), (3, 3_600)], vec![(6, 7_200)], week);
        assert_eq!(slots(&summary), expected);
        // From 23:30 of Sunday on, in a zone that is half an hour off.
        let india = FixedOffset::east_opt(19_800).unwrap();
        let summary = observed_hours(MONDAY - 6 * HOUR, 2, unit).summary_in(&all_times(), &india);
        let weeks = [("2026-11-09", 1_800), ("2026-11-16", 5_400)];
        let weeks = weeks.map(|(monday, seconds)| (monday.to_owned(), seconds));
        let expected = (
            vec![(0, 3_600), (1, 1_800), (23, 1_800)],
            vec![(0, 5_400), (6, 1_800)],
            weeks.to_vec(),
        );
        assert_eq!(slots(&summary), expected);
    }
}
