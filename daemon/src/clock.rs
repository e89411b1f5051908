//! The wall clock, as a value that can be replaced in tests.

use gpukill_proto::units::Timestamp;

/// Says what time it is.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The clock of the box.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        std::time::SystemTime::now().into()
    }
}
