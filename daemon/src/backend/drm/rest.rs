//! When a card that nobody uses is left alone, so that it can fall asleep.
//!
//! Most of what amdgpu, xe and others tell they ask the card for, and each time it
//! stays awake for as long as its driver waits before it lets it sleep
//! (`autosuspend_delay_ms`): who asks every two seconds keeps an idle card awake for
//! good. How it is managed is asked of the kernel alone.

use super::card::Card;
use super::sysfs;
use gpukill_proto::reading::Reading;
use std::time::Duration;

/// A card that may sleep is asked no more often: as often as what cards seldom tell.
const LEAST: Duration = Duration::from_secs(16);

/// However long its driver waits, what is told of a card is not older.
const MOST: Duration = Duration::from_secs(300);

/// How long a card is not asked that nobody uses; `None` of one that will not sleep,
/// or does not say.
pub(super) fn pause(card: &Card) -> Option<Duration> {
    let power = card.device().join("power");
    if sysfs::text(&power.join("control")).known()? != "auto" {
        return None;
    }
    pause_for(&sysfs::signed(&power.join("autosuspend_delay_ms")))
}

/// With this many milliseconds between its last use and its sleep. Below zero it does
/// not sleep; where the driver knows no delay (the kernel says `EIO`) it waits for
/// nothing (Documentation/power/runtime_pm.rst).
fn pause_for(delay: &Reading<i64>) -> Option<Duration> {
    let delay = match delay {
        Reading::Value(delay) => Duration::from_millis(u64::try_from(*delay).ok()?),
        Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            Duration::ZERO
        }
    };
    // The kernel's timer may be late by a quarter of the delay
    // (`pm_runtime_autosuspend_expiration` and its slack in `rpm_suspend`), and
    // falling asleep takes a while.
    let enough = delay.saturating_mul(3) / 2 + Duration::from_secs(2);
    Some(enough.clamp(LEAST, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_left_alone_for_longer_than_it_takes_to_fall_asleep() {
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
