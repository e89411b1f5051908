//! A value that may be unknown, and why. An unknown is never a zero.

use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Why a value that cannot be is none; the value follows. It may change at each poll, so faults
/// are told apart without it.
pub const IMPOSSIBLE: &str = "the driver reports an impossible value";

/// What one question to a driver, a file or a name service gave.
///
/// The kinds stay apart from the sensor to the screen: a table shows the value,
/// `n/a`, `?` or the value's age; JSON shows `null` and the reason beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading<T> {
    /// A value read just now.
    Value(T),
    /// This device or process has no such value.
    Unsupported,
    /// It should have a value, and asking for it failed; says how.
    Failed(String),
    /// The last known value and its age in seconds: nothing newer came.
    Stale(T, u32),
    /// The daemon knows it, and this caller may not see it.
    Withheld,
}

impl<T> Reading<T> {
    /// A value that cannot be, as it came.
    #[must_use]
    pub fn impossible(value: impl Display) -> Self {
        Self::Failed(format!("{IMPOSSIBLE}: {value}"))
    }

    /// The value, if it is fresh and known. Rules decide on this alone.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unsupported | Self::Failed(_) | Self::Stale(..) | Self::Withheld => None,
        }
    }

    /// The value, fresh or stale: for showing, never for deciding.
    #[must_use]
    pub fn last_known(&self) -> Option<&T> {
        match self {
            Self::Value(value) | Self::Stale(value, _) => Some(value),
            Self::Unsupported | Self::Failed(_) | Self::Withheld => None,
        }
    }

    /// How asking for it failed; `None` where it did not.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Value(_) | Self::Unsupported | Self::Stale(..) | Self::Withheld => None,
        }
    }

    /// Why there is no fresh value; `None` where there is one.
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

    /// The same reading of another type.
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

    /// A reading of another type that is unknown for the same reason. What is
    /// known here says nothing about it: that is unsupported.
    #[must_use]
    pub fn because<U>(&self) -> Reading<U> {
        match self {
            Self::Failed(why) => Reading::Failed(why.clone()),
            Self::Withheld => Reading::Withheld,
            Self::Value(_) | Self::Stale(..) | Self::Unsupported => Reading::Unsupported,
        }
    }

    /// What two parts make together, where both are known; as old as the older.
    /// Otherwise the graver of the two unknowns, and of two alike the first: one
    /// that failed, then what is withheld, then what there is none of.
    #[must_use]
    pub fn both<U, V>(
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

    /// The same of two parts of which each may not exist: one that is unsupported
    /// adds nothing.
    #[must_use]
    pub fn either(self, other: Self, make: impl FnOnce(T, T) -> Self) -> Self {
        match (self, other) {
            (told, Self::Unsupported) | (Self::Unsupported, told) => told,
            (one, other) => one.both(other, make),
        }
    }

    /// The same reading, `seconds` later, with nothing newer known.
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
    fn only_a_fresh_value_is_known() {
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
    fn two_parts_are_known_together_only_where_both_are() {
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
            let made = one.clone().both(other.clone(), sum);
            assert_eq!(made, expected, "{one:?} {other:?}");
            // In either order, but for which of two failures is told.
            if one.failure().is_none() || other.failure().is_none() {
                assert_eq!(other.both(one, sum), expected);
            }
        }
    }

    #[test]
    fn a_part_that_does_not_exist_adds_nothing() {
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
            assert_eq!(one.either(other, greater), expected);
        }
    }

    #[test]
    fn ageing_keeps_the_value_and_the_greatest_age() {
        assert_eq!(Reading::Value(7).aged(3), Reading::Stale(7, 3));
        assert_eq!(Reading::Stale(7, 9).aged(3), Reading::Stale(7, 9));
        assert_eq!(Reading::<u8>::Unsupported.aged(3), Reading::Unsupported);
    }
}
