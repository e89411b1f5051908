//! Edits a TOML text that people write, and keeps its comments, order and formatting.

pub(crate) mod json;
mod line_endings;
pub(crate) mod list;
pub(crate) mod typed_value;

use toml_edit::{Decor, DocumentMut, Item, RawString, Table, TableLike, Value};

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A TOML text that is being changed.
pub(crate) struct EditedDocument<'a> {
    /// Byte order mark of some editors; the document does not keep it.
    byte_order_mark: &'static str,
    before: &'a str,
    /// The document after the changes so far.
    pub(crate) document: DocumentMut,
}

impl<'a> EditedDocument<'a> {
    /// Returns `None` where the text is not TOML.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (mark, before) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => (BYTE_ORDER_MARK, rest),
            None => ("", text),
        };
        let document = before.parse().ok()?;
        Some(Self {
            byte_order_mark: mark,
            before,
            document,
        })
    }

    /// Returns the changed text. Where the text was empty, `header` precedes it.
    pub(crate) fn render(self, header: &str) -> String {
        let is_new = self.before.trim().is_empty();
        let header = if is_new { header } else { "" };
        let after =
            line_endings::restore_line_endings(self.before, &format!("{header}{}", self.document));
        format!("{}{after}", self.byte_order_mark)
    }
}

/// Returns the table at this path (`a.b`), which is created where it is missing.
/// Returns `None` where the path holds something else.
pub(crate) fn ensure_table<'a>(
    document: &'a mut DocumentMut,
    path: &str,
) -> Option<&'a mut dyn TableLike> {
    let (tables, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for name in tables.split('.').filter(|name| !name.is_empty()) {
        if at.get(name).is_none() {
            let mut table = Table::new();
            // It needs no header of its own.
            table.set_implicit(true);
            at.insert(name, Item::Table(table));
        }
        at = at.get_mut(name)?.as_table_like_mut()?;
    }
    if at.get(last).is_none() {
        at.insert(last, Item::Table(Table::new()));
    }
    at.get_mut(last)?.as_table_like_mut()
}

/// Returns the table at this path where it exists.
pub(crate) fn existing_table<'a>(
    document: &'a mut DocumentMut,
    path: &str,
) -> Option<&'a mut dyn TableLike> {
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for name in path.split('.') {
        at = at.get_mut(name)?.as_table_like_mut()?;
    }
    Some(at)
}

/// Sets a key. A comment behind the old value stays.
pub(crate) fn set_value(table: &mut dyn TableLike, name: &str, mut value: Value) {
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(name, Item::Value(value));
        }
    }
}

/// Removes a key with the comment right above it. Returns whether the key existed.
pub(crate) fn remove_key(table: &mut dyn TableLike, name: &str) -> bool {
    let Some((key, _)) = table.get_key_value(name) else {
        return false;
    };
    let above = detached_comment(key.leaf_decor());
    let after = table
        .iter()
        .map(|(name, _)| name.to_owned())
        .skip_while(|it| it != name);
    let next = after
        .skip(1)
        .find(|name| table.get(name).is_some_and(Item::is_value));
    table.remove(name);
    // A comment that an empty line separates from the key is not about this key alone.
    if let (Some(above), Some(next)) = (above, next)
        && let Some(mut key) = table.key_mut(&next)
    {
        prepend_comment(key.leaf_decor_mut(), &above);
    }
    true
}

/// The part of the comment above an item that an empty line separates from it.
pub(crate) fn detached_comment(decor: &Decor) -> Option<String> {
    let above = decor.prefix().and_then(RawString::as_str)?;
    let (loose, _) = above.rsplit_once("\n\n")?;
    loose.contains('#').then(|| format!("{loose}\n"))
}

/// Inserts `above` before the existing prefix.
pub(crate) fn prepend_comment(decor: &mut Decor, above: &str) {
    let own = decor
        .prefix()
        .and_then(RawString::as_str)
        .unwrap_or_default();
    let own = own.to_owned();
    let gap = if own.starts_with('\n') { "" } else { "\n" };
    decor.set_prefix(format!("{above}{gap}{own}"));
}
