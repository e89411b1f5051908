//! What a value may be: each kind with its bounds, and what is said when it is
//! something else.

use super::at::At;
use super::bounds;
use super::field::Entry;
use crate::guard::rules::{Glob, Pattern};
use crate::select;
use gpukill_proto::settings::nearest;
use gpukill_proto::settings::value::{parse_duration, parse_size, show};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;
use toml::de::DeValue;

/// The unit of a number that is written without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `grace_period_seconds`
    Seconds,
    /// `idle_limit_minutes`
    Minutes,
    /// `duration_limit_hours`
    Hours,
    /// `grace`, which is always written with its unit.
    Written,
}

impl Unit {
    /// Seconds in one, and its name.
    const fn known(self) -> Option<(f64, &'static str)> {
        match self {
            Self::Seconds => Some((1.0, "seconds")),
            Self::Minutes => Some((60.0, "minutes")),
            Self::Hours => Some((3_600.0, "hours")),
            Self::Written => None,
        }
    }
}

impl At<'_, '_> {
    /// GiB, or a text with its unit: `8`, `0.5`, `"512MiB"`.
    pub(super) fn gib(&mut self) -> Option<Bytes> {
        const GIB: f64 = (1u64 << 30) as f64;
        let bytes = match self.value.get_ref() {
            DeValue::String(text) => parse_size(text),
            _ => self.number().and_then(|gib| whole(gib * GIB)),
        };
        let bytes = bytes.filter(|bytes| *bytes <= bounds::MEMORY);
        if bytes.is_none() {
            let most = bounds::MEMORY >> 30;
            self.wrong(format!(
                "{} is not a number of GiB from 0 to {most}, nor a text like \"512MiB\"",
                self.shown()
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
                // Drivers tell whole percent: half a one would promise too much.
                .filter(|number| number.fract() == 0.0)
                .and_then(whole)
                .and_then(|number| u32::try_from(number).ok()),
        };
        let percent = percent.filter(|percent| *percent <= 100);
        if percent.is_none() {
            let shown = self.shown();
            self.wrong(format!(
                "{shown} is not a whole number of percent from 0 to 100"
            ));
        }
        percent.map(Percent)
    }

    /// The same, of these alone.
    pub(super) fn percent_of(&mut self, of: &[u32]) -> Option<Percent> {
        let percent = self.percent()?;
        if of.contains(&percent.0) {
            return Some(percent);
        }
        let all: Vec<String> = of.iter().map(u32::to_string).collect();
        let shown = self.shown();
        self.wrong(format!("{shown} is none of {}", all.join(", ")));
        None
    }

    /// A number of units, or a text with its own: `12.5`, `"90m"`.
    pub(super) fn duration(
        &mut self,
        unit: Unit,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let length = match (self.value.get_ref(), unit.known()) {
            (DeValue::String(text), _) => parse_duration(text),
            (_, Some((seconds, _))) => self
                .number()
                .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok()),
            (_, None) => None,
        };
        let length = length.filter(|length| (least..=most).contains(length));
        if length.is_none() {
            let (shown, low, high) = (self.shown(), show(least), show(most));
            self.wrong(match unit.known() {
                Some((_, name)) => format!(
                    "{shown} is not a number of {name}, nor a text like \"90m\", from {low} to {high}"
                ),
                None => format!("{shown} is not a text like \"90m\", from {low} to {high}"),
            });
        }
        length
    }

    /// A whole number.
    pub(super) fn count(&mut self, most: u64) -> Option<u32> {
        self.count_from(0, most)
    }

    /// A whole number within these.
    pub(super) fn count_from(&mut self, least: u64, most: u64) -> Option<u32> {
        let number = match self.value.get_ref() {
            DeValue::Integer(_) => self.number().and_then(whole),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let shown = self.shown();
            self.wrong(format!(
                "{shown} is not a whole number from {least} to {most}"
            ));
        }
        number.and_then(|number| u32::try_from(number).ok())
    }

    /// `true` or `false`.
    pub(super) fn truth(&mut self) -> Option<bool> {
        let truth = self.value.get_ref().as_bool();
        if truth.is_none() {
            let shown = self.shown();
            self.wrong(format!("{shown} is neither true nor false"));
        }
        truth
    }

    /// A number that is neither infinite nor none.
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

    /// A text of so many bytes, without what steers a terminal.
    pub(super) fn text(&mut self, most: usize) -> Option<String> {
        let Some(text) = self.value.get_ref().as_str() else {
            let shown = self.shown();
            self.wrong(format!("{shown} is not a text in quotes"));
            return None;
        };
        let why = if text.trim().is_empty() {
            "is empty".to_owned()
        } else if text.len() > most {
            format!("is {} bytes long: at most {most}", text.len())
        } else if text.chars().any(char::is_control) {
            format!("{} has control characters in it", self.shown())
        } else {
            return Some(text.to_owned());
        };
        self.wrong(why);
        None
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&mut self, words: &[(&'static str, T)]) -> Option<T> {
        let typed = self.text(bounds::NAME)?;
        let found = words.iter().find(|(word, _)| *word == typed);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let near = nearest(&typed.to_lowercase(), names.iter().copied());
            let what = format!("{} is none of {}", self.shown(), names.join(", "));
            self.wrong_with(what, near.map(|near| format!("did you mean \"{near}\"?")));
        }
        found.map(|(_, value)| *value)
    }

    /// All of a list that are right; the others are told.
    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut At<'_, '_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let DeValue::Array(list) = self.value.get_ref() else {
            let shown = self.shown();
            let is_text = self.value.get_ref().is_str();
            let suggestion = is_text.then(|| format!("write [{shown}]"));
            self.wrong_with(format!("{shown} is not a list"), suggestion);
            return None;
        };
        if list.len() > bounds::LIST {
            let (length, most) = (list.len(), bounds::LIST);
            self.wrong(format!("is a list of {length}: at most {most}"));
            return None;
        }
        let mut items = Vec::new();
        for (position, value) in list.iter().enumerate() {
            items.extend(each(&mut self.numbered(position, value)));
        }
        Some(items)
    }

    /// A list of tables.
    pub(super) fn tables<T: Entry>(&mut self) -> Option<Vec<T>> {
        self.list(|at| {
            at.note();
            T::read("", at)
        })
    }

    /// Names of users, or their numbers.
    pub(super) fn users(&mut self) -> Option<Vec<String>> {
        self.list(|at| match at.value.get_ref() {
            DeValue::Integer(_) => {
                let number = at.count(u64::from(u32::MAX))?;
                Some(number.to_string())
            }
            _ => at.name(),
        })
    }

    /// Names of what has names.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, and any is wanted"
    )]
    pub(super) fn names(&mut self) -> Option<Vec<String>> {
        self.list(|at| at.name())
    }

    /// A name of something.
    pub(super) fn name(&mut self) -> Option<String> {
        let name = self.text(bounds::NAME)?;
        self.check_name(&name);
        Some(name)
    }

    /// Whether this can be the name of a policy, a user or a group.
    pub(super) fn check_name(&mut self, name: &str) {
        if name.contains(['*', '?']) {
            let what = "names have no * and ? in them".to_owned();
            self.wrong_with(
                what,
                Some("everybody is meant where nobody is named".to_owned()),
            );
        } else {
            self.check_written(name);
        }
    }

    /// Whether this can be the name of anything.
    pub(super) fn check_written(&mut self, name: &str) {
        if name.trim().is_empty() || name.len() > bounds::NAME {
            let most = bounds::NAME;
            self.wrong(format!("a name has 1 to {most} bytes"));
        } else if name.chars().any(char::is_control) {
            self.wrong("a name has no control characters in it");
        }
    }

    /// This key says again what the table is called.
    pub(super) fn same_as(&mut self, name: &str) {
        let Some(typed) = self.text(bounds::NAME) else {
            return;
        };
        if typed != name {
            let what = format!("{} is not the name of its table, \"{name}\"", self.shown());
            self.wrong_with(what, Some("leave it out, or rename the table".to_owned()));
        }
    }

    /// Patterns for whole texts.
    pub(super) fn globs(&mut self) -> Option<Vec<Glob>> {
        self.list(|at| {
            let typed = at.text(bounds::NAME)?;
            if !at.count_pattern() {
                return None;
            }
            let glob = Glob::parse(&typed);
            if glob.is_none() {
                let shown = at.shown();
                at.wrong(format!("{shown} is too large a pattern"));
            }
            glob
        })
    }

    /// A regular expression.
    pub(super) fn pattern(&mut self) -> Option<Pattern> {
        let typed = self.text(select::PATTERN_MAX)?;
        if !self.count_pattern() {
            return None;
        }
        match select::pattern(&typed) {
            Ok(regex) => Some(Pattern { typed, regex }),
            Err(why) => {
                self.wrong(why);
                None
            }
        }
    }
}

/// A number that is not negative, without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is checked to be neither negative nor too large"
)]
fn whole(number: f64) -> Option<u64> {
    // The integers up to here are exact in an f64.
    (0.0..=9_007_199_254_740_992.0)
        .contains(&number)
        .then_some(number.round() as u64)
}
