//! How long to wait, and how long between two tries.

use super::meanwhile::{Meanwhile, wait};
use crate::exit::Failure;
use gpukill_proto::transport::MAX_DEADLINE;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// A wait that ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    until: Instant,
    whole: Duration,
}

impl Patience {
    /// From now for so long.
    pub(crate) fn lasting(whole: Duration) -> Self {
        Self {
            until: Instant::now() + whole,
            whole,
        }
    }

    /// When it is over.
    pub(crate) fn until(self) -> Instant {
        self.until
    }

    /// How long it was at its beginning, in seconds.
    pub(crate) fn seconds(self) -> u64 {
        self.whole.as_secs()
    }

    /// The deadline of a call that begins now: the daemon takes none that is
    /// farther than [`MAX_DEADLINE`].
    pub(crate) fn deadline_of_a_call(self) -> Instant {
        self.until.min(Instant::now() + MAX_DEADLINE)
    }
}

/// Pauses between tries, each about twice as long as the one before.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// A warm call takes less than a tenth of a millisecond; 20 ms is a pause
    /// that a busy daemon notices and a person does not.
    const FIRST: Duration = Duration::from_millis(20);
    /// No person should wait longer than this for a daemon that is free again.
    const LONGEST: Duration = Duration::from_millis(250);

    /// Begins with the shortest pause.
    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// Pauses, unless that would outlast the patience.
    ///
    /// # Errors
    /// What is heeded meanwhile may end it.
    pub(crate) fn pause(
        &mut self,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<Pause, Failure> {
        let length = jittered(self.next, RandomState::new().build_hasher().finish());
        self.next = (self.next * 2).min(Self::LONGEST);
        if Instant::now() + length >= patience.until() {
            return Ok(Pause::OutOfPatience);
        }
        wait(None, Instant::now() + length, meanwhile)?;
        Ok(Pause::Over(length))
    }
}

/// What became of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It is over: try again.
    Over(Duration),
    /// There is no time for another try.
    OutOfPatience,
}

/// Half to one and a half of `length`, so that many clients that were refused
/// together do not come back together.
fn jittered(length: Duration, random: u64) -> Duration {
    length / 2
        + length.mul_f64(f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_half_to_one_and_a_half_of_what_was_asked() {
        let length = Duration::from_millis(100);
        assert_eq!(jittered(length, 0), Duration::from_millis(50));
        assert_eq!(jittered(length, u64::MAX), Duration::from_millis(150));
    }

    #[test]
    fn no_call_has_a_deadline_that_the_daemon_refuses() {
        let patience = Patience::lasting(Duration::from_secs(3600));
        assert!(patience.deadline_of_a_call() <= Instant::now() + MAX_DEADLINE);
    }
}
