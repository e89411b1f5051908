//! The clocks, as a value that can be replaced in tests.

use gpukill_proto::units::Timestamp;
use std::time::{Duration, Instant, SystemTime};

/// Says what time it is.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// How long it is since some beginning, by a clock that never jumps and
    /// stands still while the box sleeps.
    fn steady(&self) -> Duration;
}

/// The clocks of the box.
pub struct SystemClock {
    beginning: Instant,
}

impl SystemClock {
    /// Steady time begins now.
    #[must_use]
    pub fn starting() -> Self {
        Self {
            beginning: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn steady(&self) -> Duration {
        self.beginning.elapsed()
    }
}
