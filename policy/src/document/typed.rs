//! What was typed for a key, as TOML would have it: `alice,bob` for a list, `90m` for
//! a text, `8` for a number. Which it is, whoever reads the key says.

use toml_edit::{Array, Value};

/// The first way to write it that is right for its key, or else the one that was most
/// likely meant.
pub(crate) fn value(typed: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let typed = typed.trim();
    let ways = ways(typed);
    let right = ways.iter().find(|way| is_right(way)).cloned();
    let is_list = typed.contains(',');
    right
        .or_else(|| if is_list { ways.last() } else { ways.first() }.cloned())
        .unwrap_or_else(|| typed.into())
}

/// How it could be written.
fn ways(typed: &str) -> Vec<Value> {
    let as_it_is = typed.parse::<Value>().ok().filter(is_plain);
    let items = || typed.split(',').map(str::trim);
    let number = |item: &str| item.parse::<u32>().ok().map(i64::from);
    let numbers: Array = items()
        .map(|item| number(item).map_or_else(|| Value::from(item), Value::from))
        .collect();
    let texts: Array = items().collect();
    let text = Some(Value::from(typed));
    let ways = [as_it_is, text, Some(numbers.into()), Some(texts.into())];
    ways.into_iter().flatten().map(bare).collect()
}

/// A time of the day is written as a text: TOML 1.0 has no times without seconds.
fn is_plain(value: &Value) -> bool {
    !value.is_datetime()
}

/// Without what stood around it.
fn bare(mut value: Value) -> Value {
    value.decor_mut().clear();
    value
}
