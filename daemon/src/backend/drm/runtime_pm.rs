//! Decides when an unused card is not read, so that it can fall asleep.
//!
//! Most values of amdgpu, xe and others are read from the card, and each access keeps it awake for
//! the driver's delay (`autosuspend_delay_ms`): reading every two seconds keeps an idle card awake
//! for good. The power management state itself is read from the kernel without accessing the card.

use super::card::DrmCard;
use super::sysfs;
use gpukill_proto::reading::Reading;
use std::time::Duration;

/// The minimum interval for a card that may sleep: the interval of the slow attributes.
const MIN_PAUSE: Duration = Duration::from_secs(16);

/// The maximum age of readings, however long the driver waits.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// How long an unused card is not read; `None` if it will not sleep, or does not report it.
pub(super) fn read_pause(card: &DrmCard) -> Option<Duration> {
    let power = card.device_directory().join("power");
    if sysfs::text(&power.join("control")).known()? != "auto" {
        return None;
    }
    pause_for(&sysfs::signed(&power.join("autosuspend_delay_ms")))
}

/// The pause for a delay in milliseconds between the last use and sleep. Below zero the card does
/// not sleep; if the driver has no delay (the kernel reports `EIO`) it sleeps at once
/// (Documentation/power/runtime_pm.rst).
fn pause_for(delay: &Reading<i64>) -> Option<Duration> {
    let delay = match delay {
        Reading::Value(delay) => Duration::from_millis(u64::try_from(*delay).ok()?),
        Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            Duration::ZERO
        }
    };
    // The kernel's timer may be late by a quarter of the delay (`pm_runtime_autosuspend_expiration`
    // and its slack in `rpm_suspend`), and falling asleep takes a while.
    let enough = delay.saturating_mul(3) / 2 + Duration::from_secs(2);
    Some(enough.clamp(MIN_PAUSE, MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_exceeds_the_autosuspend_delay() {
        let seconds = |pause: u64| Some(Duration::from_secs(pause));
        for (delay, pause) in [
            (Reading::Value(0), seconds(16)),
            (Reading::Value(5_000), seconds(16)),
            (Reading::Value(20_000), seconds(32)),
            (Reading::Value(i64::MAX), seconds(300)),
            (Reading::Value(-1), None),
            (Reading::Failed("EIO".into()), seconds(16)),
            (Reading::Unsupported, seconds(16)),
        ] {
            assert_eq!(pause_for(&delay), pause, "{delay:?}");
        }
    }
}
