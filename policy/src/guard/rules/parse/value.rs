//! The kinds of values: the bounds of each kind, and the mistake for any other value.

use super::bounds;
use super::field::TableEntry;
use super::value_reader::ValueReader;
use crate::guard::rules::{Glob, Pattern};
use crate::select;
use gpukill_proto::service::MAX_CONDITION_BYTES;
use gpukill_proto::settings::closest_name;
use gpukill_proto::settings::value::{choice_error, format_duration, parse_duration, parse_size};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;
use toml::de::DeValue;

/// The unit of a number without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// `grace_period_seconds`
    Seconds,
    /// `idle_limit_minutes`
    Minutes,
    /// `duration_limit_hours`
    Hours,
    /// `grace`, which is always written with a unit.
    Explicit,
}

impl TimeUnit {
    /// Seconds per unit, and the name of the unit.
    const fn seconds_and_name(self) -> Option<(f64, &'static str)> {
        match self {
            Self::Seconds => Some((1.0, "seconds")),
            Self::Minutes => Some((60.0, "minutes")),
            Self::Hours => Some((3_600.0, "hours")),
            Self::Explicit => None,
        }
    }
}

impl ValueReader<'_, '_> {
    /// GiB, or a text with its unit: `8`, `0.5`, `"512MiB"`.
    pub(super) fn gib(&mut self) -> Option<Bytes> {
        const GIB: f64 = (1u64 << 30) as f64;
        let bytes = match self.value.get_ref() {
            DeValue::String(text) => parse_size(text),
            _ => self.number().and_then(|gib| round_to_u64(gib * GIB)),
        };
        let bytes = bytes.filter(|bytes| *bytes <= bounds::MAX_MEMORY);
        if bytes.is_none() {
            let max = bounds::MAX_MEMORY >> 30;
            self.report_number(format!(
                "{} is not a number of GiB from 0 to {max}, nor a text like \"512MiB\"",
                self.source_text()
            ));
        }
        bytes.map(Bytes)
    }

    /// Whole percent: `80`, `80.0`, `"80%"`.
    pub(super) fn percent(&mut self) -> Option<Percent> {
        let percent = match self.value.get_ref() {
            DeValue::String(text) => text.strip_suffix('%').and_then(|it| it.trim().parse().ok()),
            _ => self
                .number()
                // Drivers report whole percent: a fraction would promise too much.
                .filter(|number| number.fract() == 0.0)
                .and_then(round_to_u64)
                .and_then(|number| u32::try_from(number).ok()),
        };
        let percent = percent.filter(|percent| *percent <= 100);
        if percent.is_none() {
            let shown = self.source_text();
            self.report_number(format!(
                "{shown} is not a whole number of percent from 0 to 100"
            ));
        }
        percent.map(Percent)
    }

    /// Whole percent, one of these.
    pub(super) fn percent_among(&mut self, of: &[u32]) -> Option<Percent> {
        let percent = self.percent()?;
        if of.contains(&percent.0) {
            return Some(percent);
        }
        let all: Vec<String> = of.iter().map(u32::to_string).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let what = choice_error(&self.source_text(), &all);
        self.report(what);
        None
    }

    /// A number of units, or a text with a unit: `12.5`, `"90m"`.
    fn duration(&mut self, unit: TimeUnit, min: Duration, max: Duration) -> Option<Duration> {
        let length = match (self.value.get_ref(), unit.seconds_and_name()) {
            (DeValue::String(text), _) => parse_duration(text),
            (_, Some((seconds, _))) => self
                .number()
                .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok()),
            (_, None) => None,
        };
        let length = length.filter(|length| (min..=max).contains(length));
        if length.is_none() {
            let (shown, low, high) = (
                self.source_text(),
                format_duration(min),
                format_duration(max),
            );
            match unit.seconds_and_name() {
                Some((_, name)) => self.report_number(format!(
                    "{shown} is not a number of {name}, nor a text like \"90m\", from {low} to \
                    {high}"
                )),
                None => self.report(format!(
                    "{shown} is not a text like \"90m\", from {low} to {high}"
                )),
            }
        }
        length
    }

    /// A length of at most `max`.
    pub(super) fn length(&mut self, unit: TimeUnit, max: Duration) -> Option<Duration> {
        self.duration(unit, Duration::ZERO, max)
    }

    /// A window of time over which something is measured.
    pub(super) fn window(&mut self, unit: TimeUnit) -> Option<Duration> {
        self.duration(unit, bounds::MIN_WINDOW, bounds::MAX_WINDOW)
    }

    /// A whole number.
    pub(super) fn count(&mut self, max: u64) -> Option<u32> {
        self.count_within(0, max)
    }

    /// A whole number within these bounds.
    pub(super) fn count_within(&mut self, min: u64, max: u64) -> Option<u32> {
        let number = match self.value.get_ref() {
            DeValue::Integer(_) => self.number().and_then(round_to_u64),
            _ => None,
        };
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let shown = self.source_text();
            self.report_number(format!("{shown} is not a whole number from {min} to {max}"));
        }
        number.and_then(|number| u32::try_from(number).ok())
    }

    /// Reports a value that is not the right number. One in quotes is usually right without
    /// them.
    fn report_number(&mut self, what: String) {
        let text = self.value.get_ref().as_str().map(str::trim);
        let digits = text.filter(|text| text.parse::<u32>().is_ok());
        let suggestion = digits.map(|digits| format!("write {digits} without quotes"));
        self.report_with_suggestion(what, suggestion);
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self) -> Option<bool> {
        let truth = self.value.get_ref().as_bool();
        if truth.is_none() {
            let shown = self.source_text();
            self.report(choice_error(&shown, &["true", "false"]));
        }
        truth
    }

    /// A finite number.
    pub(super) fn number(&self) -> Option<f64> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
                #[expect(clippy::cast_precision_loss, reason = "far beyond every bound")]
                let number = number as f64;
                number
            }
            DeValue::Float(number) => number.as_str().parse().ok()?,
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => return None,
        };
        number.is_finite().then_some(number)
    }

    /// A text of at most `max` bytes, without control characters.
    pub(super) fn text(&mut self, max: usize) -> Option<String> {
        let Some(text) = self.value.get_ref().as_str() else {
            let shown = self.source_text();
            let is_single = !matches!(self.value.get_ref(), DeValue::Array(_) | DeValue::Table(_));
            let suggestion = is_single.then(|| format!("write \"{shown}\""));
            self.report_with_suggestion(format!("{shown} is not a text in quotes"), suggestion);
            return None;
        };
        let why = if text.trim().is_empty() {
            "is empty".to_owned()
        } else if text.len() > max {
            format!("is {} bytes long: at most {max}", text.len())
        } else if text.chars().any(char::is_control) {
            format!("{} contains control characters", self.source_text())
        } else {
            return Some(text.to_owned());
        };
        self.report(why);
        None
    }

    /// One of several words.
    pub(super) fn keyword<T: Copy>(&mut self, words: &[(&'static str, T)]) -> Option<T> {
        let typed = self.text(bounds::MAX_NAME_BYTES)?;
        let found = words.iter().find(|(word, _)| *word == typed);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let near = closest_name(&typed.to_lowercase(), names.iter().copied());
            let what = choice_error(&self.source_text(), &names);
            self.report_with_suggestion(what, near.map(|near| format!("did you mean \"{near}\"?")));
        }
        found.map(|(_, value)| *value)
    }

    /// The valid items of a list. The others are reported.
    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut ValueReader<'_, '_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let DeValue::Array(list) = self.value.get_ref() else {
            let shown = self.source_text();
            let is_item = matches!(
                self.value.get_ref(),
                DeValue::String(_) | DeValue::Integer(_)
            );
            let suggestion = is_item.then(|| format!("write [{shown}]"));
            self.report_with_suggestion(format!("{shown} is not a list"), suggestion);
            return None;
        };
        if list.len() > bounds::MAX_LIST_LENGTH {
            let (length, max) = (list.len(), bounds::MAX_LIST_LENGTH);
            self.report(format!("is a list of {length}: at most {max}"));
            return None;
        }
        let mut items = Vec::new();
        for (position, value) in list.iter().enumerate() {
            items.extend(each(&mut self.indexed_item(position, value)));
        }
        Some(items)
    }

    /// A list of tables.
    pub(super) fn tables<T: TableEntry>(&mut self) -> Option<Vec<T>> {
        self.list(|at| {
            at.record_position();
            T::read("", at)
        })
    }

    /// Names or numbers of users.
    pub(super) fn users(&mut self) -> Option<Vec<String>> {
        self.list(|at| match at.value.get_ref() {
            DeValue::Integer(_) => {
                let number = at.count(u64::from(u32::MAX))?;
                Some(number.to_string())
            }
            _ => at.name(),
        })
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, and any is wanted"
    )]
    pub(super) fn names(&mut self) -> Option<Vec<String>> {
        self.list(|at| at.name())
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let name = self.text(bounds::MAX_NAME_BYTES)?;
        self.check_name(&name);
        Some(name)
    }

    /// Reports a name that no policy, user or group can have.
    pub(super) fn check_name(&mut self, name: &str) {
        if name.contains(['*', '?']) {
            let what = "a name must not contain * or ?".to_owned();
            self.report_with_suggestion(
                what,
                Some("to apply it to everybody, list no names".to_owned()),
            );
        } else {
            self.check_any_name(name);
        }
    }

    /// Reports a name that nothing can have.
    pub(super) fn check_any_name(&mut self, name: &str) {
        if name.trim().is_empty() || name.len() > bounds::MAX_NAME_BYTES {
            let max = bounds::MAX_NAME_BYTES;
            self.report(format!("a name must have 1 to {max} bytes"));
        } else if name.chars().any(char::is_control) {
            self.report("a name must not contain control characters");
        }
    }

    /// Reads a key that repeats the name of its table.
    pub(super) fn check_same_name(&mut self, name: &str) {
        let Some(typed) = self.text(bounds::MAX_NAME_BYTES) else {
            return;
        };
        if typed != name {
            let what = format!(
                "{} is not the name of its table, \"{name}\"",
                self.source_text()
            );
            self.report_with_suggestion(what, Some("leave it out, or rename the table".to_owned()));
        }
    }

    /// Patterns that match whole texts.
    pub(super) fn globs(&mut self) -> Option<Vec<Glob>> {
        self.list(|at| {
            let typed = at.text(bounds::MAX_NAME_BYTES)?;
            if !at.count_pattern() {
                return None;
            }
            let glob = Glob::parse(&typed);
            if glob.is_none() {
                let shown = at.source_text();
                at.report(format!("pattern {shown} is too large"));
            }
            glob
        })
    }

    /// A regular expression.
    pub(super) fn pattern(&mut self) -> Option<Pattern> {
        let typed = self.text(MAX_CONDITION_BYTES)?;
        if !self.count_pattern() {
            return None;
        }
        match select::compile_pattern(&typed) {
            Ok(regex) => Some(Pattern { typed, regex }),
            Err(why) => {
                self.report(why);
                None
            }
        }
    }
}

/// Rounds a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is checked to be neither negative nor too large"
)]
fn round_to_u64(number: f64) -> Option<u64> {
    // An `f64` represents the integers up to here exactly.
    (0.0..=9_007_199_254_740_992.0)
        .contains(&number)
        .then_some(number.round() as u64)
}
