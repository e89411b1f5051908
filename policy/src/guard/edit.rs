//! Changes a text of rules, and keeps its comments, its order and its form. What it
//! becomes is read before it is given out: no change makes rules that are not right.

mod policies;

use super::read::field::key;
use super::read::{self, Section};
use crate::document::{Text, remove_key, set_value, typed};
use gpukill_proto::guard::GuardMode;
use gpukill_proto::guard::edit::{EditError, GuardEdit, PolicyKind};
use gpukill_proto::settings::nearest;
use toml_edit::{DocumentMut, Item, Key, TableLike, Value};

/// What a file of rules begins with when there was none.
const HEADER: &str =
    "# Rules of gpukill's guard. What is wrong with them, gpukillctl guard check FILE says.\n\n";

/// What a text of rules becomes by a change. A file that is not there is an empty
/// text.
///
/// # Errors
/// The text has mistakes, would have some, or what is to be removed is not there.
pub fn edit(text: &str, edit: &GuardEdit) -> Result<String, EditError> {
    if let GuardEdit::Replace(new) = edit {
        return checked(new.clone());
    }
    read::read(text).map_err(EditError::Broken)?;
    // What is read without mistakes is TOML.
    let mut text = Text::open(text).ok_or_else(|| EditError::Broken(Vec::new()))?;
    let document = &mut text.document;
    match edit {
        GuardEdit::SetPolicy { kind, name, fields } => {
            policies::set(document, *kind, name, fields)?;
        }
        GuardEdit::RemovePolicy { kind, name } => policies::remove(document, *kind, name)?,
        GuardEdit::SetKey { path, value } => set_key(document, path, value)?,
        GuardEdit::SetMode(mode) => set_mode(document, *mode)?,
        GuardEdit::ToggleDryRun => {
            let is_dry = switch(document, "global", "dry_run").unwrap_or(true);
            set_switch(document, "global", "dry_run", !is_dry)?;
        }
        GuardEdit::Replace(_) => {}
    }
    checked(text.written(HEADER))
}

/// A text, if nothing is wrong with it.
fn checked(text: String) -> Result<String, EditError> {
    match read::read(&text) {
        Ok(_) => Ok(text),
        Err(mistakes) => Err(EditError::Refused(mistakes)),
    }
}

/// What is not there, and what was probably meant.
fn no_such<'a>(what: String, typed: &str, there: impl IntoIterator<Item = &'a str>) -> EditError {
    EditError::NoSuch {
        what,
        near: nearest(typed, there).map(str::to_owned),
    }
}

fn set_key(document: &mut DocumentMut, path: &str, value: &str) -> Result<(), EditError> {
    let sections = read::sections();
    let unknown = || {
        let known: Vec<&str> = sections
            .iter()
            .flat_map(|section| section.paths.iter().map(String::as_str))
            .collect();
        no_such(format!("key {path:?}"), path, known)
    };
    let keys = Key::parse(path).map_err(|_| unknown())?;
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    let has = |section: &&Section, name: &str| section.keys.iter().any(|key| key == name);
    let (section, name) = match names.as_slice() {
        // Most keys are in one section alone.
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
            return policies::set(document, kind, policy, &field);
        }
        _ => return Err(unknown()),
    };
    if value.is_empty() {
        let table = document.get_mut(section).and_then(Item::as_table_like_mut);
        let is_removed = table.is_some_and(|table| remove_key(table, name));
        return if is_removed {
            Ok(())
        } else {
            Err(no_such(format!("key \"{section}.{name}\""), "", []))
        };
    }
    let at = format!("{section}.{}", key(name));
    let frame = |value: &Value| format!("[{section}]\n{} = {value}\n", key(name));
    let value = typed::value(value, |value| is_right(&frame(value), &at));
    set_value(table(document, section)?, name, value);
    Ok(())
}

/// Whether nothing is wrong with what this text says at this path.
fn is_right(text: &str, path: &str) -> bool {
    match read::read(text) {
        Ok(_) => true,
        Err(mistakes) => !mistakes.iter().any(|it| it.path.starts_with(path)),
    }
}

/// A table there is one of, made where there is none.
fn table<'a>(
    document: &'a mut DocumentMut,
    name: &str,
) -> Result<&'a mut dyn TableLike, EditError> {
    // What was read without mistakes has a table there.
    crate::document::table(document, name).ok_or_else(|| EditError::Broken(Vec::new()))
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

fn switch(document: &DocumentMut, section: &str, name: &str) -> Option<bool> {
    document.get(section)?.get(name)?.as_bool()
}

/// Writes a switch, if it is not as it should be.
fn set_switch(
    document: &mut DocumentMut,
    section: &str,
    name: &str,
    on: bool,
) -> Result<(), EditError> {
    if switch(document, section, name) != Some(on) {
        set_value(table(document, section)?, name, on.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
