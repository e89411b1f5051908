//! Maps written as lists of pairs: their keys are not strings, and some formats allow no
//! other keys. And structs written as lists of fields: there are thousands of some, and the
//! names of their fields would take most of the saved state.

use gpukill_proto::collect::IntoMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map)
}

pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
    Ok(pairs.into_iter().into_map())
}

/// For maps with shared keys.
pub(crate) mod shared {
    use super::*;
    use std::sync::Arc;

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<Arc<K>, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map.iter().map(|(key, value)| (key.as_ref(), value)))
    }

    pub(crate) fn deserialize<'de, K, V, D>(
        deserializer: D,
    ) -> Result<BTreeMap<Arc<K>, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
        let shared = pairs.into_iter().map(|(key, value)| (Arc::new(key), value));
        Ok(shared.into_map())
    }
}

/// Implements `Serialize` for a struct as the list of its fields, in the order of their
/// declaration. A derived `Deserialize` reads both that list and named fields.
macro_rules! serialize_as_list {
    ($type:ident $(<$generic:ident>)? { $($field:ident),+ }) => {
        impl $(<$generic: ::serde::Serialize>)? ::serde::Serialize for $type $(<$generic>)? {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field),+ } = self;
                ::serde::Serialize::serialize(&($($field,)+), serializer)
            }
        }
    };
}

pub(crate) use serialize_as_list;
