//! Settings of warnings, grace period, snoozes and the circuit breaker.

use gpukill_proto::units::Percent;
use serde::Serialize;
use std::time::Duration;

/// Settings of warnings, grace period, snoozes and the circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnforcementSettings {
    /// Time from the first warning to the end.
    pub grace: Duration,
    /// Number of warnings within the grace period, evenly spread.
    pub max_warnings: u32,
    /// Utilization is evaluated by its mean over this window.
    pub utilization_window: Duration,
    /// A process with less utilization than this is idle.
    pub idle_below: Percent,
    /// A violation that was not observed for this long is over, and its state is dropped.
    pub settled_after: Duration,
    /// How often a warned person may ask for more time.
    pub max_snoozes: u32,
    /// How much time a snooze adds.
    pub snooze: Duration,
    /// After ending a job for exceeding a limit, wait this long before ending another for
    /// the same limit or for a limit of that device, so that its memory can be released.
    pub cooldown: Duration,
    /// The number of jobs that may be ended within [`EnforcementSettings::BREAKER_WINDOW`].
    /// Before one more is ended, the guard stops ending jobs.
    pub max_ended: u32,
}

impl EnforcementSettings {
    /// The time in which ended jobs are counted.
    pub const BREAKER_WINDOW: Duration = Duration::from_secs(600);
}

impl Default for EnforcementSettings {
    fn default() -> Self {
        Self {
            // The default of gpu-kill, which its users may know.
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
