//! Imports and exports rules as JSON. It also imports the exports of gpu-kill, which
//! express some things differently and contain keys that have no meaning here.

mod foreign;

use super::parse;
use super::parse::value_reader::MAX_MISTAKES;
use crate::document::json::{NullItem, list_nulls, to_json_value, to_toml_text};
use foreign::translate;
use gpukill_proto::guard::edit::{PolicyKind, RuleMistake};
use serde_json::Value;

/// Rules that were converted from another format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRules {
    /// The rules as TOML, without mistakes.
    pub text: String,
    /// Parts of the other file that have no meaning or another meaning here.
    pub notices: Vec<String>,
}

/// Converts rules from JSON.
///
/// # Errors
/// Every mistake, by the path of its key.
pub fn from_json(json: &Value) -> Result<ImportedRules, Vec<RuleMistake>> {
    let nulls = list_nulls(json, MAX_MISTAKES);
    if !nulls.is_empty() {
        return Err(nulls.into_iter().map(null_mistake).collect());
    }
    let mut json = json.clone();
    let notices = translate(&mut json);
    let kinds = PolicyKind::ALL.map(PolicyKind::table);
    let usual = ["global", "enforcement", "protect"]
        .into_iter()
        .chain(kinds);
    let text = to_toml_text(json, usual);
    parse::parse_generated(&text)?;
    Ok(ImportedRules { text, notices })
}

fn null_mistake(null: NullItem) -> RuleMistake {
    RuleMistake {
        position: None,
        what: null.to_string(),
        path: null.path,
        suggestion: Some("leave it out".to_owned()),
    }
}

/// Converts rules to JSON.
///
/// # Errors
/// Every mistake in the text.
pub fn to_json(text: &str) -> Result<Value, Vec<RuleMistake>> {
    parse::parse(text)?;
    // A text that parses without mistakes is TOML.
    let table = text.parse::<toml::Table>().unwrap_or_default();
    Ok(to_json_value(toml::Value::Table(table)))
}

#[cfg(test)]
mod tests;
