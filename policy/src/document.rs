//! A TOML text that people write: whatever is changed of it, its comments, its order and
//! its form stay.

pub(crate) mod list;

pub(crate) mod typed;

pub(crate) mod json;

mod ends;

use toml_edit::{Decor, DocumentMut, Item, RawString, Table, TableLike, Value};

/// The byte order mark.
const MARK: &str = "\u{feff}";

/// A text that is being changed.
pub(crate) struct Text<'a> {
    /// A mark of some editors, which the document does not keep.
    mark: &'static str,
    before: &'a str,
    /// What becomes of it.
    pub(crate) document: DocumentMut,
}

impl<'a> Text<'a> {
    /// `None` where it is no TOML.
    pub(crate) fn open(text: &'a str) -> Option<Self> {
        let (mark, before) = match text.strip_prefix(MARK) {
            Some(rest) => (MARK, rest),
            None => ("", text),
        };
        let document = before.parse().ok()?;
        Some(Self {
            mark,
            before,
            document,
        })
    }

    /// As it is written then; where there was nothing, below this header.
    pub(crate) fn written(self, header: &str) -> String {
        let is_new = self.before.trim().is_empty();
        let header = if is_new { header } else { "" };
        let after = ends::restored(self.before, &format!("{header}{}", self.document));
        format!("{}{after}", self.mark)
    }
}

/// The table at this path, `a.b`, made where there is none; `None` where something else
/// stands there.
pub(crate) fn table<'a>(
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

/// The same, if it is there.
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

/// Sets a key. A comment behind an old value stays.
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

/// Removes a key with the comment that stands right above it; whether it was there.
pub(crate) fn remove_key(table: &mut dyn TableLike, name: &str) -> bool {
    let Some((key, _)) = table.get_key_value(name) else {
        return false;
    };
    let above = loose(key.leaf_decor());
    let after = table
        .iter()
        .map(|(name, _)| name.to_owned())
        .skip_while(|it| it != name);
    let next = after
        .skip(1)
        .find(|name| table.get(name).is_some_and(Item::is_value));
    table.remove(name);
    // What stood there with an empty line below it was not about this key alone.
    if let (Some(above), Some(next)) = (above, next)
        && let Some(mut key) = table.key_mut(&next)
    {
        put_above(key.leaf_decor_mut(), &above);
    }
    true
}

/// The part of what stands above something that an empty line divides from it.
pub(crate) fn loose(decor: &Decor) -> Option<String> {
    let above = decor.prefix().and_then(RawString::as_str)?;
    let (loose, _) = above.rsplit_once("\n\n")?;
    loose.contains('#').then(|| format!("{loose}\n"))
}

/// Lets this stand above what stands there already.
pub(crate) fn put_above(decor: &mut Decor, above: &str) {
    let own = decor
        .prefix()
        .and_then(RawString::as_str)
        .unwrap_or_default();
    let own = own.to_owned();
    let gap = if own.starts_with('\n') { "" } else { "\n" };
    decor.set_prefix(format!("{above}{gap}{own}"));
}
