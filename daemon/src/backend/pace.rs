//! Whether a backend answers slowly, for as long as that lasts: single answers that come in time
//! between slow ones do not end it.

use std::time::Duration;

/// A slow answer takes so long. Readings as old as that show their age; a healthy driver of
/// eight GPUs answers within milliseconds.
const SLOW: Duration = Duration::from_secs(3);

/// So many quick answers in a row end it.
const QUICK_ANSWERS: u32 = 3;

/// How long the answers of a backend take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The slowest answer since it became slow.
    slowest: Option<Duration>,
    quick: u32,
}

impl Pace {
    /// An answer took so long. `is_usual`: the backend had answered before; the first answer
    /// after a failure may be slow because the driver wakes its devices.
    pub(super) fn note(&mut self, took: Duration, is_usual: bool) {
        if took < SLOW {
            self.quick += 1;
            if self.quick >= QUICK_ANSWERS {
                self.slowest = None;
            }
        } else if is_usual || self.slowest.is_some() {
            self.quick = 0;
            self.slowest = self.slowest.max(Some(took));
        }
    }

    /// How long its slowest answer took, while it is slow.
    pub(super) fn slow(&self) -> Option<Duration> {
        self.slowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_slow_until_it_has_answered_in_time_for_a_while() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::default();
        pace.note(60 * second, false);
        assert_eq!(pace.slow(), None);
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
        for (place, (took, slow)) in steps.into_iter().enumerate() {
            pace.note(took * second, true);
            let expected = slow.map(Duration::from_secs);
            assert_eq!(pace.slow(), expected, "step {place}");
        }
    }
}
