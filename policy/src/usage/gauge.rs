//! A value that goes up and down, over a stretch of time.

use gpukill_proto::reading::Reading;

/// What is known of a value over a stretch of time. What was not known of it is
/// no 0: it is no part of the mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauge {
    /// The highest value that was known; `None` when none was.
    pub most: Option<u64>,
    /// For how long it was known.
    pub known_ms: u64,
    /// The sum of value × milliseconds while it was known.
    pub total: u128,
    /// Whether it should have been known, and was not: it failed, or was old. A
    /// device or process that has no such value leaves this unset.
    pub is_failed: bool,
}

impl Gauge {
    /// Adds a reading that held for so long.
    pub fn add<T>(&mut self, reading: &Reading<T>, ms: u64, number: impl Fn(&T) -> u64) {
        match reading {
            Reading::Value(value) => {
                let value = number(value);
                self.most = self.most.max(Some(value));
                self.known_ms = self.known_ms.saturating_add(ms);
                let product = u128::from(value).saturating_mul(u128::from(ms));
                self.total = self.total.saturating_add(product);
            }
            Reading::Unsupported => {}
            Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => self.is_failed = true,
        }
    }

    /// Adds what came after.
    pub fn merge(&mut self, later: &Self) {
        self.most = self.most.max(later.most);
        self.known_ms = self.known_ms.saturating_add(later.known_ms);
        self.total = self.total.saturating_add(later.total);
        self.is_failed |= later.is_failed;
    }

    /// The mean while it was known, rounded; where it was known for no time, only
    /// at a moment, the value then.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        let known = u128::from(self.known_ms);
        match (self.total + known / 2).checked_div(known) {
            Some(mean) => u64::try_from(mean).ok(),
            None => self.most,
        }
    }

    /// This as a reading: of what `value` makes of it.
    pub fn reading<T>(&self, value: impl Fn(&Self) -> Option<T>) -> Reading<T> {
        match value(self) {
            Some(value) => Reading::Value(value),
            None if self.is_failed => {
                Reading::Failed("there was no fresh value when the sample was taken".into())
            }
            None => Reading::Unsupported,
        }
    }
}
