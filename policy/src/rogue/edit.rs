//! Changes the text of `rogue.toml`, and keeps its comments, its order and its form. What
//! it becomes is read before it is given out: no change makes rules that are not right.

use super::read::{self, KEYS};
use crate::document::{Text, existing_table, list, remove_key, set_value, table, typed};
use gpukill_proto::guard::edit;
use gpukill_proto::rogue::{AllowBy, RogueEdit};
use gpukill_proto::settings::{Key, Mistake, nearest};
use gpukill_proto::units::Timestamp;
use toml_edit::{Array, DocumentMut, Item, Value};

/// Why these rules were not changed.
pub type EditError = edit::EditError<Mistake>;

/// What a file begins with when there was none.
const HEADER: &str = "# What gpukill takes for a rogue on a GPU. Every key, and what holds where it is not\n\
    # said: gpukillctl rogue reference. What is wrong here: gpukillctl rogue check FILE.\n\n";

const PATTERNS: &str = "patterns";
const METADATA: &str = "metadata";
const LAST_MODIFIED: &str = "last_modified";

/// What a text of rules becomes by a change at this moment, which is written into it. One
/// that changes nothing else leaves the text as it is. A file that is not there is an
/// empty text.
///
/// # Errors
/// The text has mistakes, would have some, says so already, or what is to be removed is
/// not there.
pub fn edit(text: &str, edit: &RogueEdit, now: Timestamp) -> Result<String, EditError> {
    let after = match edit {
        RogueEdit::Replace(new) => checked(new.clone())?,
        RogueEdit::SetKey { .. } | RogueEdit::Allow(..) | RogueEdit::Disallow(..) => {
            read::read(text).map_err(EditError::Broken)?;
            let mut text = opened(text)?;
            change(&mut text.document, edit)?;
            text.written(HEADER)
        }
    };
    let before = last_modified(text);
    let is_same = |after: &str| after == text;
    let as_before = before.map(|before| stamped(&after, before)).transpose()?;
    if is_same(&after) || as_before.as_deref().is_some_and(is_same) {
        return Ok(text.to_owned());
    }
    checked(stamped(&after, now.to_rfc3339().into())?)
}

fn change(document: &mut DocumentMut, edit: &RogueEdit) -> Result<(), EditError> {
    match edit {
        RogueEdit::SetKey { path, value } => set_key(document, path, value),
        RogueEdit::Allow(by, what) => allow(document, *by, what),
        RogueEdit::Disallow(by, what) => disallow(document, *by, what),
        RogueEdit::Replace(_) => Ok(()),
    }
}

/// What is read without mistakes is TOML.
fn opened(text: &str) -> Result<Text<'_>, EditError> {
    Text::open(text).ok_or_else(|| EditError::Broken(Vec::new()))
}

/// A text, if nothing is wrong with it.
fn checked(text: String) -> Result<String, EditError> {
    match read::read(&text) {
        Ok(_) => Ok(text),
        Err(mistakes) => Err(EditError::Refused(mistakes)),
    }
}

/// When a text says that it was changed last.
fn last_modified(text: &str) -> Option<Value> {
    let mut text = Text::open(text)?;
    let metadata = existing_table(&mut text.document, METADATA)?;
    let mut moment = metadata.get(LAST_MODIFIED)?.as_value()?.clone();
    moment.decor_mut().clear();
    Some(moment)
}

/// The same text, which says that it was changed then.
fn stamped(text: &str, moment: Value) -> Result<String, EditError> {
    let mut text = opened(text)?;
    let metadata = table(&mut text.document, METADATA).ok_or_else(not_read)?;
    if !metadata.contains_key("version") {
        set_value(metadata, "version", "1".into());
    }
    set_value(metadata, LAST_MODIFIED, moment);
    Ok(text.written(HEADER))
}

/// What was read without mistakes has tables and lists where they belong.
fn not_read() -> EditError {
    EditError::Broken(Vec::new())
}

/// The section and the name of a key, as typed: `detection.max_sent_gb`, or the name alone
/// where no other key is called so.
fn key(typed: &str) -> Result<(&'static str, &'static str), EditError> {
    let is_meant = |path: &str, name: &str| typed == path || typed == name;
    let found = KEYS.iter().find(|key| is_meant(&key.path(), key.name));
    if let Some(key) = found {
        return Ok((key.section, key.name));
    }
    let paths: Vec<String> = KEYS.iter().map(Key::path).collect();
    let near = nearest(typed, paths.iter().map(String::as_str));
    // Of a name in a section that has none of it, its own section is said.
    let typed_name = typed.rsplit('.').next().unwrap_or(typed);
    let near_name = || {
        let near = nearest(typed_name, KEYS.iter().map(|key| key.name))?;
        KEYS.iter().find(|key| key.name == near).map(Key::path)
    };
    Err(EditError::NoSuch {
        what: format!("key {typed:?}"),
        near: near.map(str::to_owned).or_else(near_name),
    })
}

fn set_key(document: &mut DocumentMut, path: &str, value: &str) -> Result<(), EditError> {
    let (section, name) = key(path)?;
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
        // What is wrong with the whole has no line.
        let is_whole = |mistake: &Mistake| mistake.line.is_none();
        read::read(&text).map_or_else(|all| all.iter().all(is_whole), |_| true)
    };
    let value = match typed::value(value, is_right) {
        right if is_right(&right) => right,
        wrong => items(value, is_right).unwrap_or(wrong),
    };
    set_value(table(document, section).ok_or_else(not_read)?, name, value);
    Ok(())
}

/// What was typed for a list of which an item is wrong: then that item is complained of,
/// and not that it is no list. `None` where the key has no list.
fn items(typed: &str, is_right: impl Fn(&Value) -> bool) -> Option<Value> {
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

fn allow(document: &mut DocumentMut, by: AllowBy, what: &str) -> Result<(), EditError> {
    if allowed(document, by).iter().any(|it| it == what) {
        return Err(EditError::Already(format!(
            "{} {what:?} is allowed",
            by.name()
        )));
    }
    let patterns = table(document, PATTERNS).ok_or_else(not_read)?;
    match patterns.get_mut(by.key()) {
        Some(item) => list::push(item.as_array_mut().ok_or_else(not_read)?, what),
        None => {
            let list = Array::from_iter([what]);
            patterns.insert(by.key(), Item::Value(list.into()));
        }
    }
    Ok(())
}

fn disallow(document: &mut DocumentMut, by: AllowBy, what: &str) -> Result<(), EditError> {
    let allowed = allowed(document, by);
    let list = existing_table(document, PATTERNS).and_then(|it| it.get_mut(by.key()));
    let list = list.and_then(Item::as_array_mut);
    match list.is_some_and(|list| list::remove(list, what)) {
        true => Ok(()),
        false => Err(EditError::NoSuch {
            what: format!("allowed {} {what:?}", by.name()),
            near: nearest(what, allowed.iter().map(String::as_str)).map(str::to_owned),
        }),
    }
}

/// Who is allowed in this way.
fn allowed(document: &mut DocumentMut, by: AllowBy) -> Vec<String> {
    let list = existing_table(document, PATTERNS).and_then(|it| it.get(by.key()));
    let list = list.and_then(Item::as_array);
    list.map_or_else(Vec::new, |list| {
        list::texts(list).map(str::to_owned).collect()
    })
}

#[cfg(test)]
mod tests;
