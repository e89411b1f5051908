//! The parameters of requests, checked strictly: an unknown, repeated or invalid parameter is an
//! error, never ignored.

use crate::problem::Problem;
use chrono::DateTime;
use gpukill_proto::settings::closest_name;
use gpukill_proto::settings::value::parse_duration;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// Whether it is a part of the path; else of the query.
    pub(crate) place: Place,
    /// The valid values.
    pub(crate) kind: ParameterKind,
    /// The description in the API document.
    pub(crate) summary: &'static str,
}

/// Where a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the path; always required.
    Path,
    /// In the query; always optional.
    Query,
}

/// The valid values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    /// A text that is not empty.
    Text,
    /// A whole number between these, and its default if it is left out.
    Number {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
        /// The default.
        default: Option<u64>,
    },
    /// A point of time: RFC 3339, or how long ago, as `2h`.
    Time,
    /// One of these words; the first is the default.
    Choice(&'static [&'static str]),
}

/// The longest text in bytes, as for the daemon's own conditions.
const MAX_TEXT: usize = 512;

/// The longest period that is looked up, in hours: ten years.
const MAX_HOURS: u64 = 87_600;

/// The last moment of the year 9999: later ones are not RFC 3339.
const MAX_TIME: i64 = 253_402_300_799_999;

/// `hours`, with its default.
pub(crate) const fn hours(default: u64) -> Parameter {
    Parameter {
        name: "hours",
        place: Place::Query,
        kind: ParameterKind::Number {
            min: 1,
            max: MAX_HOURS,
            default: Some(default),
        },
        summary: "the last N hours; without effect beside since",
    }
}

/// `since`.
pub(crate) const SINCE: Parameter = Parameter {
    name: "since",
    place: Place::Query,
    kind: ParameterKind::Time,
    summary: "from this time: RFC 3339, or how long ago, as 2h",
};

/// `until`.
pub(crate) const UNTIL: Parameter = Parameter {
    name: "until",
    place: Place::Query,
    kind: ParameterKind::Time,
    summary: "before this time, in the same forms; now without it",
};

/// A text in the query.
pub(crate) const fn text(name: &'static str, summary: &'static str) -> Parameter {
    Parameter {
        name,
        place: Place::Query,
        kind: ParameterKind::Text,
        summary,
    }
}

/// `limit`, with its default and its maximum.
pub(crate) const fn limit(default: u64, max: u64) -> Parameter {
    Parameter {
        name: "limit",
        place: Place::Query,
        kind: ParameterKind::Number {
            min: 1,
            max,
            default: Some(default),
        },
        summary: "the most entries",
    }
}

/// The checked parameters of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parameters(BTreeMap<&'static str, String>);

impl Parameters {
    /// Checks the parameters of a request.
    pub(crate) fn parse<'a>(
        known: &'static [Parameter],
        path: impl IntoIterator<Item = (&'a str, &'a str)>,
        query: &str,
    ) -> Result<Self, Problem> {
        let mut all = Self::default();
        for (name, value) in path {
            all.add(known, Place::Path, name, value.to_owned())?;
        }
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.add(known, Place::Query, &name, value.into_owned())?;
        }
        Ok(all)
    }

    /// Checks parameters of a route that the gateway sets itself.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn of(known: &'static [Parameter], set: &[(&str, &str)]) -> Result<Self, Problem> {
        let mut all = Self::default();
        for (name, value) in set {
            let parameter = known.iter().find(|it| it.name == *name);
            let place = parameter.map_or(Place::Query, |it| it.place);
            all.add(known, place, name, (*value).to_owned())?;
        }
        Ok(all)
    }

    /// Only the parameters with these names.
    pub(crate) fn only(&self, names: &[&str]) -> Self {
        let all = self.0.iter().filter(|(name, _)| names.contains(*name));
        Self(all.map(|(name, value)| (*name, value.clone())).collect())
    }

    fn add(
        &mut self,
        known: &'static [Parameter],
        place: Place,
        name: &str,
        value: String,
    ) -> Result<(), Problem> {
        let mut of_place = known.iter().filter(|it| it.place == place);
        let Some(parameter) = of_place.find(|it| it.name == name) else {
            let names = known.iter().map(|it| it.name);
            let typed = sanitize(name.as_bytes(), 80);
            let problem = Problem::bad_request(format!("unknown parameter {typed:?}"));
            return Err(match closest_name(name, names) {
                Some(closest) => problem.with_hint(format!("did you mean {closest}?")),
                None => problem,
            });
        };
        parameter.check(&value).map_err(Problem::bad_request)?;
        let value = parameter.canonical(value);
        match self.0.insert(parameter.name, value) {
            None => Ok(()),
            Some(_) => Err(Problem::bad_request(format!("{name} is given twice"))),
        }
    }

    /// The names and values in the order of the names, to tell requests apart: the same for numbers
    /// and times that are only written differently.
    pub(crate) fn key(&self) -> String {
        format!("{:?}", self.0)
    }

    /// Whether none is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text, if it is given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// An owned text, if it is given.
    pub(crate) fn owned(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// A number, or the default of this parameter.
    pub(crate) fn number(&self, parameter: Parameter) -> Option<u64> {
        let ParameterKind::Number { default, .. } = parameter.kind else {
            return None;
        };
        let given = self.text(parameter.name);
        given.and_then(|text| text.parse().ok()).or(default)
    }

    /// The requested time range; `hours` is the parameter with the default.
    ///
    /// # Errors
    /// The range is empty.
    pub(crate) fn span(
        &self,
        hours: Parameter,
        now: Timestamp,
    ) -> Result<(Timestamp, Timestamp), Problem> {
        let time = |name| self.text(name).and_then(|text| parse_time(text, now));
        // Nothing was recorded before 1970.
        let until = time("until").unwrap_or(now).max(Timestamp(0));
        let hours = self.number(hours).unwrap_or(24).min(MAX_HOURS);
        let hours = i64::try_from(hours).unwrap_or(i64::MAX);
        let since = time("since").unwrap_or_else(|| until.plus_seconds(-3_600 * hours));
        let since = since.max(Timestamp(0));
        match since < until {
            true => Ok((since, until)),
            false => Err(Problem::bad_request(format!(
                "the time range is empty: from {since} to {until}"
            ))),
        }
    }
}

impl Parameter {
    fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name;
        let typed = || sanitize(value.as_bytes(), 80);
        match self.kind {
            ParameterKind::Text if value.is_empty() => Err(format!("{name} is empty")),
            ParameterKind::Text if value.len() > MAX_TEXT => {
                Err(format!("{name} is longer than {MAX_TEXT} bytes"))
            }
            ParameterKind::Text => Ok(()),
            ParameterKind::Number { min, max, .. } => {
                let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
                let number = value.parse::<u64>().ok().filter(|_| is_plain);
                match number.is_some_and(|number| (min..=max).contains(&number)) {
                    true => Ok(()),
                    false => Err(format!(
                        "{name} is {:?}, which is not a whole number from {min} to {max}",
                        typed()
                    )),
                }
            }
            // The present matters only for how long ago, and any present is right for a check.
            ParameterKind::Time => match parse_time(value, Timestamp(i64::MAX)) {
                Some(_) => Ok(()),
                None => Err(format!(
                    "{name} is {:?}, which is not a time: write 2h for two hours ago, or RFC 3339",
                    typed()
                )),
            },
            ParameterKind::Choice(words) => match words.contains(&value) {
                true => Ok(()),
                false => Err(format!(
                    "{name} is {:?}, which is not one of {}",
                    typed(),
                    words.join(", ")
                )),
            },
        }
    }

    /// The one way to write a value that has passed the check: `7` for `007`, `7200000ms` for `2h`.
    fn canonical(&self, value: String) -> String {
        match self.kind {
            ParameterKind::Number { .. } => value
                .parse::<u64>()
                .map_or(value, |number| number.to_string()),
            ParameterKind::Time => {
                let written = match parse_duration(&value) {
                    Some(length) => Some(format!("{}ms", length.as_millis())),
                    None => parse_time(&value, Timestamp(0)).map(Timestamp::to_rfc3339),
                };
                // A year before the first, as by an offset at the start of the calendar, is not RFC 3339.
                let time = |text: &str| parse_time(text, Timestamp(0));
                let same = written.filter(|written| time(written) == time(&value));
                same.unwrap_or(value)
            }
            ParameterKind::Text | ParameterKind::Choice(_) => value,
        }
    }
}

/// Parses RFC 3339, or how long ago: `2h`.
fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(length) = parse_duration(text) {
        let milliseconds = i64::try_from(length.as_millis()).ok()?;
        return Some(Timestamp(now.0.checked_sub(milliseconds)?));
    }
    // In a query, a plus sign that is not escaped is a blank.
    let moment = DateTime::parse_from_rfc3339(&text.replace(' ', "+")).ok()?;
    Some(Timestamp(moment.timestamp_millis())).filter(|time| time.0 <= MAX_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PID: Parameter = Parameter {
        name: "pid",
        place: Place::Path,
        kind: ParameterKind::Number {
            min: 1,
            max: 10,
            default: None,
        },
        summary: "",
    };
    const KNOWN: &[Parameter] = &[
        PID,
        text("gpu", ""),
        hours(24),
        SINCE,
        UNTIL,
        limit(100, 1_000),
    ];
    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    fn parse(path: &[(&'static str, &'static str)], query: &str) -> Result<Parameters, String> {
        let parsed = Parameters::parse(KNOWN, path.iter().copied(), query);
        parsed.map_err(|problem| {
            let document: serde_json::Value = serde_json::from_slice(&problem.body()).unwrap();
            document["detail"].as_str().unwrap().to_owned()
        })
    }

    #[test]
    fn values_are_decoded_and_checked() {
        let all = parse(&[("pid", "7")], "gpu=1%2C2&limit=5").unwrap();
        assert_eq!(all.text("gpu"), Some("1,2"));
        assert_eq!(
            (all.number(PID), all.number(limit(100, 1_000))),
            (Some(7), Some(5))
        );
        assert_eq!(all.number(hours(24)), Some(24));
    }

    #[test]
    fn key_is_the_same_for_the_same_values() {
        let key = |query| parse(&[("pid", "7")], query).unwrap().key();
        for (one, same) in [
            ("limit=5", "limit=005"),
            ("since=2h", "since=120m"),
            ("since=2h", "since=2%20hours"),
            (
                "until=2026-11-20T14:00:00%2B01:00",
                "until=2026-11-20T13:00:00Z",
            ),
            ("gpu=1&limit=5", "limit=5&gpu=1"),
        ] {
            assert_eq!(key(one), key(same), "{one} {same}");
        }
        for (one, other) in [
            ("limit=5", "limit=6"),
            ("since=2h", "since=2m"),
            ("gpu=1", "gpu=01"),
        ] {
            assert_ne!(key(one), key(other), "{one} {other}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for (path, query, expected) in [
            (
                "11",
                "",
                "pid is \"11\", which is not a whole number from 1 to 10",
            ),
            (
                "+7",
                "",
                "pid is \"+7\", which is not a whole number from 1 to 10",
            ),
            ("7", "gpus=1", "unknown parameter \"gpus\""),
            ("7", "pid=1", "unknown parameter \"pid\""),
            ("7", "gpu=1&gpu=2", "gpu is given twice"),
            ("7", "gpu=", "gpu is empty"),
            (
                "7",
                "limit=0",
                "limit is \"0\", which is not a whole number from 1 to 1000",
            ),
            (
                "7",
                "since=soon",
                "since is \"soon\", which is not a time: write 2h for two hours ago, or RFC 3339",
            ),
        ] {
            assert_eq!(
                parse(&[("pid", path)], query),
                Err(expected.to_owned()),
                "{query}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_requests_never_panic(query in ".{0,60}", path in ".{0,20}") {
            if let Ok(all) = Parameters::parse(KNOWN, [("pid", path.as_str())], &query) {
                let _ = all.span(hours(24), NOW);
                prop_assert!((1..=10).contains(&all.number(PID).unwrap()));
            }
        }

        #[test]
        fn arbitrary_values_of_known_parameters_never_panic(since in ".{0,30}", hours in ".{0,30}") {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("since", &since)
                .append_pair("hours", &hours)
                .finish();
            if let Ok(all) = Parameters::parse(KNOWN, [], &query) {
                let _ = all.span(super::hours(24), NOW);
            }
        }
    }

    #[test]
    fn time_range_ends_now_by_default() {
        let span = |query| {
            let all = parse(&[], query).unwrap();
            let span = all.span(hours(24), NOW).ok()?;
            Some((span.0.to_rfc3339(), span.1.to_rfc3339()))
        };
        let at = |since: &str, until: &str| Some((since.to_owned(), until.to_owned()));
        let now = "2026-11-21T14:02:31.250Z";
        assert_eq!(span(""), at("2026-11-20T14:02:31.250Z", now));
        assert_eq!(span("hours=2"), at("2026-11-21T12:02:31.250Z", now));
        assert_eq!(span("since=1h"), at("2026-11-21T13:02:31.250Z", now));
        assert_eq!(
            span("since=2026-11-20T14:00:00+01:00&until=2h"),
            at("2026-11-20T13:00:00.000Z", "2026-11-21T12:02:31.250Z")
        );
        assert_eq!(span("since=1h&until=2h"), None);
        let year = parse(&[], "since=9999-12-31T23:59:59-23:59").unwrap_err();
        assert!(year.contains("which is not a time"), "{year}");
        let old = parse(&[], "until=106751991167d").unwrap();
        let old = old.span(hours(24), NOW).unwrap_err();
        let first = Timestamp(0);
        let what = format!("the time range is empty: from {first} to {first}");
        assert_eq!(old.detail(), what);
    }
}
