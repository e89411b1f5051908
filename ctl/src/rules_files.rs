//! Files of rules that are not TOML: from JSON and YAML, and to them.

mod strict;

use gpukill_policy::guard::import::Imported;
use gpukill_policy::{guard, rogue};
use gpukill_proto::guard::edit::Mistake;
use gpukill_proto::settings;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use strict::Strict;

/// How the rules of one kind are read and said otherwise, and their mistakes told.
#[derive(Debug)]
pub struct Language<M> {
    /// Every mistake in a text.
    read: fn(&str) -> Result<(), Vec<M>>,
    from_json: fn(&Value) -> Result<Imported, Vec<M>>,
    to_json: fn(&str) -> Result<Value, Vec<M>>,
}

/// The guard's.
pub const GUARD: &Language<Mistake> = &Language {
    read: |text| guard::read::read(text).map(drop),
    from_json: guard::import::from_json,
    to_json: guard::import::to_json,
};

/// Those on rogues.
pub const ROGUES: &Language<settings::Mistake> = &Language {
    read: |text| rogue::read::read(text).map(drop),
    from_json: rogue::import::from_json,
    to_json: rogue::import::to_json,
};

/// The largest file, in bytes.
pub const LARGEST: usize = 1 << 20;

const _: () = assert!(LARGEST == guard::read::LARGEST && LARGEST == rogue::read::LARGEST);

/// How a file of rules is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As they are kept.
    Toml,
    /// For programs, and what gpu-kill exports.
    Json,
    /// For those who like it.
    Yaml,
}

impl Format {
    /// By a file's name; `None` where that does not tell.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
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

    /// By what a text begins with, but for comments: each of them begins otherwise.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        let first = first.unwrap_or_default();
        if first.starts_with('{') {
            return Self::Json;
        }
        // As YAML has what stands before a document.
        if first == "---" || first.starts_with("--- ") || first.starts_with('%') {
            return Self::Yaml;
        }
        // A table of TOML has its name in brackets; no list is rules.
        if first.starts_with('[') {
            return Self::Toml;
        }
        let after_key = match first.strip_prefix(['"', '\'']) {
            // In quotes there may be both.
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

/// What reads and writes YAML. It is a program of its own to the client, for it is large and
/// seldom wanted.
pub trait Yaml {
    /// What a text says.
    ///
    /// # Errors
    /// Why that is not known.
    fn read(&self, text: &str) -> Result<Value, NotConverted>;

    /// The text that says this.
    ///
    /// # Errors
    /// Why there is none.
    fn write(&self, json: &Value) -> Result<String, NotConverted>;
}

/// Why a text was not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotConverted {
    /// It is not what it should be: the first line says why to people.
    Wrong(String),
    /// What converts it does not work here.
    Unable(String),
}

/// Why a file is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRules<M = Mistake> {
    /// It is not what its name says.
    Unreadable {
        /// What it should be.
        format: Format,
        /// What is wrong, on one line.
        why: String,
    },
    /// What reads or writes its format does not work here.
    Unable(String),
    /// Its rules have mistakes. Where the file is not TOML, they have no lines.
    Mistakes(Vec<M>),
}

impl<M: fmt::Display> fmt::Display for NoRules<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { format, why } => write!(f, "is no {}: {why}", format.name()),
            Self::Unable(why) => write!(f, "cannot be converted: {why}"),
            Self::Mistakes(mistakes) => {
                let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl<M: fmt::Debug + fmt::Display> std::error::Error for NoRules<M> {}

/// Rules of a file, as they are kept.
///
/// # Errors
/// It cannot be read as what it is, or its rules have mistakes.
pub fn import<M>(
    language: &Language<M>,
    text: &str,
    format: Format,
    yaml: &impl Yaml,
) -> Result<Imported, NoRules<M>> {
    let unreadable = |why: String| {
        let why = why.lines().next().unwrap_or_default().to_owned();
        NoRules::Unreadable { format, why }
    };
    if text.len() > LARGEST {
        return Err(unreadable(format!("more than {LARGEST} bytes")));
    }
    let json: Value = match format {
        Format::Toml => return import_toml(language, text),
        Format::Json => {
            let Strict(json) =
                serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
            json
        }
        Format::Yaml => yaml.read(text).map_err(|why| match why {
            NotConverted::Wrong(why) => unreadable(why),
            NotConverted::Unable(why) => NoRules::Unable(why),
        })?,
    };
    (language.from_json)(&json).map_err(NoRules::Mistakes)
}

/// Ours is taken as it is, with its comments; gpu-kill keeps its own in TOML too.
fn import_toml<M>(language: &Language<M>, text: &str) -> Result<Imported, NoRules<M>> {
    let Err(mistakes) = (language.read)(text) else {
        return Ok(Imported {
            text: text.to_owned(),
            notices: Vec::new(),
        });
    };
    let table = text.parse::<toml::Table>().ok();
    let json = table.and_then(|table| serde_json::to_value(table).ok());
    match json.as_ref().map(language.from_json) {
        Some(Ok(imported)) if !imported.notices.is_empty() => Ok(imported),
        // The lines of the file itself say more.
        Some(Ok(_) | Err(_)) | None => Err(NoRules::Mistakes(mistakes)),
    }
}

/// Rules as a file of this format has them.
///
/// # Errors
/// They have mistakes.
pub fn export<M>(
    language: &Language<M>,
    text: &str,
    format: Format,
    yaml: &impl Yaml,
) -> Result<String, NoRules<M>> {
    let json = (language.to_json)(text).map_err(NoRules::Mistakes)?;
    let unwritable = |why: String| NoRules::Unreadable { format, why };
    match format {
        Format::Toml => Ok(text.to_owned()),
        Format::Json => match serde_json::to_string_pretty(&json) {
            Ok(json) => Ok(json + "\n"),
            Err(error) => Err(unwritable(error.to_string())),
        },
        Format::Yaml => yaml.write(&json).map_err(|why| match why {
            NotConverted::Wrong(why) => unwritable(why),
            NotConverted::Unable(why) => NoRules::Unable(why),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::InProcess;
    use gpukill_policy::guard::import::to_json;

    const RULES: &str = "# Ours.\n[global]\ndefault_memory_limit_gb = 0.5\n\n[user_policies.\"on: {x}\"]\nallowed_gpus = [0, \"1-2\", \"*H100*\"]\nmessage = \"yes: # no\"\n\n[gpu_policies.0]\nmaintenance_window = { start_time = \"02:00\", end_time = \"04:00\", days_of_week = [\"Sun\"] }\n\n[[rules]]\nname = \"null\"\ncommand = \"^a|b\\\\.c$\"\nidle_limit_minutes = \"90m\"\n";

    #[test]
    fn every_format_says_the_same() {
        let same = to_json(RULES).unwrap();
        for format in [Format::Toml, Format::Json, Format::Yaml] {
            let exported = export(GUARD, RULES, format, &InProcess).unwrap();
            let imported = import(GUARD, &exported, format, &InProcess)
                .unwrap_or_else(|why| panic!("{why}\n{exported}"));
            assert_eq!(imported.notices, Vec::<String>::new());
            assert_eq!(to_json(&imported.text).unwrap(), same, "{exported}");
        }
        assert_eq!(
            export(GUARD, RULES, Format::Toml, &InProcess).unwrap(),
            RULES
        );
        let yaml = export(
            GUARD,
            "[global]\nenabled = true\n[protect]\nusers = ['a']\n",
            Format::Yaml,
            &InProcess,
        );
        assert_eq!(
            yaml.unwrap(),
            "global:\n  enabled: true\nprotect:\n  users:\n  - a\n"
        );
    }

    #[test]
    fn yaml_by_hand_is_read() {
        let text = "# ours\nuser_policies:\n  alice:\n    memory_limit_gb: 8.0\n    allowed_gpus: [0, 1]\n    message: |\n      ask us\n";
        // A text of several lines is none that a terminal gets.
        assert!(matches!(
            import(GUARD, text, Format::Yaml, &InProcess),
            Err(NoRules::Mistakes(_))
        ));
        let text = text.replace("|\n      ask us", "ask us");
        assert_eq!(
            import(GUARD, &text, Format::Yaml, &InProcess).unwrap().text,
            "[user_policies.alice]\nallowed_gpus = [\n    0,\n    1,\n]\nmemory_limit_gb = 8\nmessage = \"ask us\"\n"
        );
    }

    #[test]
    fn what_gpu_kill_keeps_itself_is_taken_too() {
        let text = "[global]\nenabled = true\ncheck_interval_seconds = 60\ndry_run = true\n\n[metadata]\nversion = \"1.0.0\"\n";
        let imported = import(GUARD, text, Format::Toml, &InProcess).unwrap();
        assert_eq!(imported.text, "[global]\ndry_run = true\nenabled = true\n");
        assert_eq!(imported.notices.len(), 4);
    }

    #[test]
    fn what_is_no_rules_says_why() {
        for (text, format, expected) in [
            (
                "{",
                Format::Json,
                "is no JSON: EOF while parsing an object at line 1 column 1",
            ),
            (
                "{\"global\": {\"enabled\": true,\n\"enabled\": false}}",
                Format::Json,
                "is no JSON: the key \"enabled\" is there twice at line 2 column 9",
            ),
            (
                "[global]\nenabeld = true\n",
                Format::Toml,
                "line 2, column 1: global.enabeld: unknown key; did you mean enabled?",
            ),
            (
                "{\"global\": {\"enabled\": 1}}",
                Format::Json,
                "global.enabled: 1 is neither true nor false",
            ),
            (
                "\n\n\nuser_policies:\n  alice:\n    memory_limit: 8\n",
                Format::Yaml,
                "user_policies.alice.memory_limit: unknown key; did you mean memory_limit_gb?",
            ),
        ] {
            assert_eq!(
                import(GUARD, text, format, &InProcess)
                    .unwrap_err()
                    .to_string(),
                expected
            );
        }
        for text in ["a: [", "a: 1\na: 2", "a: &a [*a]", "\tx: 1", "- 1", "x"] {
            assert!(
                import(GUARD, text, Format::Yaml, &InProcess).is_err(),
                "{text}"
            );
        }
        let large = " ".repeat(LARGEST + 1);
        assert!(import(GUARD, &large, Format::Yaml, &InProcess).is_err());
        // Aliases of aliases grow without end.
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let item = format!("*a{}", n - 1);
            bomb += &format!("a{n}: &a{n} [{}]\n", vec![item; 10].join(", "));
        }
        assert!(import(GUARD, &bomb, Format::Yaml, &InProcess).is_err());
    }

    #[test]
    fn a_file_is_what_its_name_says() {
        for (name, format) in [
            ("a.json", Some(Format::Json)),
            ("a.YAML", Some(Format::Yaml)),
            ("a.yml", Some(Format::Yaml)),
            ("a.toml", Some(Format::Toml)),
            ("rules", None),
            ("-", None),
        ] {
            assert_eq!(Format::of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn a_text_without_a_name_is_what_it_begins_with() {
        for (text, format) in [
            ("", Format::Toml),
            ("# global: {}\n\n[global]\n", Format::Toml),
            ("\u{feff}[[rules]]\nname = 'a: b'", Format::Toml),
            ("global.enabled = true", Format::Toml),
            ("\"a: b\" = 1", Format::Toml),
            ("x", Format::Toml),
            ("\n  {\n\"global\": {}}", Format::Json),
            ("# ours\nglobal:\n  enabled: true", Format::Yaml),
            ("'global': {dry_run: true}", Format::Yaml),
            ("\"a = b\": 1", Format::Yaml),
            ("---\n[global]", Format::Yaml),
            ("%YAML 1.2\n---\n", Format::Yaml),
        ] {
            assert_eq!(Format::of_text(text), format, "{text}");
        }
        // Whatever is exported is known again.
        for format in [Format::Toml, Format::Json, Format::Yaml] {
            assert_eq!(
                Format::of_text(&export(GUARD, RULES, format, &InProcess).unwrap()),
                format
            );
        }
    }

    #[test]
    fn rules_on_rogues_have_every_form_too() {
        let text = "# Ours.\n[detection]\nmax_memory_usage_gb = 0.5\n\n[patterns]\n\
            user_whitelist = [\"on: {x}\"]\n";
        for format in [Format::Toml, Format::Json, Format::Yaml] {
            let exported = export(ROGUES, text, format, &InProcess).unwrap();
            assert_eq!(Format::of_text(&exported), format);
            let imported = import(ROGUES, &exported, format, &InProcess).unwrap();
            assert_eq!(imported.notices, Vec::<String>::new());
            let read = |text: &str| rogue::read::read(text).unwrap();
            assert_eq!(read(&imported.text), read(text));
        }
        assert_eq!(
            export(ROGUES, text, Format::Toml, &InProcess).unwrap(),
            text
        );
        // gpu-kill keeps its own in TOML.
        let theirs = "[detection]\nmax_memory_usage_gb = 20.0\n[detection.enabled_detections]\n\
            crypto_miners = true\n[alerts]\nenabled = true\n";
        let imported = import(ROGUES, theirs, Format::Toml, &InProcess).unwrap();
        assert_eq!(imported.notices.len(), 1);
        assert_eq!(imported.text, "[detection]\nmax_memory_usage_gb = 20\n");
        for (text, format, expected) in [
            ("max = 1", Format::Toml, "line 1: unknown key max"),
            ("{\"max\": 1}", Format::Json, "unknown key max"),
        ] {
            let why = import(ROGUES, text, format, &InProcess).unwrap_err();
            assert_eq!(why.to_string(), expected);
        }
    }
}
