//! Request timeouts, and the pauses between attempts.

use super::wait_hooks::{WaitHooks, wait};
use crate::exit::Error;
use gpukill_proto::transport::MAX_DEADLINE;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// A request timeout that is running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTimeout {
    until: Instant,
    whole: Duration,
}

impl RequestTimeout {
    pub(crate) fn starting_now(whole: Duration) -> Self {
        Self {
            until: Instant::now() + whole,
            whole,
        }
    }

    /// When the timeout ends.
    pub(crate) fn deadline(self) -> Instant {
        self.until
    }

    /// The whole length in seconds.
    pub(crate) fn seconds(self) -> u64 {
        self.whole.as_secs()
    }

    /// The deadline of a call that starts now. The daemon accepts no deadline beyond
    /// [`MAX_DEADLINE`].
    pub(crate) fn call_deadline(self) -> Instant {
        self.until.min(Instant::now() + MAX_DEADLINE)
    }
}

/// Pauses between attempts, each about twice as long as the one before.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// A warm call takes less than a tenth of a millisecond. A busy daemon notices a pause of
    /// 20 ms, a person does not.
    const MIN: Duration = Duration::from_millis(20);
    /// No client should wait longer than this for a daemon that is free again.
    const MAX: Duration = Duration::from_millis(250);

    /// Starts with the shortest pause.
    pub(crate) fn new() -> Self {
        Self { next: Self::MIN }
    }

    /// Pauses, unless the pause would end after the timeout.
    pub(crate) fn pause(
        &mut self,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<PauseResult, Error> {
        let length = with_jitter(self.next, RandomState::new().build_hasher().finish());
        self.next = (self.next * 2).min(Self::MAX);
        if Instant::now() + length >= timeout.deadline() {
            return Ok(PauseResult::OutOfTime);
        }
        wait(None, Instant::now() + length, hooks)?;
        Ok(PauseResult::Elapsed(length))
    }
}

/// How a pause ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseResult {
    /// The pause is over: try again.
    Elapsed(Duration),
    /// There is no time for another attempt.
    OutOfTime,
}

/// Half to one and a half of `length`, so that clients refused together do not return together.
fn with_jitter(length: Duration, random: u64) -> Duration {
    length / 2
        + length.mul_f64(f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_half_to_one_and_a_half() {
        let length = Duration::from_millis(100);
        assert_eq!(with_jitter(length, 0), Duration::from_millis(50));
        assert_eq!(with_jitter(length, u64::MAX), Duration::from_millis(150));
    }

    #[test]
    fn call_deadline_is_within_the_daemons_limit() {
        let timeout = RequestTimeout::starting_now(Duration::from_secs(3600));
        assert!(timeout.call_deadline() <= Instant::now() + MAX_DEADLINE);
    }
}
