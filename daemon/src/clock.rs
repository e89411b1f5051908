//! The clocks, behind a trait that tests can replace.

use gpukill_proto::units::Timestamp;
use std::time::{Duration, Instant, SystemTime};

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync {
    /// The current wall-clock time.
    fn now(&self) -> Timestamp;

    /// The time since a fixed start, by a clock that never jumps and stops while the host sleeps.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the host.
pub struct SystemClock {
    started_at: Instant,
}

impl SystemClock {
    /// Starts the monotonic clock at zero.
    #[must_use]
    pub fn start() -> Self {
        Self {
            started_at: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.started_at.elapsed()
    }
}
