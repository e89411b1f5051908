//! A value that may be unknown, and why. An unknown is never a zero.

use serde::{Deserialize, Serialize};

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
    fn ageing_keeps_the_value_and_the_greatest_age() {
        assert_eq!(Reading::Value(7).aged(3), Reading::Stale(7, 3));
        assert_eq!(Reading::Stale(7, 9).aged(3), Reading::Stale(7, 9));
        assert_eq!(Reading::<u8>::Unsupported.aged(3), Reading::Unsupported);
    }
}
