//! Strict settings: a TOML file and variables of the environment over a table
//! of keys. Every mistake is found at once, each with its line; nothing unknown
//! or wrong ever becomes a silent default.

pub mod place;

use crate::collect::SortIndirect as _;
use place::{Lines, are_only_twice, broken};
use serde::Deserialize as _;
use std::fmt;

/// One key: the whole truth about it in one place.
pub struct Key<C: 'static> {
    /// The table it stands in; empty for the top level.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// The variable of the environment that overrides it.
    pub variable: &'static str,
    /// Its default, as it would be written in the file; empty where there is
    /// none to write.
    pub default: &'static str,
    /// One or more lines for the printed default file.
    pub help: &'static str,
    /// Checks a value and puts it into the settings; the error says what is
    /// wrong with it and what would be right.
    pub set: fn(&mut C, &toml::Value) -> Result<(), String>,
}

impl<C> Key<C> {
    /// Where it stands: `audit.keep_samples`
    #[must_use]
    pub fn path(&self) -> String {
        if self.section.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.section, self.name)
        }
    }
}

/// Something wrong in a settings file or in the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line in the file, from 1; `None` for the environment.
    pub line: Option<usize>,
    /// What is wrong, with the value itself in it.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Puts every key of the file's text into `settings`, and returns all mistakes.
pub fn apply_file<C>(keys: &[Key<C>], text: &str, settings: &mut C) -> Vec<Mistake> {
    let (table, errors) = toml::de::DeTable::parse_recoverable(text);
    let lines = Lines::of(text);
    let line_of = |offset: usize| lines.place(offset).line;
    let mistake = |(offset, what)| Mistake {
        line: Some(line_of(offset)),
        what,
    };
    let broken = broken(&errors, &lines).into_iter();
    let mut mistakes: Vec<Mistake> = broken.map(mistake).collect();
    // What else there is, is known only where all of the text was understood.
    if !are_only_twice(&errors) {
        return mistakes;
    }
    // The same values as plain ones; the spanned table is only for the lines.
    let values = toml::Table::deserialize(toml::de::Deserializer::from(table.clone()));
    let Ok(values) = values else {
        return mistakes;
    };
    let file = File { keys, line_of };
    file.apply("", table.get_ref(), &values, settings, &mut mistakes);
    mistakes.sort_indirect_by_key(|mistake| mistake.line);
    mistakes
}

/// A file that is read.
struct File<'k, C: 'static, L> {
    keys: &'k [Key<C>],
    /// The line of a byte.
    line_of: L,
}

impl<C, L: Fn(usize) -> usize> File<'_, C, L> {
    /// Puts a table's keys into the settings, and those of the sections in it.
    fn apply(
        &self,
        section: &str,
        table: &toml::de::DeTable<'_>,
        values: &toml::Table,
        settings: &mut C,
        mistakes: &mut Vec<Mistake>,
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
                    self.apply(&path, table, values, settings, mistakes);
                }
                (true, _, _) => {
                    let what = format!("{path} is a section: write [{path}]");
                    mistakes.push(Mistake { line, what });
                }
                (false, _, _) => {
                    mistakes.extend(apply(self.keys, section, name, value, line, settings));
                }
            }
        }
    }

    /// Whether keys stand in this table, or in one below it.
    fn is_section(&self, path: &str) -> bool {
        self.keys.iter().any(|key| {
            let below = key.section.strip_prefix(path);
            below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
        })
    }
}

fn apply<C>(
    keys: &[Key<C>],
    section: &str,
    name: &str,
    value: &toml::Value,
    line: Option<usize>,
    settings: &mut C,
) -> Option<Mistake> {
    let found = keys
        .iter()
        .find(|key| key.section == section && key.name == name);
    let what = match found {
        Some(key) => match (key.set)(settings, value) {
            Ok(()) => return None,
            Err(why) => format!("{}: {why}", key.path()),
        },
        None => unknown(keys, section, name),
    };
    Some(Mistake { line, what })
}

fn unknown<C>(keys: &[Key<C>], section: &str, name: &str) -> String {
    let typed = if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    };
    let typed = crate::text::visible(typed.as_bytes(), 80);
    let paths: Vec<String> = keys.iter().map(Key::path).collect();
    let near = nearest(&typed, paths.iter().map(String::as_str))
        .or_else(|| nearest(name, keys.iter().map(|key| key.name)))
        .and_then(|near| {
            keys.iter()
                .find(|key| key.path() == near || key.name == near)
        });
    match near {
        Some(key) => format!("unknown key {typed}; did you mean {}?", key.path()),
        None => format!("unknown key {typed}"),
    }
}

/// What was probably meant by what was typed, where it is near enough.
#[must_use]
pub fn nearest<'a>(typed: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any name there is; and to compare takes time with both lengths.
    if typed.len() > 120 {
        return None;
    }
    among
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(name, typed), name))
        .min_by_key(|(distance, _)| *distance)
        // Half of a short name may be anything.
        .filter(|(distance, _)| *distance <= 3 && distance * 2 <= typed.len())
        .map(|(_, name)| name)
}

/// Puts every variable that overrides a key into `settings`, and returns all
/// mistakes. With `prefix`, a variable that begins so and overrides nothing is
/// a mistake too.
///
/// A value is read as TOML where the key takes that, else as plain text; a list
/// may be written with commas.
pub fn apply_environment<C>(
    keys: &[Key<C>],
    prefix: Option<&str>,
    variables: impl IntoIterator<Item = (String, String)>,
    settings: &mut C,
) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (variable, text) in variables {
        let Some(key) = keys.iter().find(|key| key.variable == variable) else {
            if prefix.is_some_and(|prefix| variable.starts_with(prefix)) {
                let what = format!("{variable} overrides no setting");
                mistakes.push(Mistake { line: None, what });
            }
            continue;
        };
        if let Err(why) = set_from_text(key, &text, settings) {
            mistakes.push(Mistake {
                line: None,
                what: format!("{variable}: {why}"),
            });
        }
    }
    mistakes
}

fn set_from_text<C>(key: &Key<C>, text: &str, settings: &mut C) -> Result<(), String> {
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

/// The settings with every default applied. A default that its own key refuses
/// is a mistake of ours, which the tests of each table look for.
#[must_use]
pub fn defaults<C: Default>(keys: &[Key<C>]) -> (C, Vec<Mistake>) {
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

/// Values that several settings take, checked.
pub mod value {
    use std::time::Duration;
    use toml::Value;

    /// A text that is not empty.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn text(value: &Value) -> Result<String, String> {
        match value.as_str() {
            Some("") => Err("is empty".into()),
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("{value} is not a text in quotes")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn truth(value: &Value) -> Result<bool, String> {
        value
            .as_bool()
            .ok_or_else(|| format!("{value} is neither true nor false"))
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn number(value: &Value, least: u64, most: u64) -> Result<u64, String> {
        value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("{value} is not a whole number from {least} to {most}"))
    }

    /// A duration with its unit, within bounds: `"500ms"`, `"2s"`, `"1.5h"`,
    /// `"7d"`, `"2y"` (a year is 365 days).
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn duration(value: &Value, least: Duration, most: Duration) -> Result<Duration, String> {
        let parsed = value.as_str().and_then(parse_duration);
        parsed.filter(|length| (least..=most).contains(length)).ok_or_else(|| {
            let (least, most) = (show(least), show(most));
            format!("{value} is not a duration from \"{least}\" to \"{most}\", like \"2s\" or \"7d\"")
        })
    }

    /// Reads `2s`, `1.5h`, …; `None` when it is no duration.
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

    /// Reads `512MiB`, `4G`, `1.5 TB`, …: bytes, in which G, GB and GiB are the same.
    /// `None` when it is no size.
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
        // Units are powers of two: nothing is lost.
        #[expect(clippy::cast_precision_loss, reason = "units are powers of two")]
        let bytes = number * unit as f64;
        // The integers up to here are exact in an f64: 8 PiB.
        (bytes <= 9_007_199_254_740_992.0).then_some(bytes as u64)
    }

    /// A duration as it is written: `90s` is `90s`, `120s` is `2m`.
    #[must_use]
    pub fn show(length: Duration) -> String {
        let seconds = length.as_secs();
        match seconds {
            0 if length.is_zero() => "0s".to_owned(),
            0 => format!("{}ms", length.as_millis()),
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
    fn every_mistake_is_found_at_once_with_its_line() {
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
    fn a_broken_file_names_every_broken_line() {
        let mut sample = Sample::default();
        let lines: Vec<_> = apply_file(KEYS, "level = \n[part]\ncount = = 3\n", &mut sample)
            .iter()
            .map(|m| m.line)
            .collect();
        assert_eq!(lines, [Some(1), Some(3)]);
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_and_hides_no_other_mistake() {
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
    fn the_printed_defaults_are_the_defaults() {
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
    fn the_environment_overrides_and_its_mistakes_are_named() {
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
    fn durations_take_decimals_and_units_and_nothing_else() {
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
    fn sizes_take_decimals_and_units_and_nothing_else() {
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
