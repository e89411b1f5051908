//! Converts what a person typed for a key to a TOML value: `alice,bob` to a list, `90m`
//! to a string, `8` to a number. The reader of the key decides which form is valid.

use toml_edit::{Array, Value};

/// Returns the first form that is valid for the key, or else the most likely one.
pub(crate) fn parse_typed(typed: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let typed = typed.trim();
    let ways = possible_forms(typed);
    let right = ways.iter().find(|way| is_right(way)).cloned();
    let is_list = typed.contains(',');
    right
        .or_else(|| if is_list { ways.last() } else { ways.first() }.cloned())
        .unwrap_or_else(|| typed.into())
}

/// The possible forms of the typed text.
fn possible_forms(typed: &str) -> Vec<Value> {
    let as_it_is = typed.parse::<Value>().ok().filter(is_not_datetime);
    let items = || typed.split(',').map(str::trim);
    let number = |item: &str| item.parse::<u32>().ok().map(i64::from);
    let numbers: Array = items()
        .map(|item| number(item).map_or_else(|| Value::from(item), Value::from))
        .collect();
    let texts: Array = items().collect();
    let text = Some(Value::from(typed));
    let ways = [as_it_is, text, Some(numbers.into()), Some(texts.into())];
    ways.into_iter().flatten().map(without_decor).collect()
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
