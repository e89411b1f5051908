//! Converts rogue rules from and to JSON: our own export, and the export of gpu-kill,
//! which states some things differently and some that do not apply here.

use super::read;
use crate::document::json::{list_nulls, to_json_value, to_toml_text};
use crate::guard::rules::import::ImportedRules;
use gpukill_proto::settings::SettingMistake;
use serde_json::{Map, Value, json};

/// Maximum number of reported mistakes.
const MAX_MISTAKES: usize = 100;

/// Converts rules from JSON.
///
/// # Errors
/// Every mistake, by the path of its keys.
pub fn from_json(json: &Value) -> Result<ImportedRules, Vec<SettingMistake>> {
    let nulls = list_nulls(json, MAX_MISTAKES).into_iter();
    let nulls = nulls.map(|null| SettingMistake {
        line: None,
        what: format!("{}: {null}; leave it out", null.path),
    });
    let nulls: Vec<SettingMistake> = nulls.collect();
    if !nulls.is_empty() {
        return Err(nulls);
    }
    let mut json = json.clone();
    let notices = translate(&mut json);
    let text = to_toml_text(json, ["detection", "patterns", "scoring", "metadata"]);
    match read::read(&text) {
        Ok(_) => Ok(ImportedRules { text, notices }),
        Err(mistakes) => Err(mistakes.into_iter().map(without_line).collect()),
    }
}

/// The lines of a converted text are unknown to the person.
fn without_line(mistake: SettingMistake) -> SettingMistake {
    SettingMistake {
        line: None,
        ..mistake
    }
}

/// Converts rules to JSON.
///
/// # Errors
/// Every mistake in the rules.
pub fn to_json(text: &str) -> Result<Value, Vec<SettingMistake>> {
    read::read(text)?;
    // A text that was read without mistakes is TOML.
    let table = text.parse::<toml::Table>().unwrap_or_default();
    Ok(to_json_value(toml::Value::Table(table)))
}

/// The switches of gpu-kill, and the weight that disables the same threat here.
const SWITCHES: [(&str, &str); 4] = [
    ("crypto_miners", "crypto_miner"),
    ("suspicious_processes", "suspicious_process"),
    ("resource_abusers", "resource_abuser"),
    ("data_exfiltrators", "data_exfiltrator"),
];

/// Translates keys of gpu-kill, and returns a notice for each that does not apply here
/// or has another meaning.
fn translate(json: &mut Value) -> Vec<String> {
    let mut notices = Vec::new();
    let Value::Object(file) = json else {
        return notices;
    };
    if file.get("alerts").is_some_and(Value::is_object) {
        file.remove("alerts");
        let what = "alerts do not apply here: suspicious processes are in list, in status and in \
                    the journal";
        notices.push(what.to_owned());
    }
    translate_switches(file, &mut notices);
    remove_custom_patterns(file, &mut notices);
    if let Some(metadata) = table(file, "metadata") {
        for name in ["created_at", "description"] {
            if metadata.remove(name).is_some() {
                notices.push(format!("metadata.{name} does not apply here"));
            }
        }
    }
    notices
}

fn table<'a>(file: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    file.get_mut(name).and_then(Value::as_object_mut)
}

/// A disabled detection becomes the weight 0.
fn translate_switches(file: &mut Map<String, Value>, notices: &mut Vec<String>) {
    let Some(detection) = table(file, "detection") else {
        return;
    };
    let Some(Value::Object(switches)) = detection.get("enabled_detections").cloned() else {
        return;
    };
    let (known, rest): (Map<String, Value>, Map<String, Value>) = switches
        .into_iter()
        .partition(|(name, on)| SWITCHES.iter().any(|it| it.0 == name) && on.is_boolean());
    // An unknown switch stays, and is a mistake.
    match rest.is_empty() {
        true => detection.remove("enabled_detections"),
        false => detection.insert("enabled_detections".to_owned(), rest.into()),
    };
    for (switch, threat) in SWITCHES {
        if known.get(switch) != Some(&Value::Bool(false)) {
            continue;
        }
        let scoring = file.entry("scoring").or_insert_with(|| json!({}));
        let Some(scoring) = scoring.as_object_mut() else {
            continue;
        };
        let weights = scoring.entry("threat_weights").or_insert_with(|| json!({}));
        if let Some(weights) = weights.as_object_mut() {
            weights.insert(threat.to_owned(), json!(0));
            notices.push(format!(
                "detection.enabled_detections.{switch} is off: written as \
                 scoring.threat_weights.{threat} = 0"
            ));
        }
    }
}

/// Removes patterns that match a part of a text; they do not apply here.
fn remove_custom_patterns(file: &mut Map<String, Value>, notices: &mut Vec<String>) {
    let Some(patterns) = table(file, "patterns") else {
        return;
    };
    let Some(Value::Array(custom)) = patterns.get("custom_patterns") else {
        return;
    };
    let names = custom.iter().filter_map(|it| it.get("name")?.as_str());
    let names: Vec<&str> = names.collect();
    if !custom.is_empty() {
        notices.push(format!(
            "patterns.custom_patterns do not apply here ({}): only whole names and whole \
            arguments match",
            names.join(", ")
        ));
    }
    patterns.remove("custom_patterns");
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::rogue::Share;

    /// The default configuration that gpu-kill writes, with a custom pattern.
    const THEIRS: &str = include_str!("import/theirs.json");

    fn gpu_kill_export() -> Value {
        serde_json::from_str(THEIRS).unwrap()
    }

    #[test]
    fn gpu_kill_export_is_imported_with_notices() {
        let imported = from_json(&gpu_kill_export()).unwrap();
        let expected = [
            "alerts do not apply here: suspicious processes are in list, in status and in the \
            journal",
            "detection.enabled_detections.data_exfiltrators is off: written as \
             scoring.threat_weights.data_exfiltrator = 0",
            "patterns.custom_patterns do not apply here (my miner): only whole names and whole \
             arguments match",
            "metadata.created_at does not apply here",
            "metadata.description does not apply here",
        ];
        assert_eq!(imported.notices, expected);
        let rules = read::read(&imported.text).unwrap();
        assert_eq!(rules.weights.map(Share::get), [800, 600, 300, 0]);
        assert_eq!(rules.detection.min_confidence, Share::from_thousandths(700));
        assert_eq!(rules.patterns.miners.len(), 10);
        assert_eq!(rules.allowed.len(), 8);
    }

    #[test]
    fn json_round_trip() {
        for text in [
            imported(&gpu_kill_export()).as_str(),
            &read::print_defaults(),
            "[patterns]\nuser_whitelist = ['a']\n[metadata]\nlast_modified = 2026-11-22T17:40:00Z\n",
        ] {
            let json = to_json(text).unwrap();
            let again = from_json(&json).unwrap();
            assert_eq!(again.notices, Vec::<String>::new());
            assert_eq!(read::read(&again.text), read::read(text));
            let moment = &json["metadata"]["last_modified"];
            let modified = &to_json(&again.text).unwrap()["metadata"]["last_modified"];
            assert_eq!(modified, moment);
        }
    }

    #[test]
    fn toml_dates_become_strings() {
        let json = to_json("[metadata]\nlast_modified = 2026-11-22T17:40:00Z\n").unwrap();
        let expected = json!({"metadata": {"last_modified": "2026-11-22T17:40:00Z"}});
        assert_eq!(json, expected);
    }

    fn imported(json: &Value) -> String {
        from_json(json).unwrap().text
    }

    #[test]
    fn mistakes_name_their_keys() {
        let json = json!({
            "detection": {"max_utilization_pct": 101, "enabled_detections": {"miners": true}},
            "patterns": {"custom_patterns": 3, "pool_ports": ["x"]},
            "alerts": true,
        });
        let mistakes = from_json(&json).unwrap_err();
        let mut actual: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        actual.sort();
        let expected = [
            "detection.max_utilization_pct: 101 is not a number from 0 to 100",
            "patterns.pool_ports: \"x\" is not a whole number from 1 to 65535",
            "unknown key alerts",
            "unknown key detection.enabled_detections",
            "unknown key patterns.custom_patterns",
        ];
        assert_eq!(actual, expected);
        let json = json!({"patterns": {"user_whitelist": ["a", null]}});
        assert_eq!(
            from_json(&json).unwrap_err()[0].to_string(),
            "patterns.user_whitelist: item 2 of the list is null; leave it out"
        );
        assert!(from_json(&json!([1])).is_err());
    }
}
