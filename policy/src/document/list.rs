//! Lists of strings in a TOML document. A comment stays with the item before or below
//! it.

use toml_edit::{Array, Decor, RawString, Value};

/// The strings of a list, in order.
pub(crate) fn strings(list: &Array) -> impl Iterator<Item = &str> {
    list.iter().filter_map(Value::as_str)
}

/// Appends a string, formatted like the item before it.
pub(crate) fn push(list: &mut Array, text: &str) {
    let last = list.len().checked_sub(1).and_then(|at| list.get(at));
    let above = last.map(|last| decor_prefix(last.decor()));
    let is_first = above.is_none();
    let above = above.unwrap_or_default();
    let own_line = above.rfind('\n').and_then(|at| above.get(at..));
    let (trailing, end) = split_at_line_end(&list_end(list));
    let new_above = match (trailing.contains('#'), own_line) {
        // The comment behind the last item stays there: its line ends before the new
        // item.
        (true, own_line) => format!("{}{}", trailing.trim_end(), own_line.unwrap_or("\n")),
        (false, Some(own_line)) => own_line.to_owned(),
        (false, None) if is_first => String::new(),
        (false, None) => " ".to_owned(),
    };
    let end = match trailing.contains('#') || end.contains('\n') {
        true => end,
        false => format!("{trailing}{end}"),
    };
    set_end(list, "");
    list.push_formatted(Value::from(text).decorated(new_above, ""));
    set_end(list, &end);
}

/// Removes every item with this text, with the comments behind it and right above it.
/// Returns whether such an item existed.
pub(crate) fn remove(list: &mut Array, text: &str) -> bool {
    let before = list.len();
    while let Some(at) = position(list, text) {
        remove_at(list, at);
    }
    list.len() < before
}

fn position(list: &Array, text: &str) -> Option<usize> {
    list.iter().position(|it| it.as_str() == Some(text))
}

fn remove_at(list: &mut Array, at: usize) {
    let end = list_end(list);
    let above = list.get(at).map(|it| decor_prefix(it.decor()));
    let above = above.unwrap_or_default();
    // A comment on the line of the previous item is about that item.
    let (of_previous, _) = split_at_line_end(&above);
    let kept = match of_previous.contains('#') {
        true => of_previous,
        false => String::new(),
    };
    let is_last = at + 1 == list.len();
    if !is_last {
        list.remove(at);
        let Some(next) = list.get_mut(at) else { return };
        let (_, own) = split_at_line_end(&decor_prefix(next.decor()));
        let own = match (own.is_empty(), split_at_line_end(&above).1) {
            (false, _) => own,
            // The next item was on the line of the removed item, and is now alone on
            // it.
            (true, line) if !line.is_empty() => line
                .rfind('\n')
                .map_or_else(String::new, |at| line[at..].to_owned()),
            (true, _) if at == 0 => above,
            (true, _) => " ".to_owned(),
        };
        next.decor_mut().set_prefix(format!("{kept}{own}"));
        return;
    }
    set_end(list, "");
    list.remove(at);
    if list.is_empty() {
        list.set_trailing_comma(false);
    }
    let (trailing, end) = split_at_line_end(&end);
    let own = match trailing.contains('#') {
        true => String::new(),
        false => trailing,
    };
    let end = match (kept.is_empty(), end.is_empty()) {
        // A comment ends with its line.
        (false, true) => "\n".to_owned(),
        (_, _) => end,
    };
    set_end(list, &format!("{kept}{own}{end}"));
}

/// The text between the last item, with its comma if any, and the end of the list.
fn list_end(list: &Array) -> String {
    let trailing = list.trailing().as_str().unwrap_or_default();
    let last = list.len().checked_sub(1).and_then(|at| list.get(at));
    match last {
        Some(last) if !list.trailing_comma() => {
            let suffix = last.decor().suffix().and_then(RawString::as_str);
            format!("{}{trailing}", suffix.unwrap_or_default())
        }
        Some(_) | None => trailing.to_owned(),
    }
}

fn set_end(list: &mut Array, end: &str) {
    list.set_trailing(end);
    let last = list.len().checked_sub(1);
    let has_comma = list.trailing_comma();
    if let Some(last) = last.and_then(|at| list.get_mut(at))
        && !has_comma
    {
        last.decor_mut().set_suffix("");
    }
}

fn decor_prefix(decor: &Decor) -> String {
    let prefix = decor.prefix().and_then(RawString::as_str);
    prefix.unwrap_or_default().to_owned()
}

/// Splits a text before its first line feed.
fn split_at_line_end(text: &str) -> (String, String) {
    let at = text.find('\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(at);
    (line.to_owned(), rest.to_owned())
}
