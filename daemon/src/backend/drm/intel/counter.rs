//! Computes the gain of a driver's counter between two readings, and utilization and power from it.

use gpukill_proto::units::{Milliwatts, Percent};
use std::time::{Duration, Instant};

/// A shorter interval gives no meaningful value: idle times are counted in whole milliseconds.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// No card draws more: the largest are boards for two processors of 600 W.
const MAX_POWER: Milliwatts = Milliwatts(2_000_000);

/// A counter that only grows while its driver stays loaded.
#[derive(Debug, Default)]
pub(super) struct GrowthCounter {
    last: Option<(u64, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CounterGain {
    pub(super) amount: u64,
    time: Duration,
}

impl GrowthCounter {
    /// The gain since the last reading. `None` in the first reading, and when the counter went
    /// back: it then starts again.
    pub(super) fn gain_since_last(&mut self, value: u64, at: Instant) -> Option<CounterGain> {
        let Some((before, then)) = self.last else {
            self.last = Some((value, at));
            return None;
        };
        let time = at.saturating_duration_since(then);
        if time < MIN_INTERVAL && value >= before {
            return None;
        }
        self.last = Some((value, at));
        let amount = value.checked_sub(before)?;
        Some(CounterGain { amount, time })
    }
}

impl CounterGain {
    /// The share of busy time, if the gain is idle milliseconds. `None` if the idle time exceeds
    /// the interval: our clock stops while the host sleeps, the driver's may not.
    pub(super) fn busy_share(self) -> Option<Percent> {
        let time = self.time.as_micros();
        let idle = u128::from(self.amount) * 1_000;
        // Both clocks may differ a little, and readings take time.
        if idle > time + time / 20 + 20_000 {
            return None;
        }
        let busy = time.saturating_sub(idle);
        let share = (busy * 100 + time / 2).checked_div(time)?;
        u32::try_from(share).ok().map(Percent)
    }

    /// The power drawn, if the gain is microjoules.
    ///
    /// # Errors
    /// When no card draws that much.
    pub(super) fn power(self) -> Result<Milliwatts, &'static str> {
        let milliwatts = (u128::from(self.amount) * 1_000).checked_div(self.time.as_micros());
        milliwatts
            .and_then(|milliwatts| u64::try_from(milliwatts).ok())
            .map(Milliwatts)
            .filter(|power| *power <= MAX_POWER)
            .ok_or("the driver's energy counter jumped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The gains of these readings, given as milliseconds after the first and value.
    fn gains(readings: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
        let start = Instant::now();
        let mut counter = GrowthCounter::default();
        let gain = |(after, value): &(u64, u64)| {
            let gain = counter.gain_since_last(*value, start + Duration::from_millis(*after))?;
            Some((gain.amount, u64::try_from(gain.time.as_millis()).unwrap()))
        };
        readings.iter().map(gain).collect()
    }

    #[test]
    fn first_and_backward_readings_gain_nothing() {
        for (readings, expected) in [
            (
                &[(0, 5), (2_000, 9), (4_000, 9)][..],
                &[None, Some((4, 2_000)), Some((0, 2_000))][..],
            ),
            (
                &[(0, 9), (2_000, 5), (4_000, 8)],
                &[None, None, Some((3, 2_000))],
            ),
            // Too short an interval: the next reading counts from the first.
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
    fn busy_is_the_rest_of_idle() {
        for (idle, of, busy) in [
            (0, 2_000, Some(100)),
            (2_000, 2_000, Some(0)),
            (1_500, 2_000, Some(25)),
            (1_989, 2_000, Some(1)),
            // The clocks differ a little.
            (2_050, 2_000, Some(0)),
            // The host slept.
            (3_600_000, 2_000, None),
            (u64::MAX, 2_000, None),
        ] {
            let gain = CounterGain {
                amount: idle,
                time: Duration::from_millis(of),
            };
            assert_eq!(gain.busy_share(), busy.map(Percent), "{idle} of {of}");
        }
    }

    #[test]
    fn power_is_energy_over_time() {
        for (microjoules, of, power) in [
            (0, 1_000, Some(0)),
            (30_000_000, 2_000, Some(15_000)),
            (4_000_000_000, 2_000, Some(2_000_000)),
            (4_000_003_000, 2_000, None),
            (u64::MAX, 2_000, None),
        ] {
            let gain = CounterGain {
                amount: microjoules,
                time: Duration::from_millis(of),
            };
            assert_eq!(gain.power().ok(), power.map(Milliwatts), "{microjoules}");
        }
    }

    proptest! {
        #[test]
        fn any_counter_gives_possible_values(
            readings in prop::collection::vec((any::<u64>(), 0u64..10_000_000), 0..20),
        ) {
            let start = Instant::now();
            let mut counter = GrowthCounter::default();
            for (value, after) in readings {
                let at = start + Duration::from_micros(after);
                let Some(gain) = counter.gain_since_last(value, at) else { continue };
                if let Some(busy) = gain.busy_share() {
                    prop_assert!(busy <= Percent(100));
                }
                if let Ok(power) = gain.power() {
                    prop_assert!(power <= MAX_POWER);
                }
            }
        }
    }
}
