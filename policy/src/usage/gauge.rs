//! A value that goes up and down, over an interval.

use gpukill_proto::reading::Reading;

/// The known part of a value over an interval. Unknown time does not count as 0: it is
/// not part of the mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauge {
    /// The highest known value; `None` when there was none.
    pub max: Option<u64>,
    /// The time in which the value was known.
    pub known_ms: u64,
    /// The sum of value × milliseconds while it was known.
    pub total: u128,
    /// Whether a reading failed or was stale. A device or process without such a value
    /// leaves this unset.
    pub is_failed: bool,
}

impl Gauge {
    /// Adds a reading that held for `ms` milliseconds.
    pub fn add<T>(&mut self, reading: &Reading<T>, ms: u64, number: impl Fn(&T) -> u64) {
        match reading {
            Reading::Value(value) => {
                let value = number(value);
                self.max = self.max.max(Some(value));
                self.known_ms = self.known_ms.saturating_add(ms);
                let product = u128::from(value).saturating_mul(u128::from(ms));
                self.total = self.total.saturating_add(product);
            }
            Reading::Unsupported => {}
            Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => self.is_failed = true,
        }
    }

    /// Adds a later interval.
    pub fn merge(&mut self, later: &Self) {
        self.max = self.max.max(later.max);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.total = self.total.saturating_add(later.total);
        self.is_failed |= later.is_failed;
    }

    /// Returns the rounded mean over the known time; where the value was known only at
    /// a moment, that value.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        let known = u128::from(self.known_ms);
        match (self.total + known / 2).checked_div(known) {
            Some(mean) => u64::try_from(mean).ok(),
            None => self.max,
        }
    }

    /// Returns the result of `value` as a reading.
    pub fn reading<T>(&self, value: impl Fn(&Self) -> Option<T>) -> Reading<T> {
        match value(self) {
            Some(value) => Reading::Value(value),
            None if self.is_failed => Reading::Failed("the sample has no fresh value".into()),
            None => Reading::Unsupported,
        }
    }
}
