//! Warnings and their clocks.

use gpukill_proto::units::Percent;
use serde::Serialize;
use std::time::Duration;

/// Warnings and their clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// How often whoever is warned may ask for more time.
    pub max_snoozes: u32,
    /// How much more that gives them.
    pub snooze: Duration,
    /// For so long after somebody was ended for what is too much nobody else is for the
    /// same, nor for what is too much of that device: what they held comes back first.
    pub cooldown: Duration,
    /// So many jobs are ended within [`Enforcement::TRIPS_WITHIN`]; before one more is,
    /// the guard stops ending anybody.
    pub max_ended: u32,
}

impl Enforcement {
    /// The time in which ended jobs are counted.
    pub const TRIPS_WITHIN: Duration = Duration::from_secs(600);
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
            max_snoozes: 1,
            snooze: Duration::from_secs(1_800),
            cooldown: Duration::from_secs(60),
            max_ended: 5,
        }
    }
}
