//! Decides whether a backend is slow, and until when: single timely answers between slow ones do
//! not end the state.

use std::time::Duration;

/// The duration of a slow answer. Readings of that age are shown with their age; a healthy driver
/// of eight GPUs answers within milliseconds.
const SLOW_ANSWER: Duration = Duration::from_secs(3);

/// This many timely answers in a row end the state.
const QUICK_ANSWERS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct ResponseTime {
    /// The slowest answer since the backend became slow.
    slowest: Option<Duration>,
    quick: u32,
}

impl ResponseTime {
    /// Records the duration of an answer. `is_usual`: the backend had answered before; the first
    /// answer after a failure may be slow because the driver wakes its devices.
    pub(super) fn record(&mut self, took: Duration, is_usual: bool) {
        if took < SLOW_ANSWER {
            self.quick += 1;
            if self.quick >= QUICK_ANSWERS {
                self.slowest = None;
            }
        } else if is_usual || self.slowest.is_some() {
            self.quick = 0;
            self.slowest = self.slowest.max(Some(took));
        }
    }

    /// The duration of the slowest answer, while the backend is slow.
    pub(super) fn slowest(&self) -> Option<Duration> {
        self.slowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_until_several_timely_answers() {
        let second = Duration::from_secs(1);
        let mut pace = ResponseTime::default();
        pace.record(60 * second, false);
        assert_eq!(pace.slowest(), None);
        let steps = [
            (4, Some(4)),
            (1, Some(4)),
            (6, Some(6)),
            (4, Some(6)),
            (1, Some(6)),
            (2, Some(6)),
            (0, None),
            (2, None),
        ];
        for (index, (took, slow)) in steps.into_iter().enumerate() {
            pace.record(took * second, true);
            let expected = slow.map(Duration::from_secs);
            assert_eq!(pace.slowest(), expected, "step {index}");
        }
    }
}
