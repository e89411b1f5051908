//! Edits the text of `rogue.toml` and keeps its comments, order and formatting. The
//! result is validated before it is returned: no edit produces invalid rules.

use super::read::{self, KEYS};
use crate::document::{
    EditedDocument, ensure_table, existing_table, list, parse_typed, remove_key, set_value,
};
use gpukill_proto::guard::edit;
use gpukill_proto::rogue::{AllowKind, RogueEdit};
use gpukill_proto::settings::{Key, SettingMistake, closest_name};
use gpukill_proto::units::Timestamp;
use toml_edit::{Array, DocumentMut, Item, Value};

/// Why the rules were not changed.
pub type EditError = edit::EditError<SettingMistake>;

/// The beginning of a new file.
const HEADER: &str = "# Rules for suspicious GPU processes. All keys and their defaults:\n\
    # gpukillctl rogue reference. To find mistakes: gpukillctl rogue check FILE.\n\n";

const PATTERNS: &str = "patterns";
const METADATA: &str = "metadata";
const LAST_MODIFIED: &str = "last_modified";

/// Returns the text after an edit. The time of the edit is written into the text; an
/// edit without effect leaves the text unchanged. A missing file counts as an empty
/// text.
///
/// # Errors
/// The text has mistakes or would have some, the entry exists already, or the entry to
/// remove does not exist.
pub fn edit(text: &str, edit: &RogueEdit, now: Timestamp) -> Result<String, EditError> {
    let after = match edit {
        RogueEdit::Replace(new) => validated(new.clone())?,
        RogueEdit::SetKey { .. } | RogueEdit::Allow(..) | RogueEdit::Disallow(..) => {
            read::read(text).map_err(EditError::AlreadyInvalid)?;
            let mut text = open_document(text)?;
            apply_edit(&mut text.document, edit)?;
            text.render(HEADER)
        }
    };
    let before = last_modified(text);
    let is_same = |after: &str| after == text;
    let as_before = before
        .map(|before| with_last_modified(&after, before))
        .transpose()?;
    if is_same(&after) || as_before.as_deref().is_some_and(is_same) {
        return Ok(text.to_owned());
    }
    validated(with_last_modified(&after, now.to_rfc3339().into())?)
}

fn apply_edit(document: &mut DocumentMut, edit: &RogueEdit) -> Result<(), EditError> {
    match edit {
        RogueEdit::SetKey { path, value } => set_key(document, path, value),
        RogueEdit::Allow(by, what) => allow(document, *by, what),
        RogueEdit::Disallow(by, what) => disallow(document, *by, what),
        RogueEdit::Replace(_) => Ok(()),
    }
}

/// A text that was read without mistakes is TOML.
fn open_document(text: &str) -> Result<EditedDocument<'_>, EditError> {
    EditedDocument::parse(text).ok_or_else(|| EditError::AlreadyInvalid(Vec::new()))
}

/// Returns the text if it has no mistakes.
fn validated(text: String) -> Result<String, EditError> {
    match read::read(&text) {
        Ok(_) => Ok(text),
        Err(mistakes) => Err(EditError::Refused(mistakes)),
    }
}

/// The time of the last change that a text states.
fn last_modified(text: &str) -> Option<Value> {
    let mut text = EditedDocument::parse(text)?;
    let metadata = existing_table(&mut text.document, METADATA)?;
    let mut moment = metadata.get(LAST_MODIFIED)?.as_value()?.clone();
    moment.decor_mut().clear();
    Some(moment)
}

/// The same text with this time of the last change.
fn with_last_modified(text: &str, moment: Value) -> Result<String, EditError> {
    let mut text = open_document(text)?;
    let metadata = ensure_table(&mut text.document, METADATA).ok_or_else(unexpected_form)?;
    if !metadata.contains_key("version") {
        set_value(metadata, "version", "1".into());
    }
    set_value(metadata, LAST_MODIFIED, moment);
    Ok(text.render(HEADER))
}

/// A text that was read without mistakes has tables and lists in their places.
fn unexpected_form() -> EditError {
    EditError::AlreadyInvalid(Vec::new())
}

/// The section and the name of a typed key: `detection.max_sent_gb`, or a unique name
/// alone.
fn find_key(typed: &str) -> Result<(&'static str, &'static str), EditError> {
    let is_meant = |path: &str, name: &str| typed == path || typed == name;
    let key = KEYS.iter().find(|key| is_meant(&key.path(), key.name));
    if let Some(key) = key {
        return Ok((key.section, key.name));
    }
    let paths: Vec<String> = KEYS.iter().map(Key::path).collect();
    let near = closest_name(typed, paths.iter().map(String::as_str));
    // For a known name in the wrong section, the right section is suggested.
    let typed_name = typed.rsplit('.').next().unwrap_or(typed);
    let near_name = || {
        let near = closest_name(typed_name, KEYS.iter().map(|key| key.name))?;
        KEYS.iter().find(|key| key.name == near).map(Key::path)
    };
    Err(EditError::NoSuch {
        what: format!("key {typed:?}"),
        near: near.map(str::to_owned).or_else(near_name),
    })
}

fn set_key(document: &mut DocumentMut, path: &str, value: &str) -> Result<(), EditError> {
    let (section, name) = find_key(path)?;
    if value.is_empty() {
        let table = existing_table(document, section);
        return match table.is_some_and(|table| remove_key(table, name)) {
            true => Ok(()),
            false => Err(EditError::NoSuch {
                what: format!("key \"{section}.{name}\" in the file"),
                near: None,
            }),
        };
    }
    let is_right = |value: &Value| {
        let text = format!("[{section}]\n{name} = {value}\n");
        // A mistake without a line concerns the whole file.
        let is_whole = |mistake: &SettingMistake| mistake.line.is_none();
        read::read(&text).map_or_else(|all| all.iter().all(is_whole), |_| true)
    };
    let value = match parse_typed(value, is_right) {
        right if is_right(&right) => right,
        wrong => parse_list_items(value, is_right).unwrap_or(wrong),
    };
    set_value(
        ensure_table(document, section).ok_or_else(unexpected_form)?,
        name,
        value,
    );
    Ok(())
}

/// Parses a typed list with an invalid item, so that the error names the item and not
/// the list. `None` where the key takes no list.
fn parse_list_items(typed: &str, is_right: impl Fn(&Value) -> bool) -> Option<Value> {
    if !is_right(&Array::new().into()) {
        return None;
    }
    if let Ok(list @ Value::Array(_)) = typed.trim().parse() {
        return Some(list);
    }
    let has_numbers = is_right(&Array::from_iter([1]).into());
    let item = |item: &str| match item.parse::<i64>() {
        Ok(number) if has_numbers => Value::from(number),
        Ok(_) | Err(_) => Value::from(item),
    };
    let items = typed.split(',').map(str::trim).map(item);
    Some(items.collect::<Array>().into())
}

fn allow(document: &mut DocumentMut, by: AllowKind, what: &str) -> Result<(), EditError> {
    if allow_list(document, by).iter().any(|it| it == what) {
        return Err(EditError::Already(format!(
            "{} {what:?} is allowed",
            by.name()
        )));
    }
    let patterns = ensure_table(document, PATTERNS).ok_or_else(unexpected_form)?;
    match patterns.get_mut(by.key()) {
        Some(item) => list::push(item.as_array_mut().ok_or_else(unexpected_form)?, what),
        None => {
            let list = Array::from_iter([what]);
            patterns.insert(by.key(), Item::Value(list.into()));
        }
    }
    Ok(())
}

fn disallow(document: &mut DocumentMut, by: AllowKind, what: &str) -> Result<(), EditError> {
    let allowed = allow_list(document, by);
    let list = existing_table(document, PATTERNS).and_then(|it| it.get_mut(by.key()));
    let list = list.and_then(Item::as_array_mut);
    match list.is_some_and(|list| list::remove(list, what)) {
        true => Ok(()),
        false => Err(EditError::NoSuch {
            what: format!("allowed {} {what:?}", by.name()),
            near: closest_name(what, allowed.iter().map(String::as_str)).map(str::to_owned),
        }),
    }
}

fn allow_list(document: &mut DocumentMut, by: AllowKind) -> Vec<String> {
    let list = existing_table(document, PATTERNS).and_then(|it| it.get(by.key()));
    let list = list.and_then(Item::as_array);
    list.map_or_else(Vec::new, |list| {
        list::strings(list).map(str::to_owned).collect()
    })
}

#[cfg(test)]
mod tests;
