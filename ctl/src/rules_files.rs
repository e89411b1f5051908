//! Converts files of rules from and to JSON and YAML.

mod strict;

use crate::args::RulesFormat;
use gpukill_policy::guard::rules::import::ImportedRules;
use gpukill_policy::{guard, rogue};
use gpukill_proto::guard::edit::RuleMistake;
use gpukill_proto::service::MAX_RULES_BYTES;
use gpukill_proto::settings;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use strict::UniqueKeysJson;

/// The parser and converters of one kind of rules.
#[derive(Debug)]
pub struct RulesCodec<M> {
    /// Returns every mistake in a TOML text.
    read: fn(&str) -> Result<(), Vec<M>>,
    from_json: fn(&Value) -> Result<ImportedRules, Vec<M>>,
    to_json: fn(&str) -> Result<Value, Vec<M>>,
}

/// The guard's rules.
pub const GUARD_CODEC: &RulesCodec<RuleMistake> = &RulesCodec {
    read: |text| guard::rules::parse::parse(text).map(drop),
    from_json: guard::rules::import::from_json,
    to_json: guard::rules::import::to_json,
};

/// The rogue rules.
pub const ROGUE_CODEC: &RulesCodec<settings::SettingMistake> = &RulesCodec {
    read: |text| rogue::read::read(text).map(drop),
    from_json: rogue::import::from_json,
    to_json: rogue::import::to_json,
};

impl RulesFormat {
    /// The format of the file's extension; `None` for an unknown extension.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path
            .extension()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// The format of a text, by its beginning after comments: each format begins differently.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        let first = first.unwrap_or_default();
        if first.starts_with('{') {
            return Self::Json;
        }
        // YAML directives and the start of a YAML document.
        if first == "---" || first.starts_with("--- ") || first.starts_with('%') {
            return Self::Yaml;
        }
        // A TOML table has its name in brackets, and a list cannot be rules.
        if first.starts_with('[') {
            return Self::Toml;
        }
        let after_key = match first.strip_prefix(['"', '\'']) {
            // A quoted key may contain both separators.
            Some(quoted) => quoted.split_once(['"', '\'']).map_or("", |(_, rest)| rest),
            None => first,
        };
        match after_key.find([':', '=']) {
            Some(sign) if after_key[sign..].starts_with(':') => Self::Yaml,
            Some(_) | None => Self::Toml,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
            Self::Yaml => "YAML",
        }
    }
}

/// Reads and writes YAML. The client uses a separate program for this, because the code is
/// large and rarely needed.
pub trait Yaml {
    /// Parses a YAML text.
    ///
    /// # Errors
    /// The text is invalid or the converter is not available.
    fn read(&self, text: &str) -> Result<Value, ConversionError>;

    /// Converts a value to a YAML text.
    ///
    /// # Errors
    /// The converter is not available.
    fn write(&self, json: &Value) -> Result<String, ConversionError>;
}

/// Why a text was not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversionError {
    /// The text is invalid; the first line of the message is for people.
    Invalid(String),
    /// The converter does not work here.
    Unavailable(String),
}

/// Why a file is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesFileError<M = RuleMistake> {
    /// The file is not in the expected format.
    Unreadable {
        /// The expected format.
        format: RulesFormat,
        /// The reason, on one line.
        why: String,
    },
    /// The converter of the format does not work here.
    ConverterUnavailable(String),
    /// The rules have mistakes. Mistakes from a file other than TOML have no line.
    Mistakes(Vec<M>),
}

/// A file of another kind has a mistake in each line. The check of a file reports them all.
const MAX_SHOWN_MISTAKES: usize = 10;

impl<M: fmt::Display> fmt::Display for RulesFileError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { format, why } => write!(f, "is not {}: {why}", format.name()),
            Self::ConverterUnavailable(why) => write!(f, "cannot be converted: {why}"),
            Self::Mistakes(mistakes) => {
                let lines = mistakes.iter().take(MAX_SHOWN_MISTAKES);
                let mut lines: Vec<String> = lines.map(ToString::to_string).collect();
                match mistakes.len().saturating_sub(MAX_SHOWN_MISTAKES) {
                    0 => {}
                    more => lines.push(format!("and {more} more")),
                }
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl<M: fmt::Debug + fmt::Display> std::error::Error for RulesFileError<M> {}

/// Converts the rules of a file to TOML, as they are stored.
///
/// # Errors
/// The file is not in the expected format, or its rules have mistakes.
pub fn import<M>(
    language: &RulesCodec<M>,
    text: &str,
    format: RulesFormat,
    yaml: &impl Yaml,
) -> Result<ImportedRules, RulesFileError<M>> {
    let unreadable = |why: String| {
        let why = why.lines().next().unwrap_or_default().to_owned();
        RulesFileError::Unreadable { format, why }
    };
    if text.len() > MAX_RULES_BYTES {
        return Err(unreadable(format!("more than {MAX_RULES_BYTES} bytes")));
    }
    let json: Value = match format {
        RulesFormat::Toml => return import_toml(language, text),
        RulesFormat::Json => {
            let UniqueKeysJson(json) =
                serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
            json
        }
        RulesFormat::Yaml => yaml.read(text).map_err(|why| match why {
            ConversionError::Invalid(why) => unreadable(why),
            ConversionError::Unavailable(why) => RulesFileError::ConverterUnavailable(why),
        })?,
    };
    (language.from_json)(&json).map_err(RulesFileError::Mistakes)
}

/// Our own TOML is kept unchanged, with its comments; gpu-kill's own TOML is converted.
fn import_toml<M>(
    language: &RulesCodec<M>,
    text: &str,
) -> Result<ImportedRules, RulesFileError<M>> {
    let Err(mistakes) = (language.read)(text) else {
        return Ok(ImportedRules {
            text: text.to_owned(),
            notices: Vec::new(),
        });
    };
    let table = text.parse::<toml::Table>().ok();
    let json = table.and_then(|table| serde_json::to_value(table).ok());
    match json.as_ref().map(language.from_json) {
        Some(Ok(imported)) if !imported.notices.is_empty() => Ok(imported),
        // Mistakes with the lines of the file itself say more.
        Some(Ok(_) | Err(_)) | None => Err(RulesFileError::Mistakes(mistakes)),
    }
}

/// Converts rules to a file of this format.
///
/// # Errors
/// The rules have mistakes, or the converter is not available.
pub fn export<M>(
    language: &RulesCodec<M>,
    text: &str,
    format: RulesFormat,
    yaml: &impl Yaml,
) -> Result<String, RulesFileError<M>> {
    let json = (language.to_json)(text).map_err(RulesFileError::Mistakes)?;
    let unwritable = |why: String| RulesFileError::Unreadable { format, why };
    match format {
        RulesFormat::Toml => Ok(text.to_owned()),
        RulesFormat::Json => match serde_json::to_string_pretty(&json) {
            Ok(json) => Ok(json + "\n"),
            Err(error) => Err(unwritable(error.to_string())),
        },
        RulesFormat::Yaml => yaml.write(&json).map_err(|why| match why {
            ConversionError::Invalid(why) => unwritable(why),
            ConversionError::Unavailable(why) => RulesFileError::ConverterUnavailable(why),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::InProcessYaml;
    use gpukill_policy::guard::rules::import::to_json;

    const RULES: &str = "# Ours.\n[global]\ndefault_memory_limit_gb = 0.5\n\n[user_policies.\"on: \
    {x}\"]\nallowed_gpus = [0, \"1-2\", \"*H100*\"]\nmessage = \"yes: # no\"\n\n[gpu_policies.0]\nmaintenance_window = { start_time = \"02:00\", end_time = \"04:00\", days_of_week = [\"Sun\"] }\n\n[[rules]]\nname = \"null\"\ncommand = \"^a|b\\\\.c$\"\nidle_limit_minutes = \"90m\"\n";

    #[test]
    fn formats_are_equivalent() {
        let same = to_json(RULES).unwrap();
        for format in [RulesFormat::Toml, RulesFormat::Json, RulesFormat::Yaml] {
            let exported = export(GUARD_CODEC, RULES, format, &InProcessYaml).unwrap();
            let imported = import(GUARD_CODEC, &exported, format, &InProcessYaml)
                .unwrap_or_else(|why| panic!("{why}\n{exported}"));
            assert_eq!(imported.notices, Vec::<String>::new());
            assert_eq!(to_json(&imported.text).unwrap(), same, "{exported}");
        }
        assert_eq!(
            export(GUARD_CODEC, RULES, RulesFormat::Toml, &InProcessYaml).unwrap(),
            RULES
        );
        let yaml = export(
            GUARD_CODEC,
            "[global]\nenabled = true\n[protect]\nusers = ['a']\n",
            RulesFormat::Yaml,
            &InProcessYaml,
        );
        assert_eq!(
            yaml.unwrap(),
            "global:\n  enabled: true\nprotect:\n  users:\n  - a\n"
        );
    }

    #[test]
    fn handwritten_yaml_is_read() {
        let text = "# ours\nuser_policies:\n  alice:\n    memory_limit_gb: 8.0\n    allowed_gpus: \
        [0, 1]\n    message: |\n      ask us\n";
        // A message for terminals must be one line.
        assert!(matches!(
            import(GUARD_CODEC, text, RulesFormat::Yaml, &InProcessYaml),
            Err(RulesFileError::Mistakes(_))
        ));
        let text = text.replace("|\n      ask us", "ask us");
        assert_eq!(
            import(GUARD_CODEC, &text, RulesFormat::Yaml, &InProcessYaml)
                .unwrap()
                .text,
            "[user_policies.alice]\nallowed_gpus = [\n    0,\n    1,\n]\nmemory_limit_gb = \
            8\nmessage = \"ask us\"\n"
        );
    }

    #[test]
    fn only_the_first_of_many_mistakes_are_shown() {
        let shown = |count: usize| {
            let keys = (0..count).map(|at| format!("wrong{at} = 1\n"));
            let text = "[global]\n".to_owned() + &keys.collect::<String>();
            let failure = import(GUARD_CODEC, &text, RulesFormat::Toml, &InProcessYaml);
            failure.expect_err("it is wrong").to_string()
        };
        assert_eq!(shown(10).lines().count(), 10);
        assert_eq!(shown(317).lines().count(), 11);
        assert_eq!(shown(317).lines().last(), Some("and 307 more"));
    }

    #[test]
    fn toml_of_gpu_kill_is_read() {
        let text = "[global]\nenabled = true\ncheck_interval_seconds = 60\ndry_run = \
        true\n\n[metadata]\nversion = \"1.0.0\"\n";
        let imported = import(GUARD_CODEC, text, RulesFormat::Toml, &InProcessYaml).unwrap();
        assert_eq!(imported.text, "[global]\ndry_run = true\nenabled = true\n");
        assert_eq!(imported.notices.len(), 4);
    }

    #[test]
    fn invalid_rules_have_a_reason() {
        for (text, format, expected) in [
            (
                "{",
                RulesFormat::Json,
                "is not JSON: EOF while parsing an object at line 1 column 1",
            ),
            (
                "{\"global\": {\"enabled\": true,\n\"enabled\": false}}",
                RulesFormat::Json,
                "is not JSON: the key \"enabled\" is there twice at line 2 column 9",
            ),
            (
                "[global]\nenabeld = true\n",
                RulesFormat::Toml,
                "line 2, column 1: global.enabeld: unknown key; did you mean enabled?",
            ),
            (
                "{\"global\": {\"enabled\": 1}}",
                RulesFormat::Json,
                "global.enabled: 1 is not valid: write true or false",
            ),
            (
                "\n\n\nuser_policies:\n  alice:\n    memory_limit: 8\n",
                RulesFormat::Yaml,
                "user_policies.alice.memory_limit: unknown key; did you mean memory_limit_gb?",
            ),
        ] {
            assert_eq!(
                import(GUARD_CODEC, text, format, &InProcessYaml)
                    .unwrap_err()
                    .to_string(),
                expected
            );
        }
        for text in ["a: [", "a: 1\na: 2", "a: &a [*a]", "\tx: 1", "- 1", "x"] {
            assert!(
                import(GUARD_CODEC, text, RulesFormat::Yaml, &InProcessYaml).is_err(),
                "{text}"
            );
        }
        let large = " ".repeat(MAX_RULES_BYTES + 1);
        assert!(import(GUARD_CODEC, &large, RulesFormat::Yaml, &InProcessYaml).is_err());
        // Nested aliases grow exponentially.
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let item = format!("*a{}", n - 1);
            bomb += &format!("a{n}: &a{n} [{}]\n", vec![item; 10].join(", "));
        }
        assert!(import(GUARD_CODEC, &bomb, RulesFormat::Yaml, &InProcessYaml).is_err());
    }

    #[test]
    fn format_is_taken_from_the_name() {
        for (name, format) in [
            ("a.json", Some(RulesFormat::Json)),
            ("a.YAML", Some(RulesFormat::Yaml)),
            ("a.yml", Some(RulesFormat::Yaml)),
            ("a.toml", Some(RulesFormat::Toml)),
            ("rules", None),
            ("-", None),
        ] {
            assert_eq!(RulesFormat::from_path(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn format_is_taken_from_the_text() {
        for (text, format) in [
            ("", RulesFormat::Toml),
            ("# global: {}\n\n[global]\n", RulesFormat::Toml),
            ("\u{feff}[[rules]]\nname = 'a: b'", RulesFormat::Toml),
            ("global.enabled = true", RulesFormat::Toml),
            ("\"a: b\" = 1", RulesFormat::Toml),
            ("x", RulesFormat::Toml),
            ("\n  {\n\"global\": {}}", RulesFormat::Json),
            ("# ours\nglobal:\n  enabled: true", RulesFormat::Yaml),
            ("'global': {dry_run: true}", RulesFormat::Yaml),
            ("\"a = b\": 1", RulesFormat::Yaml),
            ("---\n[global]", RulesFormat::Yaml),
            ("%YAML 1.2\n---\n", RulesFormat::Yaml),
        ] {
            assert_eq!(RulesFormat::from_text(text), format, "{text}");
        }
        // Every exported format is recognised again.
        for format in [RulesFormat::Toml, RulesFormat::Json, RulesFormat::Yaml] {
            assert_eq!(
                RulesFormat::from_text(
                    &export(GUARD_CODEC, RULES, format, &InProcessYaml).unwrap()
                ),
                format
            );
        }
    }

    #[test]
    fn rogue_rules_have_every_format() {
        let text = "# Ours.\n[detection]\nmax_memory_usage_gb = 0.5\n\n[patterns]\n\
            user_whitelist = [\"on: {x}\"]\n";
        for format in [RulesFormat::Toml, RulesFormat::Json, RulesFormat::Yaml] {
            let exported = export(ROGUE_CODEC, text, format, &InProcessYaml).unwrap();
            assert_eq!(RulesFormat::from_text(&exported), format);
            let imported = import(ROGUE_CODEC, &exported, format, &InProcessYaml).unwrap();
            assert_eq!(imported.notices, Vec::<String>::new());
            let read = |text: &str| rogue::read::read(text).unwrap();
            assert_eq!(read(&imported.text), read(text));
        }
        assert_eq!(
            export(ROGUE_CODEC, text, RulesFormat::Toml, &InProcessYaml).unwrap(),
            text
        );
        // gpu-kill stores its rules in TOML.
        let foreign = "[detection]\nmax_memory_usage_gb = 20.0\n[detection.enabled_detections]\n\
            crypto_miners = true\n[alerts]\nenabled = true\n";
        let imported = import(ROGUE_CODEC, foreign, RulesFormat::Toml, &InProcessYaml).unwrap();
        assert_eq!(imported.notices.len(), 1);
        assert_eq!(imported.text, "[detection]\nmax_memory_usage_gb = 20\n");
        for (text, format, expected) in [
            ("max = 1", RulesFormat::Toml, "line 1: unknown key max"),
            ("{\"max\": 1}", RulesFormat::Json, "unknown key max"),
        ] {
            let why = import(ROGUE_CODEC, text, format, &InProcessYaml).unwrap_err();
            assert_eq!(why.to_string(), expected);
        }
    }
}
