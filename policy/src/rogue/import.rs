//! Rules on rogues from and to JSON: what was exported, and what gpu-kill exports, whose
//! files say some things otherwise and some that mean nothing here.

use super::read;
use crate::document::json::{json_of, nulls, text_of};
use crate::guard::import::Imported;
use gpukill_proto::settings::Mistake;
use serde_json::{Map, Value, json};

/// The most mistakes that are told.
const MOST_MISTAKES: usize = 100;

/// Rules as JSON has them.
///
/// # Errors
/// Every mistake in them, by the path of its keys.
pub fn from_json(json: &Value) -> Result<Imported, Vec<Mistake>> {
    let nulls = nulls(json, MOST_MISTAKES).into_iter();
    let nulls = nulls.map(|null| Mistake {
        line: None,
        what: format!("{}: {null}; leave it out", null.path),
    });
    let nulls: Vec<Mistake> = nulls.collect();
    if !nulls.is_empty() {
        return Err(nulls);
    }
    let mut json = json.clone();
    let notices = translate(&mut json);
    let text = text_of(json, ["detection", "patterns", "scoring", "metadata"]);
    match read::read(&text) {
        Ok(_) => Ok(Imported { text, notices }),
        Err(mistakes) => Err(mistakes.into_iter().map(without_its_line).collect()),
    }
}

/// Nobody has seen the lines of a text that was made of another.
fn without_its_line(mistake: Mistake) -> Mistake {
    Mistake {
        line: None,
        ..mistake
    }
}

/// Rules as JSON.
///
/// # Errors
/// Every mistake in them.
pub fn to_json(text: &str) -> Result<Value, Vec<Mistake>> {
    read::read(text)?;
    // What is read without mistakes is TOML.
    let table = text.parse::<toml::Table>().unwrap_or_default();
    Ok(json_of(toml::Value::Table(table)))
}

/// gpu-kill's switches, and the weight that turns a threat off here.
const SWITCHES: [(&str, &str); 4] = [
    ("crypto_miners", "crypto_miner"),
    ("suspicious_processes", "suspicious_process"),
    ("resource_abusers", "resource_abuser"),
    ("data_exfiltrators", "data_exfiltrator"),
];

/// Says everything as our rules do, and tells what means nothing here, or something else.
fn translate(json: &mut Value) -> Vec<String> {
    let mut notices = Vec::new();
    let Value::Object(file) = json else {
        return notices;
    };
    if file.get("alerts").is_some_and(Value::is_object) {
        file.remove("alerts");
        let what = "alerts mean nothing here: whoever may be a rogue is in list, in status and \
            in the journal";
        notices.push(what.to_owned());
    }
    switches(file, &mut notices);
    patterns(file, &mut notices);
    if let Some(metadata) = table(file, "metadata") {
        for name in ["created_at", "description"] {
            if metadata.remove(name).is_some() {
                notices.push(format!("metadata.{name} means nothing here"));
            }
        }
    }
    notices
}

fn table<'a>(file: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    file.get_mut(name).and_then(Value::as_object_mut)
}

/// What was not looked for weighs nothing.
fn switches(file: &mut Map<String, Value>, notices: &mut Vec<String>) {
    let Some(detection) = table(file, "detection") else {
        return;
    };
    let Some(Value::Object(switches)) = detection.get("enabled_detections").cloned() else {
        return;
    };
    let (known, rest): (Map<String, Value>, Map<String, Value>) = switches
        .into_iter()
        .partition(|(name, on)| SWITCHES.iter().any(|it| it.0 == name) && on.is_boolean());
    // What is unknown stays, and is a mistake.
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

/// Patterns that match a part of something have no place here.
fn patterns(file: &mut Map<String, Value>, notices: &mut Vec<String>) {
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
            "patterns.custom_patterns mean nothing here ({}): whole names and whole arguments are \
             looked for",
            names.join(", ")
        ));
    }
    patterns.remove("custom_patterns");
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::rogue::Share;

    /// What gpu-kill writes of its defaults, with a pattern of somebody's own.
    const THEIRS: &str = include_str!("import/theirs.json");

    fn theirs() -> Value {
        serde_json::from_str(THEIRS).unwrap()
    }

    #[test]
    fn what_gpu_kill_exports_is_taken_and_what_means_nothing_is_told() {
        let imported = from_json(&theirs()).unwrap();
        let expected = [
            "alerts mean nothing here: whoever may be a rogue is in list, in status and in the \
             journal",
            "detection.enabled_detections.data_exfiltrators is off: written as \
             scoring.threat_weights.data_exfiltrator = 0",
            "patterns.custom_patterns mean nothing here (my miner): whole names and whole \
             arguments are looked for",
            "metadata.created_at means nothing here",
            "metadata.description means nothing here",
        ];
        assert_eq!(imported.notices, expected);
        let rules = read::read(&imported.text).unwrap();
        assert_eq!(rules.weights.map(Share::get), [800, 600, 300, 0]);
        assert_eq!(rules.detection.min_confidence, Share::thousandths(700));
        assert_eq!(rules.patterns.miners.len(), 10);
        assert_eq!(rules.allowed.len(), 8);
    }

    #[test]
    fn json_is_the_same_again() {
        for text in [
            imported(&theirs()).as_str(),
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
    fn a_moment_of_tomls_own_is_a_text() {
        let json = to_json("[metadata]\nlast_modified = 2026-11-22T17:40:00Z\n").unwrap();
        let expected = json!({"metadata": {"last_modified": "2026-11-22T17:40:00Z"}});
        assert_eq!(json, expected);
    }

    fn imported(json: &Value) -> String {
        from_json(json).unwrap().text
    }

    #[test]
    fn every_mistake_is_told_by_its_keys() {
        let json = json!({
            "detection": {"max_utilization_pct": 101, "enabled_detections": {"miners": true}},
            "patterns": {"custom_patterns": 3, "pool_ports": ["x"]},
            "alerts": true,
        });
        let mistakes = from_json(&json).unwrap_err();
        let mut told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        told.sort();
        let expected = [
            "detection.max_utilization_pct: 101 is not a number from 0 to 100",
            "patterns.pool_ports: \"x\" is not a whole number from 1 to 65535",
            "unknown key alerts",
            "unknown key detection.enabled_detections",
            "unknown key patterns.custom_patterns",
        ];
        assert_eq!(told, expected);
        let json = json!({"patterns": {"user_whitelist": ["a", null]}});
        assert_eq!(
            from_json(&json).unwrap_err()[0].to_string(),
            "patterns.user_whitelist: item 2 of the list is null; leave it out"
        );
        assert!(from_json(&json!([1])).is_err());
    }
}
