//! Parses JSON without duplicate keys. A usual parser drops one of two equal keys, and nobody
//! knows which was meant.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A JSON value without duplicate keys.
pub(super) struct UniqueKeysJson(pub(super) Value);

impl<'de> Deserialize<'de> for UniqueKeysJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor).map(Self)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("it is not a number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueKeysJson(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            // Checked here, so that the position in the error is that of the key.
            if table.contains_key(&name) {
                return Err(A::Error::custom(format!("the key {name:?} is there twice")));
            }
            let UniqueKeysJson(value) = entries.next_value()?;
            table.insert(name, value);
        }
        Ok(Value::Object(table))
    }
}
