//! A value that may be unknown, with the reason. An unknown value is never a zero.

use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// The beginning of the failure for a value that cannot be true; the value itself follows. The
/// value may change at each poll, so faults are compared without it.
pub const IMPOSSIBLE: &str = "the driver reports an impossible value";

/// The result of one query of a driver, a file or a name service.
///
/// The variants stay distinct from the sensor to the screen: a table shows the value, `n/a`,
/// `?` or the value's age; JSON shows `null` and the reason beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading<T> {
    /// A value that was just read.
    Value(T),
    /// The device or process has no such value.
    Unsupported,
    /// The value should exist, and reading it failed for this reason.
    Failed(String),
    /// The last known value and its age in seconds: no newer value exists.
    Stale(T, u32),
    /// The daemon knows the value, and the caller may not see it.
    Withheld,
}

impl<T> Reading<T> {
    /// A failed reading for a value that cannot be true.
    #[must_use]
    pub fn impossible(value: impl Display) -> Self {
        Self::Failed(format!("{IMPOSSIBLE}: {value}"))
    }

    /// The value, if it is fresh and known. Rules decide on this value alone.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unsupported | Self::Failed(_) | Self::Stale(..) | Self::Withheld => None,
        }
    }

    /// The value, fresh or stale: for display, never for decisions.
    #[must_use]
    pub fn last_known(&self) -> Option<&T> {
        match self {
            Self::Value(value) | Self::Stale(value, _) => Some(value),
            Self::Unsupported | Self::Failed(_) | Self::Withheld => None,
        }
    }

    /// The reason why reading the value failed; `None` for every other variant.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Value(_) | Self::Unsupported | Self::Stale(..) | Self::Withheld => None,
        }
    }

    /// The reason why there is no fresh value; `None` if there is one.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Value(_) => None,
            Self::Unsupported => Some("unsupported".into()),
            Self::Failed(why) => Some(format!("failed: {why}")),
            Self::Stale(_, seconds) => Some(format!("stale: {seconds} s")),
            Self::Withheld => Some("withheld: it belongs to another user".into()),
        }
    }

    /// Converts the value, fresh or stale.
    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(change(value)),
            Self::Unsupported => Reading::Unsupported,
            Self::Failed(why) => Reading::Failed(why),
            Self::Stale(value, seconds) => Reading::Stale(change(value), seconds),
            Self::Withheld => Reading::Withheld,
        }
    }

    /// A reading of another type that is unknown for the same reason. A known value gives
    /// `Unsupported`: it says nothing about the other.
    #[must_use]
    pub fn as_unknown<U>(&self) -> Reading<U> {
        match self {
            Self::Failed(why) => Reading::Failed(why.clone()),
            Self::Withheld => Reading::Withheld,
            Self::Value(_) | Self::Stale(..) | Self::Unsupported => Reading::Unsupported,
        }
    }

    /// Combines two readings. The result is known if both are, and as old as the older one.
    /// Otherwise it is the more severe of the two unknowns: failed, then withheld, then
    /// unsupported; of two failures the first.
    #[must_use]
    pub fn combine<U, V>(
        self,
        other: Reading<U>,
        make: impl FnOnce(T, U) -> Reading<V>,
    ) -> Reading<V> {
        match (self, other) {
            (Self::Failed(why), _) | (_, Reading::Failed(why)) => Reading::Failed(why),
            (Self::Withheld, _) | (_, Reading::Withheld) => Reading::Withheld,
            (Self::Unsupported, _) | (_, Reading::Unsupported) => Reading::Unsupported,
            (Self::Value(one), Reading::Value(other)) => make(one, other),
            (Self::Stale(one, age), Reading::Value(other))
            | (Self::Value(one), Reading::Stale(other, age)) => make(one, other).aged(age),
            (Self::Stale(one, age), Reading::Stale(other, older)) => {
                make(one, other).aged(age.max(older))
            }
        }
    }

    /// Combines two readings, each of which may not exist: an unsupported one is ignored.
    #[must_use]
    pub fn combine_supported(self, other: Self, make: impl FnOnce(T, T) -> Self) -> Self {
        match (self, other) {
            (known, Self::Unsupported) | (Self::Unsupported, known) => known,
            (one, other) => one.combine(other, make),
        }
    }

    /// The reading of another source where this one is unsupported. A failed reading is not replaced.
    #[must_use]
    pub fn or_if_unsupported(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Unsupported => other(),
            Self::Value(_) | Self::Failed(_) | Self::Stale(..) | Self::Withheld => self,
        }
    }

    /// The same reading `seconds` later, without a newer value.
    #[must_use]
    pub fn aged(self, seconds: u32) -> Self {
        match self {
            Self::Value(value) => Self::Stale(value, seconds),
            Self::Stale(value, before) => Self::Stale(value, before.max(seconds)),
            Self::Unsupported | Self::Failed(_) | Self::Withheld => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fresh_values_are_known() {
        assert_eq!(Reading::Value(0).known(), Some(&0));
        for unknown in [
            Reading::Unsupported,
            Reading::Failed("x".into()),
            Reading::Stale(0, 12),
            Reading::Withheld,
        ] {
            assert_eq!(unknown.known(), None, "{unknown:?}");
            assert!(unknown.reason().is_some(), "{unknown:?}");
        }
    }

    #[test]
    fn combination_needs_both_values() {
        let failed = |why: &str| Reading::Failed(why.to_owned());
        let cases = [
            (Reading::Value(2), Reading::Value(3), Reading::Value(5)),
            (
                Reading::Value(2),
                Reading::Stale(3, 9),
                Reading::Stale(5, 9),
            ),
            (
                Reading::Stale(2, 7),
                Reading::Value(3),
                Reading::Stale(5, 7),
            ),
            (
                Reading::Stale(2, 7),
                Reading::Stale(3, 9),
                Reading::Stale(5, 9),
            ),
            (Reading::Value(200), Reading::Value(100), failed("too much")),
            (
                Reading::Stale(200, 7),
                Reading::Value(100),
                failed("too much"),
            ),
            (
                Reading::Value(2),
                Reading::Unsupported,
                Reading::Unsupported,
            ),
            (Reading::Stale(2, 7), Reading::Withheld, Reading::Withheld),
            (Reading::Unsupported, Reading::Withheld, Reading::Withheld),
            (failed("x"), Reading::Unsupported, failed("x")),
            (Reading::Withheld, failed("x"), failed("x")),
            (failed("x"), failed("y"), failed("x")),
        ];
        let sum = |one: u8, other: u8| {
            let sum = one.checked_add(other);
            sum.map_or_else(|| Reading::Failed("too much".into()), Reading::Value)
        };
        for (one, other, expected) in cases {
            let made = one.clone().combine(other.clone(), sum);
            assert_eq!(made, expected, "{one:?} {other:?}");
            // The order matters only for which of two failures is reported.
            if one.failure().is_none() || other.failure().is_none() {
                assert_eq!(other.combine(one, sum), expected);
            }
        }
    }

    #[test]
    fn unsupported_part_is_ignored() {
        let failed = || Reading::Failed("x".to_owned());
        let greater = |one: u8, other: u8| Reading::Value(one.max(other));
        let cases = [
            (Reading::Value(2), Reading::Unsupported, Reading::Value(2)),
            (Reading::Unsupported, Reading::Value(2), Reading::Value(2)),
            (
                Reading::Unsupported,
                Reading::Unsupported,
                Reading::Unsupported,
            ),
            (
                Reading::Stale(2, 7),
                Reading::Unsupported,
                Reading::Stale(2, 7),
            ),
            (Reading::Unsupported, failed(), failed()),
            (Reading::Value(2), failed(), failed()),
            (Reading::Value(2), Reading::Value(3), Reading::Value(3)),
        ];
        for (one, other, expected) in cases {
            assert_eq!(one.combine_supported(other, greater), expected);
        }
    }

    #[test]
    fn aging_keeps_the_greatest_age() {
        assert_eq!(Reading::Value(7).aged(3), Reading::Stale(7, 3));
        assert_eq!(Reading::Stale(7, 9).aged(3), Reading::Stale(7, 9));
        assert_eq!(Reading::<u8>::Unsupported.aged(3), Reading::Unsupported);
    }
}
