//! Rules from and to JSON: what was exported, and what gpu-kill exports, whose files
//! say some things otherwise and some that mean nothing here.

mod foreign;

use super::read::at::MOST_MISTAKES;
use super::read::field::key;
use super::read::{self, value_of_time};
use foreign::translate;
use gpukill_proto::guard::edit::{Mistake, PolicyKind};
use serde_json::{Map, Value};

/// Rules that were something else before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// As they are kept: without mistakes.
    pub text: String,
    /// What of the other file means nothing or something else here.
    pub notices: Vec<String>,
}

/// Rules as JSON has them.
///
/// # Errors
/// Every mistake in them, by the path of its keys.
pub fn from_json(json: &Value) -> Result<Imported, Vec<Mistake>> {
    let nulls = nulls(json);
    if !nulls.is_empty() {
        return Err(nulls);
    }
    let mut json = json.clone();
    let notices = translate(&mut json);
    let text = text_of(json);
    read::read_made(&text)?;
    Ok(Imported { text, notices })
}

/// A key that is null is as good as none; but a list without what is null in it would
/// say something else, and one that is empty mean everybody.
fn nulls(json: &Value) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    find_nulls(json, "", &mut mistakes);
    mistakes
}

fn find_nulls(json: &Value, path: &str, mistakes: &mut Vec<Mistake>) {
    match json {
        Value::Object(table) => {
            for (name, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                find_nulls(value, &format!("{path}{dot}{}", key(name)), mistakes);
            }
        }
        Value::Array(list) => {
            for (position, value) in list.iter().enumerate() {
                if value.is_null() && mistakes.len() < MOST_MISTAKES {
                    mistakes.push(Mistake {
                        place: None,
                        path: path.to_owned(),
                        what: format!("item {} of the list is null", position + 1),
                        suggestion: Some("leave it out".to_owned()),
                    });
                }
                find_nulls(value, path, mistakes);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A file of rules with this in it, its tables in the usual order.
fn text_of(json: Value) -> String {
    let Value::Object(mut tables) = json else {
        // Whoever reads it says that this is no table.
        return format!("rules = {}\n", if json.is_string() { "''" } else { "0" });
    };
    let kinds = PolicyKind::ALL.map(PolicyKind::table);
    let usual = ["global", "enforcement", "protect"]
        .into_iter()
        .chain(kinds);
    let mut names: Vec<String> = usual.map(str::to_owned).collect();
    names.extend(
        tables
            .keys()
            .filter(|it| !names.contains(it))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let (mut values, mut parts) = (Vec::new(), Vec::new());
    for name in names {
        let Some(value) = tables.remove(&name).and_then(to_toml) else {
            continue;
        };
        let list = value.as_array();
        let is_headed = value.is_table()
            || list.is_some_and(|it| !it.is_empty() && it.iter().all(toml::Value::is_table));
        let part = toml::Table::from_iter([(name, value)]);
        // Tables of tables and values can be written, whatever is in them.
        let part = toml::to_string_pretty(&part).unwrap_or_default();
        // What has no header of its own would belong to the one before.
        if is_headed { &mut parts } else { &mut values }.push(part);
    }
    values.extend(parts);
    values.join("\n")
}

/// What JSON says, as TOML has it: there is no null, and 8 is 8.0.
fn to_toml(json: Value) -> Option<toml::Value> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(truth) => truth.into(),
        Value::Number(number) => number_of(&number),
        Value::String(text) => text.into(),
        Value::Array(list) => list
            .into_iter()
            .filter_map(to_toml)
            .collect::<Vec<_>>()
            .into(),
        Value::Object(table) => {
            let entries = table.into_iter();
            let kept = entries.filter_map(|(key, value)| Some((key, to_toml(value)?)));
            toml::Value::Table(kept.collect())
        }
    })
}

#[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
fn number_of(number: &serde_json::Number) -> toml::Value {
    let float = number.as_f64().unwrap_or(f64::NAN);
    match number.as_i64() {
        Some(whole) => whole.into(),
        None if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
        None => float.into(),
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

fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        // Only times of the day are right anywhere.
        toml::Value::Datetime(moment) => value_of_time(&moment).into(),
        toml::Value::Array(list) => list.into_iter().map(json_of).collect(),
        toml::Value::Table(table) => {
            let entries = table.into_iter();
            let entries: Map<String, Value> =
                entries.map(|(key, value)| (key, json_of(value))).collect();
            entries.into()
        }
    }
}

#[cfg(test)]
mod tests;
