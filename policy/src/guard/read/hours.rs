//! Keys of hours of the week.

use super::at::At;
use super::field::{Entry, Field, Keys, Of, Shown, put};
use crate::guard::schedule::{Day, Hours};
use gpukill_proto::settings::nearest;
use toml::de::DeValue;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// When.
pub(super) const HOURS: &[Field<Hours>] = &[
    Field {
        name: "start_time",
        shown: Shown::Example("\"09:00\""),
        help: "From this time on, as the clock on the wall shows it.",
        set: |it, at| {
            let time = at.time();
            if time == Some(DAY) {
                at.wrong("nothing begins at 24:00: that is 00:00 of the next day");
            }
            put(&mut it.from, time);
        },
    },
    Field {
        name: "end_time",
        shown: Shown::Example("\"17:00\""),
        help: "Until this time; of the next day where it is not after start_time.",
        set: |it, at| put(&mut it.to, at.time()),
    },
    Field {
        name: "days_of_week",
        shown: Shown::Example("[\"Mon-Fri\"]"),
        help: "The days on which it begins: \"Monday\", \"Mon\", \"Mon-Fri\". Every day where there\n\
               is none.",
        set: |it, at| put(&mut it.days, at.days()),
    },
];

impl Entry for Hours {
    const KEYS: Keys<Self> = &[&Of::new(HOURS, |it: &mut Self| it)];

    fn called(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        self.check_window(at);
    }
}

impl Hours {
    /// A window has both ends, or is of whole days.
    pub(super) fn check_window(&mut self, at: &mut At<'_, '_>) {
        match (at.has("start_time"), at.has("end_time")) {
            (true, true) => {}
            (true, false) => at.wrong("has a start_time and no end_time"),
            (false, true) => at.wrong("has an end_time and no start_time"),
            (false, false) if at.has("days_of_week") => {
                (self.from, self.to) = (0, DAY);
            }
            (false, false) => {
                let suggestion = Some("write start_time and end_time".to_owned());
                at.wrong_with("does not say when", suggestion);
            }
        }
    }
}

impl At<'_, '_> {
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
            // TOML has times of its own.
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
            .filter(|minutes| *minutes <= DAY);
        if minutes.is_none() {
            let shown = self.shown();
            self.wrong(format!(
                "{shown} is no time of the day, \"00:00\" to \"24:00\""
            ));
        }
        minutes
    }

    /// Days, each once, in their order.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, and any is wanted"
    )]
    fn days(&mut self) -> Option<Vec<Day>> {
        let mut days = match self.value.get_ref() {
            DeValue::String(_) => self.some_days()?,
            _ => self.list(|at| at.some_days())?.concat(),
        };
        days.sort_unstable();
        days.dedup();
        Some(days)
    }

    /// `"Monday"`, `"mon"`, `"Fri-Mon"`, `"weekdays"`, `"weekend"`.
    fn some_days(&mut self) -> Option<Vec<Day>> {
        let Some(typed) = self.value.get_ref().as_str() else {
            let what = format!("{} is no day", self.shown());
            // Where Monday is 0 for some and 1 for others.
            self.wrong_with(what, Some("write its name: \"Monday\"".to_owned()));
            return None;
        };
        let typed = typed.trim().to_lowercase();
        match typed.as_str() {
            "weekday" | "weekdays" => return Some(Day::ALL[..5].to_vec()),
            "weekend" | "weekends" => return Some(Day::ALL[5..].to_vec()),
            _ => {}
        }
        let (first, last) = typed.split_once('-').unwrap_or((&typed, &typed));
        if let (Some(first), Some(last)) = (day(first), day(last)) {
            return Some(days_between(first, last));
        }
        let wrong = if day(first).is_none() { first } else { last };
        let names = Day::ALL.map(|day| day.name().to_lowercase());
        let near = nearest(wrong.trim(), names.iter().map(String::as_str));
        let near = near.and_then(day).map(Day::name);
        let what = format!("{} is no day", self.shown());
        self.wrong_with(what, near.map(|near| format!("did you mean \"{near}\"?")));
        None
    }
}

/// A time of the day of TOML's own, as a text.
#[must_use]
pub fn value_of_time(moment: &toml::value::Datetime) -> String {
    match &moment.time {
        Some(time) => format!("{:02}:{:02}", time.hour, time.minute),
        None => moment.to_string(),
    }
}

/// `monday`, or its beginning from three letters on.
fn day(typed: &str) -> Option<Day> {
    let typed = typed.trim();
    let is_meant = |day: &Day| day.name().to_lowercase().starts_with(typed);
    let found = Day::ALL.into_iter().find(is_meant);
    found.filter(|_| typed.len() >= 3)
}

/// From one day to another, over the weekend if it must be.
fn days_between(first: Day, last: Day) -> Vec<Day> {
    let mut days = Day::ALL;
    days.rotate_left(first as usize);
    let end = days.iter().position(|day| *day == last).unwrap_or(0);
    days[..=end].to_vec()
}
