//! The macro for JSON documents: each field is written once, with its name, type and source. A
//! reading gives its value, or `null` and the reason.

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent};
use std::collections::BTreeMap;

/// Defines a document: its fields in order with their schema, its constructor, and the field
/// `reasons` at its end, which a `plain` document does not have. A document of one source is made
/// with `From` too.
macro_rules! document {
    (
        $(#[$($about:tt)*])*
        plain $name:ident($($source:ident: $of:ty),+) {
            $($(#[$($doc:tt)*])* $field:ident: $type:ty $(as $form:ty)? = $value:expr,)+
        }
    ) => {
        $crate::json::schema::described! {
            $(#[$($about)*])*
            pub struct $name {
                $($(#[$($doc)*])* pub $field: $type $(as $form)?,)+
            }
        }

        impl $name {
            pub(super) fn new($($source: $of),+) -> Self {
                Self { $($field: $value,)+ }
            }
        }

        $crate::json::fields::document! { @from $name, $($source: $of),+ }
    };
    (@from $name:ident, $source:ident: $of:ty) => {
        impl From<$of> for $name {
            fn from($source: $of) -> Self {
                Self::new($source)
            }
        }
    };
    (@from $name:ident, $($source:ident: $of:ty),+) => {};
    (
        $(#[$($about:tt)*])*
        $name:ident($($source:ident: $of:ty),+) {
            $($(#[$($doc:tt)*])* $field:ident: $type:ty $(as $form:ty)? = $value:expr,)+
        }
    ) => {
        $crate::json::schema::described! {
            $(#[$($about)*])*
            pub struct $name {
                $($(#[$($doc)*])* pub $field: $type $(as $form)?,)+
                /// Why fields are `null`.
                pub reasons: std::collections::BTreeMap<&'static str, String>,
            }
        }

        impl $name {
            /// The names of the fields in order, without `reasons`.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),+];

            pub(super) fn new($($source: $of),+) -> Self {
                let mut reasons = $crate::json::fields::Reasons::default();
                Self {
                    $($field: $crate::json::fields::Field::<$type>::take(
                        $value,
                        stringify!($field),
                        &mut reasons,
                    ),)+
                    reasons: reasons.0,
                }
            }
        }

        $crate::json::fields::document! { @from $name, $($source: $of),+ }
    };
}

pub(super) use document;

/// Why fields are `null`, collected while their values are taken.
#[derive(Default)]
pub(super) struct Reasons(pub(super) BTreeMap<&'static str, String>);

/// Conversion into a field of type `T`.
pub(super) trait Field<T> {
    /// The value of the field; adds the reason if there is none.
    fn take(self, field: &'static str, reasons: &mut Reasons) -> T;
}

impl<T> Field<T> for T {
    fn take(self, _: &'static str, _: &mut Reasons) -> T {
        self
    }
}

impl<T> Field<Option<T>> for Reading<T> {
    fn take(self, field: &'static str, reasons: &mut Reasons) -> Option<T> {
        if let Some(reason) = self.reason() {
            reasons.0.insert(field, reason);
        }
        match self {
            Reading::Value(value) => Some(value),
            Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
                None
            }
        }
    }
}

/// A known "none" is `null` without a reason.
impl<T> Field<Option<T>> for Reading<Option<T>> {
    fn take(self, field: &'static str, reasons: &mut Reasons) -> Option<T> {
        Field::<Option<Option<T>>>::take(self, field, reasons).flatten()
    }
}

/// Converts the value of a reading by reference.
pub(super) fn map_ref<T, U>(whole: &Reading<T>, part: impl FnOnce(&T) -> U) -> Reading<U> {
    and_then_ref(whole, |value| Reading::Value(part(value)))
}

/// Reads a part of a value that may itself be unknown.
pub(super) fn and_then_ref<T, U>(
    outer: &Reading<T>,
    inner: impl FnOnce(&T) -> Reading<U>,
) -> Reading<U> {
    match outer {
        Reading::Value(value) => inner(value),
        Reading::Stale(value, seconds) => inner(value).aged(*seconds),
        Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => outer.as_unknown(),
    }
}

/// The documents of a list.
pub(super) fn documents<'a, S, D: From<&'a S>>(sources: &'a [S]) -> Vec<D> {
    sources.iter().map(D::from).collect()
}

// Numbers; the unit is in the name of the field.

pub(super) fn bytes(reading: &Reading<Bytes>) -> Reading<u64> {
    map_ref(reading, |bytes| bytes.0)
}

pub(super) fn mib(reading: &Reading<Bytes>) -> Reading<u64> {
    map_ref(reading, |bytes| bytes.as_mib())
}

pub(super) fn percent(reading: &Reading<Percent>) -> Reading<u32> {
    map_ref(reading, |percent| percent.0)
}

pub(super) fn celsius(reading: &Reading<Celsius>) -> Reading<i32> {
    map_ref(reading, |celsius| celsius.0)
}

pub(super) fn megahertz(reading: &Reading<Megahertz>) -> Reading<u32> {
    map_ref(reading, |megahertz| megahertz.0)
}

pub(super) fn watts(reading: &Reading<Milliwatts>) -> Reading<f64> {
    map_ref(reading, |power| power.as_watts())
}
