//! Converts between JSON and TOML. TOML has no null, and JSON has no date.

use crate::guard::rules::parse::field::quote_key;
use crate::guard::rules::parse::format_toml_time;
use serde_json::{Map, Value};
use std::fmt;

/// A null item of a list.
#[derive(Debug)]
pub(crate) struct NullItem {
    /// Path of the list.
    pub(crate) path: String,
    /// Position in the list, from 1.
    item: usize,
}

impl fmt::Display for NullItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {} of the list is null", self.item)
    }
}

/// Finds nulls in lists, at most `max_items`. A key that is null counts as missing, but a
/// list without its null items would have another meaning, and an empty list could
/// apply to every user.
pub(crate) fn list_nulls(json: &Value, max_items: usize) -> Vec<NullItem> {
    let mut nulls = Vec::new();
    find_nulls(json, "", max_items, &mut nulls);
    nulls
}

fn find_nulls(json: &Value, path: &str, max_items: usize, nulls: &mut Vec<NullItem>) {
    match json {
        Value::Object(table) => {
            for (name, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                find_nulls(
                    value,
                    &format!("{path}{dot}{}", quote_key(name)),
                    max_items,
                    nulls,
                );
            }
        }
        Value::Array(list) => {
            for (position, value) in list.iter().enumerate() {
                if value.is_null() && nulls.len() < max_items {
                    nulls.push(NullItem {
                        path: path.to_owned(),
                        item: position + 1,
                    });
                }
                find_nulls(value, path, max_items, nulls);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a rules file with this content, the tables of `usual` first.
pub(crate) fn to_toml_text<'a>(json: Value, usual: impl IntoIterator<Item = &'a str>) -> String {
    let Value::Object(mut tables) = json else {
        // The reader reports that this is not a table.
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
        let Some(value) = tables.remove(&name).and_then(to_toml_value) else {
            continue;
        };
        let list = value.as_array();
        let is_headed = value.is_table()
            || list.is_some_and(|it| !it.is_empty() && it.iter().all(toml::Value::is_table));
        let part = toml::Table::from_iter([(name, value)]);
        // Tables of tables and values can always be serialized.
        let part = toml::to_string_pretty(&part).unwrap_or_default();
        // A value without a header would belong to the table before it.
        if is_headed { &mut parts } else { &mut values }.push(part);
    }
    values.extend(parts);
    values.join("\n")
}

/// Converts a JSON value to TOML: a null is dropped, and 8 equals 8.0.
fn to_toml_value(json: Value) -> Option<toml::Value> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(truth) => truth.into(),
        Value::Number(number) => to_toml_number(&number),
        Value::String(text) => text.into(),
        Value::Array(list) => list
            .into_iter()
            .filter_map(to_toml_value)
            .collect::<Vec<_>>()
            .into(),
        Value::Object(table) => {
            let entries = table.into_iter();
            let kept = entries.filter_map(|(key, value)| Some((key, to_toml_value(value)?)));
            toml::Value::Table(kept.collect())
        }
    })
}

#[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
fn to_toml_number(number: &serde_json::Number) -> toml::Value {
    let float = number.as_f64().unwrap_or(f64::NAN);
    match number.as_i64() {
        Some(whole) => whole.into(),
        None if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
        None => float.into(),
    }
}

/// Converts a TOML value to JSON.
pub(crate) fn to_json_value(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        // Where a date is valid, its text is valid too.
        toml::Value::Datetime(moment) if moment.date.is_some() => moment.to_string().into(),
        toml::Value::Datetime(time) => format_toml_time(&time).into(),
        toml::Value::Array(list) => list.into_iter().map(to_json_value).collect(),
        toml::Value::Table(table) => {
            let entries = table.into_iter();
            let entries: Map<String, Value> = entries
                .map(|(key, value)| (key, to_json_value(value)))
                .collect();
            entries.into()
        }
    }
}
