//! Edits a text of rules and keeps its comments, order and formatting. The result is parsed
//! before it is returned: no edit produces invalid rules.

mod policies;

use super::parse::field::quote_key;
use super::parse::{self, Section};
use crate::document::{EditedDocument, parse_typed, remove_key, set_value};
use gpukill_proto::guard::GuardMode;
use gpukill_proto::guard::edit::{EditError, GuardEdit, PolicyKind};
use gpukill_proto::settings::closest_name;
use toml_edit::{DocumentMut, Item, Key, TableLike, Value};

/// The beginning of a new rules file.
const HEADER: &str = "# Rules of gpukill's guard. To check them: gpukillctl guard check FILE\n\n";

/// The text of rules after an edit. An absent file is an empty text.
///
/// # Errors
/// The text has mistakes, the result would have mistakes, or the item to remove does not
/// exist.
pub fn edit(text: &str, edit: &GuardEdit) -> Result<String, EditError> {
    if let GuardEdit::Replace(new) = edit {
        return check_text(new.clone());
    }
    parse::parse(text).map_err(EditError::AlreadyInvalid)?;
    // A text that parses without mistakes is TOML.
    let mut text =
        EditedDocument::parse(text).ok_or_else(|| EditError::AlreadyInvalid(Vec::new()))?;
    let document = &mut text.document;
    match edit {
        GuardEdit::SetPolicy { kind, name, fields } => {
            policies::set_policy(document, *kind, name, fields)?;
        }
        GuardEdit::RemovePolicy { kind, name } => policies::remove_policy(document, *kind, name)?,
        GuardEdit::SetKey { path, value } => set_key(document, path, value)?,
        GuardEdit::SetMode(mode) => set_mode(document, *mode)?,
        GuardEdit::ToggleDryRun => {
            let is_dry = read_switch(document, "global", "dry_run").unwrap_or(true);
            set_switch(document, "global", "dry_run", !is_dry)?;
        }
        GuardEdit::Replace(_) => {}
    }
    check_text(text.render(HEADER))
}

/// Returns the text if it has no mistakes.
fn check_text(text: String) -> Result<String, EditError> {
    match parse::parse(&text) {
        Ok(_) => Ok(text),
        Err(mistakes) => Err(EditError::Refused(mistakes)),
    }
}

/// The error for an unknown name, with the known name that was probably meant.
fn not_found<'a>(what: String, typed: &str, known: impl IntoIterator<Item = &'a str>) -> EditError {
    EditError::NoSuch {
        what,
        near: closest_name(typed, known).map(str::to_owned),
    }
}

fn set_key(document: &mut DocumentMut, path: &str, value: &str) -> Result<(), EditError> {
    let sections = parse::sections();
    let unknown = || {
        let known: Vec<&str> = sections
            .iter()
            .flat_map(|section| section.paths.iter().map(String::as_str))
            .collect();
        not_found(format!("key {path:?}"), path, known)
    };
    let keys = Key::parse(path).map_err(|_| unknown())?;
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    let has = |section: &&Section, name: &str| section.keys.iter().any(|key| key == name);
    let (section, name) = match names.as_slice() {
        // Most keys exist in one section only.
        [name] => match sections.iter().find(|section| has(section, name)) {
            Some(section) => (section.name, *name),
            None => return Err(unknown()),
        },
        [section, name] => match sections.iter().find(|it| it.name == *section) {
            Some(section) => (section.name, *name),
            None => return Err(unknown()),
        },
        [table, policy, name] => {
            let kind = PolicyKind::ALL
                .into_iter()
                .find(|kind| kind.table() == *table);
            let kind = kind.ok_or_else(unknown)?;
            let field = [((*name).to_owned(), value.to_owned())];
            return policies::set_policy(document, kind, policy, &field);
        }
        _ => return Err(unknown()),
    };
    if value.is_empty() {
        let table = document.get_mut(section).and_then(Item::as_table_like_mut);
        let is_removed = table.is_some_and(|table| remove_key(table, name));
        return if is_removed {
            Ok(())
        } else {
            Err(not_found(format!("key \"{section}.{name}\""), "", []))
        };
    }
    let at = format!("{section}.{}", quote_key(name));
    let frame = |value: &Value| format!("[{section}]\n{} = {value}\n", quote_key(name));
    let value = parse_typed(value, |value| is_valid_at(&frame(value), &at));
    set_value(section_table(document, section)?, name, value);
    Ok(())
}

/// Whether the text has no mistakes at this path.
fn is_valid_at(text: &str, path: &str) -> bool {
    match parse::parse(text) {
        Ok(_) => true,
        Err(mistakes) => !mistakes.iter().any(|it| it.path.starts_with(path)),
    }
}

/// The table of a section, created if it is absent.
fn section_table<'a>(
    document: &'a mut DocumentMut,
    name: &str,
) -> Result<&'a mut dyn TableLike, EditError> {
    // A text without mistakes has a table there.
    crate::document::ensure_table(document, name)
        .ok_or_else(|| EditError::AlreadyInvalid(Vec::new()))
}

fn set_mode(document: &mut DocumentMut, mode: GuardMode) -> Result<(), EditError> {
    let is_enabled = mode != GuardMode::Disabled;
    set_switch(document, "global", "enabled", is_enabled)?;
    let is_hard = match mode {
        GuardMode::Disabled => return Ok(()),
        GuardMode::DryRun => return set_switch(document, "global", "dry_run", true),
        GuardMode::Soft => false,
        GuardMode::Enforce => true,
    };
    set_switch(document, "global", "dry_run", false)?;
    set_switch(document, "enforcement", "soft_enforcement", !is_hard)?;
    set_switch(document, "enforcement", "hard_enforcement", is_hard)
}

fn read_switch(document: &DocumentMut, section: &str, name: &str) -> Option<bool> {
    document.get(section)?.get(name)?.as_bool()
}

/// Writes a switch, unless it already has the value.
fn set_switch(
    document: &mut DocumentMut,
    section: &str,
    name: &str,
    on: bool,
) -> Result<(), EditError> {
    if read_switch(document, section, name) != Some(on) {
        set_value(section_table(document, section)?, name, on.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
