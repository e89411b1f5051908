//! Edits a TOML text that people write, and keeps its comments, order and formatting.

pub(crate) mod json;
pub(crate) mod list;

use toml_edit::{Array, Decor, DocumentMut, Item, RawString, Table, TableLike, Value};

const BYTE_ORDER_MARK: &str = "\u{feff}";
const CRLF: &str = "\r\n";

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
        let after = restore_line_endings(self.before, &format!("{header}{}", self.document));
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
    let (comment, _) = above.rsplit_once("\n\n")?;
    comment.contains('#').then(|| format!("{comment}\n"))
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

/// Converts what a person typed for a key to a TOML value: `alice,bob` to a list, `90m` to a
/// string, `8` to a number. Returns the first form that is valid for the key, or else the most
/// likely one.
pub(crate) fn parse_typed(typed: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let typed = typed.trim();
    let forms = possible_forms(typed);
    let right = forms.iter().find(|way| is_right(way)).cloned();
    let is_list = typed.contains(',');
    right
        .or_else(|| if is_list { forms.last() } else { forms.first() }.cloned())
        .unwrap_or_else(|| typed.into())
}

fn possible_forms(typed: &str) -> Vec<Value> {
    let plain = typed.parse::<Value>().ok().filter(is_not_datetime);
    let items = || typed.split(',').map(str::trim);
    let number = |item: &str| item.parse::<u32>().ok().map(i64::from);
    let numbers: Array = items()
        .map(|item| number(item).map_or_else(|| Value::from(item), Value::from))
        .collect();
    let texts: Array = items().collect();
    let text = Some(Value::from(typed));
    let forms = [plain, text, Some(numbers.into()), Some(texts.into())];
    forms.into_iter().flatten().map(without_decor).collect()
}

/// A time of day is written as a string: TOML 1.0 has no times without seconds.
fn is_not_datetime(value: &Value) -> bool {
    !value.is_datetime()
}

/// The value without its surrounding whitespace and comments.
fn without_decor(mut value: Value) -> Value {
    value.decor_mut().clear();
    value
}

/// Returns the lines of `after`, which end in a line feed only, with their endings from
/// `before`: a TOML document keeps one kind of line ending only. Each old line keeps its
/// ending, and a new line gets the most frequent one.
fn restore_line_endings(before: &str, after: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let long = old.iter().filter(|line| line.ends_with(CRLF)).count();
    if long == 0 {
        return after.to_owned();
    }
    let usual = if long * 2 > old.len() { CRLF } else { "\n" };
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let is_same = |(old, new): &(&&str, &&str)| strip_line_ending(old) == strip_line_ending(new);
    let first = old.iter().zip(&new).take_while(is_same).count();
    let (old_rest, new_rest) = (&old[first..], &new[first..]);
    let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let last = pairs.take_while(is_same).count();
    let mut restored = String::with_capacity(after.len() + new.len());
    for (position, line) in new.iter().enumerate() {
        let from_end = new.len() - position;
        let same = match (position < first, from_end <= last) {
            (true, _) => Some(old[position]),
            (false, true) => Some(old[old.len() - from_end]),
            (false, false) => None,
        };
        let end = match same {
            Some(old) if old.ends_with(CRLF) => CRLF,
            Some(_) => "\n",
            None => usual,
        };
        restored.push_str(strip_line_ending(line));
        restored.push_str(if line.ends_with('\n') { end } else { "" });
    }
    restored
}

fn strip_line_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}
