//! Rules from and to JSON: what was exported, and what gpu-kill exports, whose files
//! say some things otherwise and some that mean nothing here.

mod foreign;

use super::read;
use super::read::at::MOST_MISTAKES;
use crate::document::json::{Null, json_of, nulls, text_of};
use foreign::translate;
use gpukill_proto::guard::edit::{Mistake, PolicyKind};
use serde_json::Value;

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
    let nulls = nulls(json, MOST_MISTAKES);
    if !nulls.is_empty() {
        return Err(nulls.into_iter().map(null).collect());
    }
    let mut json = json.clone();
    let notices = translate(&mut json);
    let kinds = PolicyKind::ALL.map(PolicyKind::table);
    let usual = ["global", "enforcement", "protect"]
        .into_iter()
        .chain(kinds);
    let text = text_of(json, usual);
    read::read_made(&text)?;
    Ok(Imported { text, notices })
}

fn null(null: Null) -> Mistake {
    Mistake {
        place: None,
        what: null.to_string(),
        path: null.path,
        suggestion: Some("leave it out".to_owned()),
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

#[cfg(test)]
mod tests;
