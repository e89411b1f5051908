//! Keys of hours of the week.

use super::field::{KeyGroup, TableEntry, TableKeys, fields, store};
use super::value_reader::ValueReader;
use crate::guard::schedule::{Hours, Weekday};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::settings::closest_name;
use toml::de::DeValue;

const MINUTES_PER_DAY: u16 = 24 * 60;

fields! {
    pub(super) const HOURS: Hours;

    start_time = Example("\"09:00\""),
        "The start, in local time.",
        |draft, at| {
            let time = at.time();
            if time == Some(MINUTES_PER_DAY) {
                at.report("a window cannot start at 24:00: write 00:00 of the next day");
            }
            store(&mut draft.from, time);
        };
    end_time = Example("\"17:00\""),
        "The end, in local time; on the next day if it is not after start_time.",
        |draft, at| store(&mut draft.to, at.time());
    days_of_week = Example("[\"Mon-Fri\"]"),
        "The days on which the window starts: \"Monday\", \"Mon\", \"Mon-Fri\". By default\n\
         every day.",
        |draft, at| store(&mut draft.days, at.days());
}

impl TableEntry for Hours {
    const KEYS: TableKeys<Self> = &[&KeyGroup::new(HOURS, |draft: &mut Self| draft)];

    fn with_name(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        self.check_window(at);
    }
}

impl Hours {
    /// A window has both times, or whole days.
    pub(super) fn check_window(&mut self, at: &mut ValueReader<'_, '_>) {
        match (at.has_key("start_time"), at.has_key("end_time")) {
            (true, true) => {}
            (true, false) => at.report("has a start_time and no end_time"),
            (false, true) => at.report("has an end_time and no start_time"),
            (false, false) if at.has_key("days_of_week") => {
                (self.from, self.to) = (0, MINUTES_PER_DAY);
            }
            (false, false) => {
                let suggestion = Some("write start_time and end_time".to_owned());
                at.report_with_suggestion("has no times", suggestion);
            }
        }
    }
}

impl ValueReader<'_, '_> {
    /// Minutes since midnight: `"9:00"`, `"24:00"`.
    fn time(&mut self) -> Option<u16> {
        let minutes = match self.value.get_ref() {
            DeValue::String(text) => text.split_once(':').and_then(|(hour, minute)| {
                let is_number = |text: &str, longest: usize| {
                    (1..=longest).contains(&text.len())
                        && text.bytes().all(|byte| byte.is_ascii_digit())
                };
                let is_time = is_number(hour, 2) && minute.len() == 2 && is_number(minute, 2);
                let parts = is_time.then(|| (hour.parse().ok(), minute.parse().ok()));
                parts.and_then(|(hour, minute): (Option<u16>, Option<u16>)| hour.zip(minute))
            }),
            // TOML has a type for times.
            DeValue::Datetime(moment) if moment.date.is_none() && moment.offset.is_none() => {
                let whole = |time: &&toml::value::Time| {
                    time.second.unwrap_or(0) == 0 && time.nanosecond.unwrap_or(0) == 0
                };
                let time = moment.time.as_ref().filter(whole);
                time.map(|time| (u16::from(time.hour), u16::from(time.minute)))
            }
            DeValue::Datetime(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => None,
        };
        let minutes = minutes
            .filter(|(_, minute)| *minute < 60)
            .map(|(hour, minute)| hour * 60 + minute)
            .filter(|minutes| *minutes <= MINUTES_PER_DAY);
        if minutes.is_none() {
            let shown = self.source_text();
            self.report(format!(
                "{shown} is not a time of day, \"00:00\" to \"24:00\""
            ));
        }
        minutes
    }

    /// Days without repeats, in their order.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, and any is wanted"
    )]
    fn days(&mut self) -> Option<Vec<Weekday>> {
        let mut days = match self.value.get_ref() {
            DeValue::String(_) => self.day_range()?,
            _ => self.list(|at| at.day_range())?.concat(),
        };
        days.sort_indirect();
        days.dedup();
        Some(days)
    }

    /// `"Monday"`, `"mon"`, `"Fri-Mon"`, `"weekdays"`, `"weekend"`.
    fn day_range(&mut self) -> Option<Vec<Weekday>> {
        let Some(typed) = self.value.get_ref().as_str() else {
            let what = format!("{} is not a day", self.source_text());
            // A number is ambiguous: Monday is 0 for some and 1 for others.
            self.report_with_suggestion(what, Some("write its name: \"Monday\"".to_owned()));
            return None;
        };
        let typed = typed.trim().to_lowercase();
        match typed.as_str() {
            "weekday" | "weekdays" => return Some(Weekday::ALL[..5].to_vec()),
            "weekend" | "weekends" => return Some(Weekday::ALL[5..].to_vec()),
            _ => {}
        }
        let (first, last) = typed.split_once('-').unwrap_or((&typed, &typed));
        if let (Some(first), Some(last)) = (parse_day(first), parse_day(last)) {
            return Some(days_between(first, last));
        }
        let wrong = if parse_day(first).is_none() {
            first
        } else {
            last
        };
        let names = Weekday::ALL.map(|day| day.name().to_lowercase());
        let near = closest_name(wrong.trim(), names.iter().map(String::as_str));
        let near = near.and_then(parse_day).map(Weekday::name);
        let what = format!("{} is not a day", self.source_text());
        self.report_with_suggestion(what, near.map(|near| format!("did you mean \"{near}\"?")));
        None
    }
}

/// A TOML time of day as a text.
#[must_use]
pub fn format_toml_time(moment: &toml::value::Datetime) -> String {
    match &moment.time {
        Some(time) => format!("{:02}:{:02}", time.hour, time.minute),
        None => moment.to_string(),
    }
}

/// `monday`, or its beginning of at least three letters.
fn parse_day(typed: &str) -> Option<Weekday> {
    let typed = typed.trim();
    let is_meant = |day: &Weekday| day.name().to_lowercase().starts_with(typed);
    let found = Weekday::ALL.into_iter().find(is_meant);
    found.filter(|_| typed.len() >= 3)
}

/// The days from one to another, across the weekend if necessary.
fn days_between(first: Weekday, last: Weekday) -> Vec<Weekday> {
    let mut days = Weekday::ALL;
    days.rotate_left(first as usize);
    let end = days.iter().position(|day| *day == last).unwrap_or(0);
    days[..=end].to_vec()
}
