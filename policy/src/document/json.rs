//! What JSON says as TOML has it, and the other way round: there is no null in TOML, and
//! no moment in JSON.

use crate::guard::read::field::key;
use crate::guard::read::value_of_time;
use serde_json::{Map, Value};
use std::fmt;

/// A null in a list.
#[derive(Debug)]
pub(crate) struct Null {
    /// The path of the list.
    pub(crate) path: String,
    /// From 1.
    item: usize,
}

impl fmt::Display for Null {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {} of the list is null", self.item)
    }
}

/// A key that is null is as good as none; but a list without what is null in it would
/// say something else, and one that is empty mean everybody. So many of them at most.
pub(crate) fn nulls(json: &Value, most: usize) -> Vec<Null> {
    let mut found = Vec::new();
    find_nulls(json, "", most, &mut found);
    found
}

fn find_nulls(json: &Value, path: &str, most: usize, found: &mut Vec<Null>) {
    match json {
        Value::Object(table) => {
            for (name, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                find_nulls(value, &format!("{path}{dot}{}", key(name)), most, found);
            }
        }
        Value::Array(list) => {
            for (position, value) in list.iter().enumerate() {
                if value.is_null() && found.len() < most {
                    found.push(Null {
                        path: path.to_owned(),
                        item: position + 1,
                    });
                }
                find_nulls(value, path, most, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A file of rules with this in it, these tables first.
pub(crate) fn text_of<'a>(json: Value, usual: impl IntoIterator<Item = &'a str>) -> String {
    let Value::Object(mut tables) = json else {
        // Whoever reads it says that this is no table.
        return format!("rules = {}\n", if json.is_string() { "''" } else { "0" });
    };
    let mut names: Vec<String> = usual.into_iter().map(str::to_owned).collect();
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

/// What TOML says, as JSON has it.
pub(crate) fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        // Where a moment is right, a text is too.
        toml::Value::Datetime(moment) if moment.date.is_some() => moment.to_string().into(),
        toml::Value::Datetime(time) => value_of_time(&time).into(),
        toml::Value::Array(list) => list.into_iter().map(json_of).collect(),
        toml::Value::Table(table) => {
            let entries = table.into_iter();
            let entries: Map<String, Value> =
                entries.map(|(key, value)| (key, json_of(value))).collect();
            entries.into()
        }
    }
}
