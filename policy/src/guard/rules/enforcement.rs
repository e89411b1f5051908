//! Warnings and their clocks.

use gpukill_proto::units::Percent;
use std::time::Duration;

/// Warnings and their clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforcement {
    /// From the first warning to the end.
    pub grace: Duration,
    /// So many warnings within the grace, evenly spread.
    pub max_warnings: u32,
    /// Utilisation is judged by its mean over so long.
    pub utilization_window: Duration,
    /// A process below this does nothing.
    pub idle_below: Percent,
    /// A violation that was not seen for so long is over, and its clock with it.
    pub settled_after: Duration,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self {
            // gpu-kill's own default, of which users of it may have heard.
            grace: Duration::from_secs(300),
            max_warnings: 3,
            utilization_window: Duration::from_secs(300),
            idle_below: crate::usage::BUSY_FROM,
            settled_after: Duration::from_secs(300),
        }
    }
}
