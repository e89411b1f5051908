//! Edits policies in a document: tables by name, or a list of tables with a `name` in each.

use super::{is_valid_at, not_found};
use crate::document::{detached_comment, parse_typed, prepend_comment, remove_key, set_value};
use crate::guard::rules::parse::field::quote_key;
use gpukill_proto::guard::edit::{EditError, PolicyKind};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// Sets keys of a policy. The policy is created if it is absent.
pub(super) fn set_policy(
    document: &mut DocumentMut,
    kind: PolicyKind,
    name: &str,
    fields: &[(String, String)],
) -> Result<(), EditError> {
    let table = find_or_create(document, kind, name)?;
    for (field, typed) in fields {
        if typed.is_empty() {
            if !remove_key(table, field) {
                let what = format!("key {field:?} in {} {name:?}", kind.name());
                let known: Vec<&str> = table.iter().map(|(key, _)| key).collect();
                return Err(not_found(what, field, known));
            }
            continue;
        }
        let at = format!("{}.{}.{}", kind.table(), quote_key(name), quote_key(field));
        let header = match is_table_list(kind) {
            true => format!("[[{}]]\nname = {}\n", kind.table(), Value::from(name)),
            false => format!("[{}.{}]\n", kind.table(), Value::from(name)),
        };
        let frame = |value: &Value| format!("{header}{} = {value}\n", quote_key(field));
        let value = parse_typed(typed, |value| is_valid_at(&frame(value), &at));
        set_value(table, field, value);
    }
    Ok(())
}

/// Whether policies of this kind are a list of tables.
const fn is_table_list(kind: PolicyKind) -> bool {
    match kind {
        PolicyKind::User | PolicyKind::Group | PolicyKind::Gpu => false,
        PolicyKind::Time | PolicyKind::Rule => true,
    }
}

fn has_name(table: &dyn TableLike, name: &str) -> bool {
    table.get("name").and_then(Item::as_str) == Some(name)
}

fn find_or_create<'a>(
    document: &'a mut DocumentMut,
    kind: PolicyKind,
    name: &str,
) -> Result<&'a mut dyn TableLike, EditError> {
    let make = || match is_table_list(kind) {
        true => Item::ArrayOfTables(ArrayOfTables::new()),
        false => {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        }
    };
    let item = document.entry(kind.table()).or_insert_with(make);
    let found: Option<&mut dyn TableLike> = match item {
        Item::ArrayOfTables(list) => {
            let position = list.iter().position(|it| has_name(it, name));
            let position = position.unwrap_or_else(|| {
                let mut table = Table::new();
                table.insert("name", toml_edit::value(name));
                list.push(table);
                list.len().saturating_sub(1)
            });
            list.get_mut(position).map(|it| it as &mut dyn TableLike)
        }
        Item::Value(Value::Array(list)) => find_or_create_inline(list, name),
        Item::Table(tables) => {
            let policy = tables
                .entry(name)
                .or_insert_with(|| Item::Table(Table::new()));
            policy.as_table_like_mut()
        }
        Item::Value(Value::InlineTable(tables)) => {
            let policy = tables
                .entry(name)
                .or_insert_with(|| InlineTable::new().into());
            policy
                .as_inline_table_mut()
                .map(|it| it as &mut dyn TableLike)
        }
        Item::None | Item::Value(_) => None,
    };
    // A text without mistakes has one of these forms.
    found.ok_or_else(|| EditError::AlreadyInvalid(Vec::new()))
}

fn find_or_create_inline<'a>(list: &'a mut Array, name: &str) -> Option<&'a mut dyn TableLike> {
    let is_it = |value: &Value| value.as_inline_table().is_some_and(|it| has_name(it, name));
    let position = list.iter().position(is_it);
    let position = position.unwrap_or_else(|| {
        let mut table = InlineTable::new();
        table.insert("name", name.into());
        list.push(table);
        list.len().saturating_sub(1)
    });
    let table = list.get_mut(position).and_then(Value::as_inline_table_mut);
    table.map(|it| it as &mut dyn TableLike)
}

/// Removes a policy and the comment directly above it.
pub(super) fn remove_policy(
    document: &mut DocumentMut,
    kind: PolicyKind,
    name: &str,
) -> Result<(), EditError> {
    let names = policy_names(document, kind);
    if !names.iter().any(|it| it == name) {
        let what = format!("{} {name:?}", kind.name());
        return Err(not_found(what, name, names.iter().map(String::as_str)));
    }
    let removed = match document.get_mut(kind.table()) {
        Some(Item::ArrayOfTables(list)) => {
            let position = list.iter().position(|it| has_name(it, name));
            position.map(|position| Item::Table(list.remove(position)))
        }
        Some(Item::Value(Value::Array(list))) => {
            list.retain(|it| !it.as_inline_table().is_some_and(|it| has_name(it, name)));
            None
        }
        Some(item) => item.as_table_like_mut().and_then(|it| it.remove(name)),
        None => None,
    };
    if let Some(Item::Table(removed)) = removed
        && let Some(above) = detached_comment(removed.decor())
    {
        keep_comment(document, removed.position(), &above);
    }
    Ok(())
}

/// Keeps a comment that an empty line separates from the table below it: it is about more
/// than this table. The comment moves above the next table, or to the end.
fn keep_comment(document: &mut DocumentMut, position: Option<isize>, above: &str) {
    let mut next: Option<&mut Table> = None;
    let mut left: Vec<&mut Item> = document.iter_mut().map(|(_, item)| item).collect();
    while let Some(item) = left.pop() {
        let tables: Vec<&mut Table> = match item {
            Item::Table(table) => {
                if table.is_implicit() || table.position() <= position {
                    left.extend(table.iter_mut().map(|(_, item)| item));
                    continue;
                }
                vec![table]
            }
            Item::ArrayOfTables(list) => list.iter_mut().collect(),
            Item::None | Item::Value(_) => continue,
        };
        for table in tables {
            let is_after = table.position() > position;
            let is_nearer = next
                .as_ref()
                .is_none_or(|next| table.position() < next.position());
            if is_after && is_nearer {
                next = Some(table);
            }
        }
    }
    match next {
        Some(next) => prepend_comment(next.decor_mut(), above),
        None => {
            let end = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{above}{end}"));
        }
    }
}

/// The names of the policies of a kind.
fn policy_names(document: &DocumentMut, kind: PolicyKind) -> Vec<String> {
    let name = |table: &dyn TableLike| Some(table.get("name")?.as_str()?.to_owned());
    match document.get(kind.table()) {
        Some(Item::ArrayOfTables(list)) => list.iter().filter_map(|it| name(it)).collect(),
        Some(Item::Value(Value::Array(list))) => {
            let tables = list.iter().filter_map(Value::as_inline_table);
            tables.filter_map(|it| name(it)).collect()
        }
        Some(item) => item.as_table_like().map_or_else(Vec::new, |tables| {
            tables.iter().map(|(name, _)| name.to_owned()).collect()
        }),
        None => Vec::new(),
    }
}
