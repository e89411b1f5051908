//! What a counter of a driver gained between two readings, and what that means.

use gpukill_proto::units::{Milliwatts, Percent};
use std::time::{Duration, Instant};

/// Two readings that are nearer tell too little: idle times are counted in whole
/// milliseconds.
const SHORTEST: Duration = Duration::from_millis(100);

/// No card draws more: boards for two processors of 600 W are the greatest.
const MOST_POWER: Milliwatts = Milliwatts(2_000_000);

/// A counter that only grows, while its driver stays loaded.
#[derive(Debug, Default)]
pub(super) struct Counter {
    last: Option<(u64, Instant)>,
}

/// What it gained, and in what time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gain {
    pub(super) amount: u64,
    time: Duration,
}

impl Counter {
    /// What it gained since the last reading. `None` in the first, and when it
    /// went back: then this one is the first.
    pub(super) fn gained(&mut self, value: u64, at: Instant) -> Option<Gain> {
        let Some((before, then)) = self.last else {
            self.last = Some((value, at));
            return None;
        };
        let time = at.saturating_duration_since(then);
        if time < SHORTEST && value >= before {
            return None;
        }
        self.last = Some((value, at));
        let amount = value.checked_sub(before)?;
        Some(Gain { amount, time })
    }
}

impl Gain {
    /// The share of time in which something was not idle, where this is how many
    /// milliseconds it was. `None` when it was idle for longer than the time that
    /// passed: our clock stands still while the host sleeps, the driver's may not.
    pub(super) fn busy(self) -> Option<Percent> {
        let time = self.time.as_micros();
        let idle = u128::from(self.amount) * 1_000;
        // Both clocks may differ by a little, and readings take their time.
        if idle > time + time / 20 + 20_000 {
            return None;
        }
        let busy = time.saturating_sub(idle);
        let share = (busy * 100 + time / 2).checked_div(time)?;
        u32::try_from(share).ok().map(Percent)
    }

    /// The power drawn, where this is how many microjoules were.
    ///
    /// # Errors
    /// When no card draws as much.
    pub(super) fn power(self) -> Result<Milliwatts, &'static str> {
        let milliwatts = (u128::from(self.amount) * 1_000).checked_div(self.time.as_micros());
        milliwatts
            .and_then(|milliwatts| u64::try_from(milliwatts).ok())
            .map(Milliwatts)
            .filter(|power| *power <= MOST_POWER)
            .ok_or("the driver's energy counter jumped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What these readings gain, each so many milliseconds after the first.
    fn gains(readings: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
        let began = Instant::now();
        let mut counter = Counter::default();
        let gain = |(after, value): &(u64, u64)| {
            let gain = counter.gained(*value, began + Duration::from_millis(*after))?;
            Some((gain.amount, u64::try_from(gain.time.as_millis()).unwrap()))
        };
        readings.iter().map(gain).collect()
    }

    #[test]
    fn a_counter_tells_nothing_in_its_first_reading_nor_when_it_went_back() {
        for (readings, expected) in [
            (
                &[(0, 5), (2_000, 9), (4_000, 9)][..],
                &[None, Some((4, 2_000)), Some((0, 2_000))][..],
            ),
            (
                &[(0, 9), (2_000, 5), (4_000, 8)],
                &[None, None, Some((3, 2_000))],
            ),
            // Too near: the next one counts from the first.
            (
                &[(0, 5), (50, 6), (2_000, 9)],
                &[None, None, Some((4, 2_000))],
            ),
            (
                &[(0, 5), (50, 2), (2_050, 9)],
                &[None, None, Some((7, 2_000))],
            ),
        ] {
            assert_eq!(gains(readings), expected, "{readings:?}");
        }
    }

    #[test]
    fn who_was_not_idle_was_busy() {
        for (idle, of, busy) in [
            (0, 2_000, Some(100)),
            (2_000, 2_000, Some(0)),
            (1_500, 2_000, Some(25)),
            (1_989, 2_000, Some(1)),
            // Clocks that differ a little.
            (2_050, 2_000, Some(0)),
            // A host that slept.
            (3_600_000, 2_000, None),
            (u64::MAX, 2_000, None),
        ] {
            let gain = Gain {
                amount: idle,
                time: Duration::from_millis(of),
            };
            assert_eq!(gain.busy(), busy.map(Percent), "{idle} of {of}");
        }
    }

    #[test]
    fn power_is_energy_in_time_and_never_absurd() {
        for (microjoules, of, power) in [
            (0, 1_000, Some(0)),
            (30_000_000, 2_000, Some(15_000)),
            (4_000_000_000, 2_000, Some(2_000_000)),
            (4_000_003_000, 2_000, None),
            (u64::MAX, 2_000, None),
        ] {
            let gain = Gain {
                amount: microjoules,
                time: Duration::from_millis(of),
            };
            assert_eq!(gain.power().ok(), power.map(Milliwatts), "{microjoules}");
        }
    }

    proptest! {
        #[test]
        fn a_counter_that_goes_anywhere_never_gives_what_cannot_be(
            readings in prop::collection::vec((any::<u64>(), 0u64..10_000_000), 0..20),
        ) {
            let began = Instant::now();
            let mut counter = Counter::default();
            for (value, after) in readings {
                let at = began + Duration::from_micros(after);
                let Some(gain) = counter.gained(value, at) else { continue };
                if let Some(busy) = gain.busy() {
                    prop_assert!(busy <= Percent(100));
                }
                if let Ok(power) = gain.power() {
                    prop_assert!(power <= MOST_POWER);
                }
            }
        }
    }
}
