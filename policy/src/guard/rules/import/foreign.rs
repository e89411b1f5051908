//! Translates the exports of gpu-kill. Its numbers of days count from Sunday.

use crate::guard::rules::MAX_PRIORITY;
use crate::guard::schedule::Weekday;
use serde_json::{Map, Value, json};

/// Translates everything to our keys. Returns notices about values that have no meaning or
/// another meaning here.
pub(super) fn translate(json: &mut Value) -> Vec<String> {
    let mut notices = Vec::new();
    let Value::Object(file) = json else {
        return notices;
    };
    let is_theirs = is_from_gpu_kill(file);
    if file.remove("metadata").is_some() {
        notices.push("metadata is ignored".to_owned());
    }
    if let Some(global) = table(file, "global")
        && global.remove("check_interval_seconds").is_some()
    {
        let what = "global.check_interval_seconds is ignored: rules are evaluated with each sample \
                    of the daemon";
        notices.push(what.to_owned());
    }
    if let Some(enforcement) = table(file, "enforcement") {
        remove_notifications(enforcement, &mut notices);
    }
    for (name, user) in policies(file, "user_policies") {
        let list = user.get_mut("time_overrides").and_then(Value::as_array_mut);
        for over in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(Value::Object(limits)) = over.remove("overrides") {
                over.extend(limits);
            }
            translate_days(over);
        }
        clamp_priority(&format!("user_policies.{name}"), user, &mut notices);
    }
    for (name, group) in policies(file, "group_policies") {
        clamp_priority(&format!("group_policies.{name}"), group, &mut notices);
    }
    for (_, gpu) in policies(file, "gpu_policies") {
        let window = gpu
            .get_mut("maintenance_window")
            .and_then(Value::as_object_mut);
        let message = window.and_then(|window| {
            translate_days(window);
            window.remove("message")
        });
        let is_said = message
            .as_ref()
            .and_then(Value::as_str)
            .is_some_and(|it| !it.is_empty());
        if let (true, Some(message)) = (is_said, message) {
            gpu.entry("message").or_insert(message);
        }
    }
    remove_multipliers(file, &mut notices);
    round_percentages(json, &mut String::new(), &mut notices);
    if is_theirs {
        let what = "hours are local time of the host; gpu-kill used UTC";
        notices.push(what.to_owned());
        let what = "utilization limits apply to GPU utilization; gpu-kill compared them with \
                    memory";
        notices.push(what.to_owned());
    }
    notices
}

/// Whether gpu-kill wrote the file: our exports have none of these keys.
fn is_from_gpu_kill(file: &Map<String, Value>) -> bool {
    let has = |table: &str, key: &str| file.get(table).and_then(|it| it.get(key)).is_some();
    file.contains_key("metadata")
        || has("global", "check_interval_seconds")
        || has("enforcement", "notifications")
}

fn table<'a>(file: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    file.get_mut(name).and_then(Value::as_object_mut)
}

fn policies<'a>(
    file: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a mut Map<String, Value>)> {
    let entries = table(file, name).into_iter().flatten();
    entries.filter_map(|(name, policy)| Some((name, policy.as_object_mut()?)))
}

/// Removes the notification settings and reports the enabled ones.
fn remove_notifications(enforcement: &mut Map<String, Value>, notices: &mut Vec<String>) {
    let Some(notifications) = enforcement.remove("notifications") else {
        return;
    };
    let is_on = |name: &&&str| notifications.get(**name).and_then(Value::as_bool) == Some(true);
    let on: Vec<&str> = ["console", "log_file", "email", "webhook"]
        .iter()
        .filter(is_on)
        .copied()
        .collect();
    let on = match on.is_empty() {
        true => String::new(),
        false => format!(" ({})", on.join(", ")),
    };
    notices.push(format!(
        "enforcement.notifications is ignored{on}: owners are warned on their terminals, and \
        everything is in the journal"
    ));
}

/// Replaces day numbers, counted from Sunday, by names.
fn translate_days(table: &mut Map<String, Value>) {
    let days = table.get_mut("days_of_week").and_then(Value::as_array_mut);
    for day in days.into_iter().flatten() {
        let number = day.as_u64().filter(|number| *number < 7);
        if let Some(number) = number.and_then(|number| usize::try_from(number).ok()) {
            *day = json!(Weekday::ALL[(number + 6) % 7].name());
        }
    }
}

fn clamp_priority(path: &str, policy: &mut Map<String, Value>, notices: &mut Vec<String>) {
    let given = policy.get("priority").and_then(Value::as_u64);
    let highest = u64::from(MAX_PRIORITY);
    if let Some(given) = given.filter(|given| (highest + 1..=255).contains(given)) {
        notices.push(format!(
            "{path}.priority: {given} becomes {highest}, the highest priority"
        ));
        policy.insert("priority".to_owned(), json!(highest));
    }
}

/// Removes the multipliers of limits: here limits are written as they are.
fn remove_multipliers(file: &mut Map<String, Value>, notices: &mut Vec<String>) {
    const FACTORS: [&str; 3] = [
        "memory_multiplier",
        "utilization_multiplier",
        "duration_multiplier",
    ];
    const WHEN: [&str; 4] = ["name", "start_time", "end_time", "days_of_week"];
    let Some(list) = file.get_mut("time_policies").and_then(Value::as_array_mut) else {
        return;
    };
    list.retain_mut(|policy| {
        let Some(policy) = policy.as_object_mut() else {
            return true;
        };
        translate_days(policy);
        let removed = FACTORS
            .iter()
            .filter(|factor| policy.remove(**factor).is_some())
            .count();
        if removed == 0 {
            return true;
        }
        let name = policy.get("name").and_then(Value::as_str).unwrap_or("?");
        let is_empty = policy.keys().all(|key| WHEN.contains(&key.as_str()));
        notices.push(match is_empty {
            true => format!(
                "time_policies.{name} is left out: it has only multipliers, which are not \
                supported; write the limits themselves"
            ),
            false => format!(
                "time_policies.{name}: multipliers are ignored; write the limits themselves"
            ),
        });
        !is_empty
    });
    if list.is_empty() {
        file.remove("time_policies");
    }
}

/// Rounds percentages to whole numbers, at any depth.
fn round_percentages(json: &mut Value, path: &mut String, notices: &mut Vec<String>) {
    match json {
        Value::Object(table) => {
            for (key, value) in table {
                let before = path.len();
                path.push_str(if before == 0 { "" } else { "." });
                path.push_str(key);
                let given = value
                    .as_f64()
                    // No value is rounded to 0, which would allow nothing.
                    .filter(|it| key.ends_with("_pct") && it.fract() != 0.0 && *it > 0.5);
                match given {
                    Some(given) => {
                        let whole = given.round();
                        notices.push(format!(
                            "{path}: {given} becomes {whole}: percentages are whole numbers"
                        ));
                        *value = json!(whole);
                    }
                    None => round_percentages(value, path, notices),
                }
                path.truncate(before);
            }
        }
        Value::Array(list) => {
            for value in list {
                round_percentages(value, path, notices);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
