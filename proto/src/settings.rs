//! Strict settings: a TOML file and environment variables over a table of keys.
//!
//! All mistakes are reported at once, each with its line; an unknown key or an invalid value
//! never becomes a silent default.

pub mod position;

use crate::collect::SortIndirect as _;
use position::ParsedText;
use serde::Deserialize as _;
use std::fmt;

/// One key of the settings, with all its properties.
pub struct Key<C: 'static> {
    /// The table of the key; empty for the top level.
    pub section: &'static str,
    /// The name in its table.
    pub name: &'static str,
    /// The environment variable that overrides the key.
    pub variable: &'static str,
    /// The default as written in the file; empty if there is none to write.
    pub default: &'static str,
    /// The comment in the printed default file: one or more lines.
    pub help: &'static str,
    /// Checks a value and stores it in the settings; the error says what is wrong and what
    /// would be right.
    pub set: fn(&mut C, &toml::Value) -> Result<(), String>,
}

impl<C> Key<C> {
    /// The full name: `audit.keep_samples`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.section.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.section, self.name)
        }
    }
}

/// Defines a table of [`Key`](crate::settings::Key)s. Below the name of a section, each key has its
/// name, its variable if any, its default, its help and its setter.
#[macro_export]
macro_rules! setting_keys {
    (
        $(#[$about:meta])*
        $visibility:vis const $table:ident: $settings:ty;
        $(
            [$section:literal]
            $($name:ident $($variable:ident)? = $default:literal, $help:expr, $set:expr;)+
        )+
    ) => {
        $(#[$about])*
        $visibility const $table: &[$crate::settings::Key<$settings>] = &[$($(
            $crate::settings::Key {
                section: $section,
                name: stringify!($name),
                variable: concat!("" $(, stringify!($variable))?),
                default: $default,
                help: $help,
                set: $set,
            },
        )+)+];
    };
}

/// A mistake in a settings file or in the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingMistake {
    /// The line in the file, from 1; `None` for the environment.
    pub line: Option<usize>,
    /// The mistake, with the value itself.
    pub what: String,
}

impl fmt::Display for SettingMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Stores every key of the file's text in `settings`, and returns all mistakes.
pub fn apply_file<C>(keys: &[Key<C>], text: &str, settings: &mut C) -> Vec<SettingMistake> {
    let parsed = ParsedText::parse(text);
    let line_of = |offset: usize| parsed.lines.position(offset).line;
    let mistake = |(offset, what)| SettingMistake {
        line: Some(line_of(offset)),
        what,
    };
    let mut mistakes: Vec<SettingMistake> = parsed.errors.into_iter().map(mistake).collect();
    if !parsed.is_complete {
        return mistakes;
    }
    // The same values without spans; the spanned table only gives the lines.
    let values = toml::Table::deserialize(toml::de::Deserializer::from(parsed.table.clone()));
    let Ok(values) = values else {
        return mistakes;
    };
    let file = SettingsFile { keys, line_of };
    file.apply_table("", parsed.table.get_ref(), &values, settings, &mut mistakes);
    mistakes.sort_indirect_by_key(|mistake| mistake.line);
    mistakes
}

/// A file that is being read.
struct SettingsFile<'k, C: 'static, L> {
    keys: &'k [Key<C>],
    /// The line of a byte offset.
    line_of: L,
}

impl<C, L: Fn(usize) -> usize> SettingsFile<'_, C, L> {
    /// Stores the keys of a table in the settings, and those of its sub-tables.
    fn apply_table(
        &self,
        section: &str,
        table: &toml::de::DeTable<'_>,
        values: &toml::Table,
        settings: &mut C,
        mistakes: &mut Vec<SettingMistake>,
    ) {
        for (name, spanned) in table {
            let line = Some((self.line_of)(name.span().start));
            let name: &str = name.get_ref();
            let Some(value) = values.get(name) else {
                continue;
            };
            let path = match section {
                "" => name.to_owned(),
                section => format!("{section}.{name}"),
            };
            match (self.is_section(&path), spanned.get_ref(), value) {
                (true, toml::de::DeValue::Table(table), toml::Value::Table(values)) => {
                    self.apply_table(&path, table, values, settings, mistakes);
                }
                (true, _, _) => {
                    let what = format!("{path} is a section: write [{path}]");
                    mistakes.push(SettingMistake { line, what });
                }
                (false, _, _) => {
                    mistakes.extend(apply_key(self.keys, section, name, value, line, settings));
                }
            }
        }
    }

    /// Whether there are keys in this table, or in a table below it.
    fn is_section(&self, path: &str) -> bool {
        self.keys.iter().any(|key| {
            let below = key.section.strip_prefix(path);
            below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
        })
    }
}

fn apply_key<C>(
    keys: &[Key<C>],
    section: &str,
    name: &str,
    value: &toml::Value,
    line: Option<usize>,
    settings: &mut C,
) -> Option<SettingMistake> {
    let key = keys
        .iter()
        .find(|key| key.section == section && key.name == name);
    let what = match key {
        Some(key) => match (key.set)(settings, value) {
            Ok(()) => return None,
            Err(why) => format!("{}: {why}", key.path()),
        },
        None => unknown_key_message(keys, section, name),
    };
    Some(SettingMistake { line, what })
}

fn unknown_key_message<C>(keys: &[Key<C>], section: &str, name: &str) -> String {
    let typed = if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    };
    let typed = crate::text::sanitize(typed.as_bytes(), 80);
    let tables: Vec<String> = keys
        .iter()
        .filter(|key| key.name == name)
        .map(|key| match key.section {
            "" => "at the top of the file, above all tables".to_owned(),
            section => format!("in [{section}]"),
        })
        .collect();
    if !tables.is_empty() {
        return format!(
            "unknown key {typed}; {name} belongs {}",
            tables.join(" or ")
        );
    }
    let paths: Vec<String> = keys.iter().map(Key::path).collect();
    let closest = closest_name(&typed, paths.iter().map(String::as_str))
        .or_else(|| closest_name(name, keys.iter().map(|key| key.name)))
        .and_then(|closest| {
            keys.iter()
                .find(|key| key.path() == closest || key.name == closest)
        });
    let closest = match closest {
        Some(key) => Some(key.path()),
        None => closest_name(name, keys.iter().map(|key| key.section))
            .map(|section| format!("[{section}]")),
    };
    match closest {
        Some(closest) => format!("unknown key {typed}; did you mean {closest}?"),
        None => format!("unknown key {typed}"),
    }
}

/// The known name that is most similar to a typed one, if it is similar enough.
#[must_use]
pub fn closest_name<'a>(typed: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No name is longer, and the comparison takes time with both lengths.
    if typed.len() > 120 {
        return None;
    }
    among
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(name, typed), name))
        .min_by_key(|(distance, _)| *distance)
        // Half of a short name could match anything.
        .filter(|(distance, _)| *distance <= 3 && distance * 2 <= typed.len())
        .map(|(_, name)| name)
}

/// Stores every variable that overrides a key in `settings`, and returns all mistakes. With
/// `prefix`, a variable with that prefix that overrides nothing is a mistake too.
///
/// A value is read as TOML if the key accepts that, else as plain text; a list may be written
/// with commas.
pub fn apply_environment<C>(
    keys: &[Key<C>],
    prefix: Option<&str>,
    variables: impl IntoIterator<Item = (String, String)>,
    settings: &mut C,
) -> Vec<SettingMistake> {
    let mut mistakes = Vec::new();
    for (variable, text) in variables {
        let Some(key) = keys.iter().find(|key| key.variable == variable) else {
            if prefix.is_some_and(|prefix| variable.starts_with(prefix)) {
                let what = format!("{variable} overrides no setting");
                mistakes.push(SettingMistake { line: None, what });
            }
            continue;
        };
        if let Err(why) = set_from_text(key, &text, settings) {
            mistakes.push(SettingMistake {
                line: None,
                what: format!("{variable}: {why}"),
            });
        }
    }
    mistakes
}

fn set_from_text<C>(key: &Key<C>, text: &str, settings: &mut C) -> Result<(), String> {
    // A line break would start another key of TOML.
    if text.contains(char::is_control) {
        return Err(format!(
            "{text:?} has a line break or another control character"
        ));
    }
    let as_toml = format!("v = {text}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("v"));
    if let Some(value) = as_toml
        && (key.set)(settings, &value).is_ok()
    {
        return Ok(());
    }
    let plain = toml::Value::String(text.to_owned());
    let as_text = (key.set)(settings, &plain);
    if as_text.is_err() {
        let items = text
            .split(',')
            .map(|item| toml::Value::String(item.trim().to_owned()))
            .collect();
        if (key.set)(settings, &toml::Value::Array(items)).is_ok() {
            return Ok(());
        }
    }
    as_text
}

/// The settings with every default applied. A default that its own key refuses is a bug, which
/// the tests of each table look for.
#[must_use]
pub fn defaults<C: Default>(keys: &[Key<C>]) -> (C, Vec<SettingMistake>) {
    let mut settings = C::default();
    let text = print_defaults(keys);
    let mistakes = apply_file(keys, &text, &mut settings);
    (settings, mistakes)
}

/// A commented file of all keys with their defaults.
#[must_use]
pub fn print_defaults<C>(keys: &[Key<C>]) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in keys {
        if key.section != section {
            section = key.section;
            text.push_str(&format!("\n[{section}]\n"));
        } else if !text.is_empty() {
            text.push('\n');
        }
        for line in key.help.lines() {
            text.push_str(&format!("# {line}\n"));
        }
        let comment = if key.default.is_empty() { "# " } else { "" };
        text.push_str(format!("{comment}{} = {}", key.name, key.default).trim_end());
        text.push('\n');
    }
    text.trim_start().to_owned()
}

/// Checked values of kinds that several settings use.
pub mod value {
    use std::fmt::Display;
    use std::time::Duration;
    use toml::Value;

    /// A text that is not empty.
    ///
    /// # Errors
    /// The mistake in the value.
    pub fn text(value: &Value) -> Result<String, String> {
        match value.as_str() {
            Some("") => Err("is empty".into()),
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("{value} is not a text in quotes")),
        }
    }

    /// `true` or `false`; also the words and numbers that other programs take for them: `yes`,
    /// `on` and 1, `no`, `off` and 0.
    ///
    /// # Errors
    /// The mistake in the value.
    pub fn boolean(value: &Value) -> Result<bool, String> {
        let is_any = |words: [&str; 4]| {
            let text = value.as_str();
            text.is_some_and(|text| words.iter().any(|word| text.eq_ignore_ascii_case(word)))
        };
        match value {
            Value::Boolean(value) => Ok(*value),
            Value::Integer(number @ (0 | 1)) => Ok(*number == 1),
            _ if is_any(["true", "yes", "on", "1"]) => Ok(true),
            _ if is_any(["false", "no", "off", "0"]) => Ok(false),
            _ => Err(choice_error(value, &["true", "false"])),
        }
    }

    /// The error for a value that is none of these choices.
    #[must_use]
    pub fn choice_error(value: &dyn Display, choices: &[&str]) -> String {
        let choices = match choices {
            [others @ .., last] if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => choices.concat(),
        };
        format!("{value} is not valid: write {choices}")
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// The mistake in the value.
    pub fn number(value: &Value, min: u64, max: u64) -> Result<u64, String> {
        value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{value} is not a whole number from {min} to {max}"))
    }

    /// A duration with its unit, within bounds: `"500ms"`, `"2s"`, `"1.5h"`,
    /// `"7d"`, `"2y"` (a year is 365 days).
    ///
    /// # Errors
    /// The mistake in the value.
    pub fn duration(value: &Value, min: Duration, max: Duration) -> Result<Duration, String> {
        let parsed = value.as_str().and_then(parse_duration);
        parsed
            .filter(|length| (min..=max).contains(length))
            .ok_or_else(|| {
                let (min, max) = (format_duration(min), format_duration(max));
                format!(
                    "{value} is not a duration from \"{min}\" to \"{max}\", like \"2s\" or \"7d\""
                )
            })
    }

    /// Parses `2s`, `1.5h`, …; `None` if it is not a duration.
    #[must_use]
    pub fn parse_duration(text: &str) -> Option<Duration> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(digits);
        let seconds = match unit.trim() {
            "ms" => 0.001,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 604_800.0,
            "y" | "year" | "years" => 31_536_000.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    }

    /// Parses `512MiB`, `4G`, `1.5 TB`, … into bytes; G, GB and GiB are the same. `None` if it
    /// is not a size.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is checked to be neither negative nor too large"
    )]
    pub fn parse_size(text: &str) -> Option<u64> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        // Units are powers of two: the product is exact.
        #[expect(clippy::cast_precision_loss, reason = "units are powers of two")]
        let bytes = number * unit as f64;
        // Integers up to 8 PiB are exact in an f64.
        (bytes <= 9_007_199_254_740_992.0).then_some(bytes as u64)
    }

    /// Formats a duration as it is written in a file, to the millisecond: `90s` as `90s`, `120s`
    /// as `2m`, `1.5s` as `1500ms`.
    #[must_use]
    pub fn format_duration(length: Duration) -> String {
        match length.as_secs() {
            _ if length.subsec_millis() > 0 => format!("{}ms", length.as_millis()),
            0 => "0s".to_owned(),
            s if s % 31_536_000 == 0 => format!("{}y", s / 31_536_000),
            s if s % 86_400 == 0 => format!("{}d", s / 86_400),
            s if s % 3_600 == 0 => format!("{}h", s / 3_600),
            s if s % 60 == 0 => format!("{}m", s / 60),
            s => format!("{s}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Sample {
        level: String,
        count: u64,
        names: Vec<String>,
    }

    const KEYS: &[Key<Sample>] = &[
        Key {
            section: "",
            name: "level",
            variable: "SAMPLE_LEVEL",
            default: "\"info\"",
            help: "How much is said.",
            set: |s, v| value::text(v).map(|value| s.level = value),
        },
        Key {
            section: "part",
            name: "count",
            variable: "SAMPLE_PART_COUNT",
            default: "3",
            help: "How many.",
            set: |s, v| value::number(v, 1, 9).map(|value| s.count = value),
        },
        Key {
            section: "part",
            name: "names",
            variable: "SAMPLE_PART_NAMES",
            default: "[\"a\"]",
            help: "Which.",
            set: |s, v| {
                let list = v.as_array().ok_or("is not a list")?;
                s.names = list.iter().map(value::text).collect::<Result<_, _>>()?;
                Ok(())
            },
        },
    ];

    #[test]
    fn all_mistakes_have_their_line() {
        let text = "levle = \"x\"\nlevel = 3\n\n[part]\ncount = 10\nnames = [1]\nother = 1\n\n[nowhere]\nx = 1\n";
        let mut sample = Sample::default();
        let found: Vec<String> = apply_file(KEYS, text, &mut sample)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "line 1: unknown key levle; did you mean level?",
                "line 2: level: 3 is not a text in quotes",
                "line 5: part.count: 10 is not a whole number from 1 to 9",
                "line 6: part.names: 1 is not a text in quotes",
                "line 7: unknown key part.other",
                "line 9: unknown key nowhere",
            ]
        );
    }

    #[test]
    fn key_of_another_table_is_recognized() {
        let text = "count = 3\n[part]\nlevel = \"x\"\n[prat]\ncount = 3\n";
        let found: Vec<String> = apply_file(KEYS, text, &mut Sample::default())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "line 1: unknown key count; count belongs in [part]",
                "line 3: unknown key part.level; level belongs at the top of the file, above all \
                 tables",
                "line 4: unknown key prat; did you mean [part]?",
            ]
        );
    }

    #[test]
    fn syntax_errors_have_their_line() {
        let mut sample = Sample::default();
        let lines: Vec<_> = apply_file(KEYS, "level = \n[part]\ncount = = 3\n", &mut sample)
            .iter()
            .map(|m| m.line)
            .collect();
        assert_eq!(lines, [Some(1), Some(3)]);
    }

    #[test]
    fn duplicate_key_hides_no_other_mistake() {
        for (text, expected) in [
            (
                "level = \"x\"\nlevel = \"y\"\n[part]\ncount = 10\n\"count\" = 3\nother = 1\n",
                &[
                    "line 2: duplicate key level",
                    "line 4: part.count: 10 is not a whole number from 1 to 9",
                    "line 5: duplicate key \"count\"",
                    "line 6: unknown key part.other",
                ][..],
            ),
            (
                "[part]\ncount = 3\n[part]\ncount = 4\n",
                &["line 3: duplicate key part", "line 4: duplicate key count"],
            ),
        ] {
            let found = apply_file(KEYS, text, &mut Sample::default());
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let are_these = found.len() == expected.len()
                && found
                    .iter()
                    .zip(expected)
                    .all(|(it, begin)| it.starts_with(begin));
            assert!(are_these, "{found:#?}");
        }
    }

    #[test]
    fn printed_defaults_match() {
        let (sample, mistakes) = defaults(KEYS);
        assert_eq!(mistakes, []);
        assert_eq!(
            sample,
            Sample {
                level: "info".into(),
                count: 3,
                names: vec!["a".into()]
            }
        );
        assert_eq!(
            print_defaults(KEYS),
            "# How much is said.\nlevel = \"info\"\n\n[part]\n# How many.\ncount = 3\n\n# Which.\nnames = [\"a\"]\n"
        );
    }

    #[test]
    fn environment_overrides_the_file() {
        let mut sample = Sample::default();
        let variables = [
            ("SAMPLE_LEVEL", "debug"),
            ("SAMPLE_PART_COUNT", "7"),
            ("SAMPLE_PART_NAMES", "x, y"),
            ("HOME", "/root"),
            ("SAMPLE_PART_COUNTS", "7"),
        ];
        let variables = variables.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let mistakes = apply_environment(KEYS, Some("SAMPLE_"), variables, &mut sample);
        assert_eq!(
            sample,
            Sample {
                level: "debug".into(),
                count: 7,
                names: vec!["x".into(), "y".into()]
            }
        );
        let found: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["SAMPLE_PART_COUNTS overrides no setting"]);
    }

    #[test]
    fn variable_with_a_control_character_is_refused() {
        for text in ["7\ncount = 8", "debug\n", "a,\tb", "\u{1b}[1m", "7\r"] {
            for variable in ["SAMPLE_LEVEL", "SAMPLE_PART_COUNT", "SAMPLE_PART_NAMES"] {
                let mut sample = Sample::default();
                let variables = [(variable.to_owned(), text.to_owned())];
                let mistakes = apply_environment(KEYS, None, variables, &mut sample);
                let found: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                let expected =
                    format!("{variable}: {text:?} has a line break or another control character");
                assert_eq!(found, [expected]);
                assert_eq!(sample, Sample::default());
            }
        }
    }

    #[test]
    fn boolean_accepts_words_and_numbers() {
        let quoted = |word: &str| toml::Value::String(word.to_owned());
        for word in ["true", "TRUE", "yes", "Yes", "on", "ON", "1"] {
            assert_eq!(value::boolean(&quoted(word)), Ok(true), "{word}");
        }
        for word in ["false", "False", "no", "NO", "off", "Off", "0"] {
            assert_eq!(value::boolean(&quoted(word)), Ok(false), "{word}");
        }
        for (value, expected) in [
            (toml::Value::Boolean(true), true),
            (toml::Value::Boolean(false), false),
            (toml::Value::Integer(1), true),
            (toml::Value::Integer(0), false),
        ] {
            assert_eq!(value::boolean(&value), Ok(expected), "{value}");
        }
        for value in [
            toml::Value::Integer(2),
            toml::Value::Integer(-1),
            toml::Value::Float(1.0),
            quoted(""),
            quoted("y"),
            quoted(" true"),
            quoted("maybe"),
        ] {
            let expected = format!("{value} is not valid: write true or false");
            assert_eq!(value::boolean(&value), Err(expected), "{value}");
        }
    }

    #[test]
    fn variable_of_a_boolean_needs_no_toml() {
        const SWITCH: &[Key<bool>] = &[Key {
            section: "",
            name: "on",
            variable: "SAMPLE_ON",
            default: "false",
            help: "Whether it is on.",
            set: |s, v| value::boolean(v).map(|value| *s = value),
        }];
        for (text, expected) in [
            ("1", true),
            ("yes", true),
            ("On", true),
            ("TRUE", true),
            ("0", false),
            ("no", false),
            ("OFF", false),
            ("false", false),
        ] {
            let mut is_on = !expected;
            let variable = ("SAMPLE_ON".to_owned(), text.to_owned());
            assert_eq!(apply_environment(SWITCH, None, [variable], &mut is_on), []);
            assert_eq!(is_on, expected, "{text}");
            is_on = !expected;
            let line = format!("on = \"{text}\"");
            assert_eq!(apply_file(SWITCH, &line, &mut is_on), []);
            assert_eq!(is_on, expected, "{line}");
        }
    }

    #[test]
    fn parses_durations() {
        use std::time::Duration;
        for (text, seconds) in [
            ("2s", 2),
            ("1.5h", 5_400),
            ("7d", 604_800),
            ("2y", 63_072_000),
            ("10 min", 600),
            ("2 days", 172_800),
            ("1 hour", 3_600),
        ] {
            assert_eq!(
                value::parse_duration(text),
                Some(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in [
            "2",
            "s",
            "-1s",
            "1..5h",
            "",
            "1e9s",
            "99999999999999999999y",
            "2s s",
        ] {
            assert_eq!(value::parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_duration_is_parsed_to_the_same() {
        use std::time::Duration;
        for (millis, expected) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1500ms"),
            (60_001, "60001ms"),
            (90_000, "90s"),
            (120_000, "2m"),
            (86_400_000, "1d"),
            (63_072_000_000, "2y"),
        ] {
            let length = Duration::from_millis(millis);
            assert_eq!(value::format_duration(length), expected);
            assert_eq!(value::parse_duration(expected), Some(length), "{expected}");
        }
    }

    #[test]
    fn parses_sizes() {
        for (text, bytes) in [
            ("512MiB", 512 << 20),
            ("4G", 4 << 30),
            ("4 gb", 4 << 30),
            ("1.5TiB", 3 << 39),
            ("0K", 0),
            ("17B", 17),
        ] {
            assert_eq!(value::parse_size(text), Some(bytes), "{text}");
        }
        for text in [
            "", "4", "G", "-1G", "1..5G", "4Gi", "9999999T", "1e3G", "4G G",
        ] {
            assert_eq!(value::parse_size(text), None, "{text}");
        }
    }
}
