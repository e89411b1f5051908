//! How a document is made: each field is written once, with its name, its type
//! and where its value comes from. A reading gives its value, or `null` and the
//! reason for it.

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent};
use std::collections::BTreeMap;

/// Defines a document: its fields in their order, the function that makes it,
/// and `reasons` at its end.
macro_rules! document {
    (
        $(#[$about:meta])*
        $name:ident($($source:ident: $of:ty),+) {
            $($(#[$doc:meta])* $field:ident: $type:ty = $value:expr,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[allow(
            missing_docs,
            reason = "the names are the documented JSON fields; units are in them"
        )]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
            /// Why a field is `null`.
            pub reasons: std::collections::BTreeMap<&'static str, String>,
        }

        impl $name {
            /// The names of its fields in their order, but for `reasons`.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),+];

            pub(super) fn new($($source: $of),+) -> Self {
                let mut reasons = $crate::document::fields::Reasons::default();
                Self {
                    $($field: $crate::document::fields::Field::<$type>::take(
                        $value,
                        stringify!($field),
                        &mut reasons,
                    ),)+
                    reasons: reasons.0,
                }
            }
        }
    };
}

pub(super) use document;

/// Why fields are `null`, collected while their values are taken.
#[derive(Default)]
pub(super) struct Reasons(pub(super) BTreeMap<&'static str, String>);

/// What a field of type `T` can be made of.
pub(super) trait Field<T> {
    /// Its value; where that is unknown, the reason goes to the others.
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

/// What a reading says of one part of its value.
pub(super) fn part<T, U>(whole: &Reading<T>, part: impl FnOnce(&T) -> U) -> Reading<U> {
    within(whole, |value| Reading::Value(part(value)))
}

/// What is read within something that may itself be unknown.
pub(super) fn within<T, U>(outer: &Reading<T>, inner: impl FnOnce(&T) -> Reading<U>) -> Reading<U> {
    match outer {
        Reading::Value(value) => inner(value),
        Reading::Stale(value, seconds) => inner(value).aged(*seconds),
        Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => outer.because(),
    }
}

// The numbers; their units are in the names of the fields.

pub(super) fn bytes(reading: &Reading<Bytes>) -> Reading<u64> {
    part(reading, |bytes| bytes.0)
}

pub(super) fn mib(reading: &Reading<Bytes>) -> Reading<u64> {
    part(reading, |bytes| bytes.as_mib())
}

pub(super) fn percent(reading: &Reading<Percent>) -> Reading<u32> {
    part(reading, |percent| percent.0)
}

pub(super) fn celsius(reading: &Reading<Celsius>) -> Reading<i32> {
    part(reading, |celsius| celsius.0)
}

pub(super) fn megahertz(reading: &Reading<Megahertz>) -> Reading<u32> {
    part(reading, |megahertz| megahertz.0)
}

pub(super) fn watts(reading: &Reading<Milliwatts>) -> Reading<f64> {
    part(reading, |power| power.as_watts())
}
