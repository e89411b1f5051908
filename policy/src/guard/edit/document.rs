//! Values in a TOML document, with the comments around them.

use toml_edit::{Decor, Item, RawString, TableLike, Value};

/// Sets a key. A comment behind an old value stays.
pub(super) fn set_value(table: &mut dyn TableLike, name: &str, mut value: Value) {
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
pub(super) fn remove_key(table: &mut dyn TableLike, name: &str) -> bool {
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
pub(super) fn loose(decor: &Decor) -> Option<String> {
    let above = decor.prefix().and_then(RawString::as_str)?;
    let (loose, _) = above.rsplit_once("\n\n")?;
    loose.contains('#').then(|| format!("{loose}\n"))
}

/// Lets this stand above what stands there already.
pub(super) fn put_above(decor: &mut Decor, above: &str) {
    let own = decor
        .prefix()
        .and_then(RawString::as_str)
        .unwrap_or_default();
    let own = own.to_owned();
    let gap = if own.starts_with('\n') { "" } else { "\n" };
    decor.set_prefix(format!("{above}{gap}{own}"));
}
