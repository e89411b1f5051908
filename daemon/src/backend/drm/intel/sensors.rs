//! Reads the sensors of a card with memory of its own: temperatures, fans, power.

use super::super::hwmon::{self, Hwmon};
use super::counter::{CounterGain, GrowthCounter};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Celsius, Milliwatts, Rpm};
use std::collections::BTreeMap;
use std::time::Instant;

/// Reads the values that need no earlier reading.
pub(super) fn read_sensors(hwmon: &Hwmon, vitals: &mut Vitals) {
    vitals.temperature = temperature(hwmon, &[Some("pkg"), None]);
    vitals.memory_temperature = temperature(hwmon, &[Some("vram")]);
    vitals.fan_speed = fastest_fan(hwmon);
    vitals.power_limit = power_limit(hwmon);
}

/// The first sensor with one of these labels; i915 does not label its only one.
fn temperature(hwmon: &Hwmon, labels: &[Option<&str>]) -> Reading<Celsius> {
    let channels = hwmon.channels("temp");
    let with = |label: &Option<&str>| channels.iter().find(|(_, it)| it.as_deref() == *label);
    labels
        .iter()
        .find_map(with)
        .map_or(Reading::Unsupported, |(channel, _)| {
            hwmon::celsius(hwmon.read(&format!("temp{channel}_input")))
        })
}

fn fastest_fan(hwmon: &Hwmon) -> Reading<Rpm> {
    let fans = hwmon.channels("fan").into_iter();
    super::greatest(fans.map(|(fan, _)| hwmon::rpm(hwmon.read(&format!("fan{fan}_input")))))
}

/// The sustained power limit (PL1) of the card, else of its package. A limit of 0 is disabled. Only
/// if there is none at all: the burst limit, then the rated limit.
fn power_limit(hwmon: &Hwmon) -> Reading<Milliwatts> {
    let files = ["max", "cap", "rated_max"]
        .into_iter()
        .flat_map(|kind| [1, 2].map(|channel| format!("power{channel}_{kind}")));
    for file in files {
        match hwmon.read(&file) {
            Reading::Unsupported => {}
            Reading::Value(0) => return Reading::Unsupported,
            reading => return hwmon::milliwatts(reading),
        }
    }
    Reading::Unsupported
}

/// How many readings in a row all counters must stand still to count as faulty: a start and a card
/// that has just woken are no faults.
const MAX_STANDSTILLS: u32 = 5;

/// The energy counters of a card, in microjoules. Drivers do not report power.
#[derive(Debug, Default)]
pub(super) struct EnergyCounters {
    counters: BTreeMap<u32, GrowthCounter>,
    /// How many readings in a row no counter moved.
    standstills: u32,
}

impl EnergyCounters {
    /// The power drawn since the last reading: of the whole card if it has a counter, else of its
    /// package. Some cards have a counter of the first kind that stays 0. A counter that stands
    /// still reports nothing, because a card that answers draws some power; if all counters stand
    /// still repeatedly, they are faulty.
    pub(super) fn power(
        &mut self,
        hwmon: &Hwmon,
        now: &dyn Fn() -> Instant,
    ) -> Reading<Milliwatts> {
        let mut channels = hwmon.channels("energy");
        channels.retain(|(channel, label)| counter_rank(*channel, label.as_deref()).is_some());
        channels.sort_indirect_by_key(|(channel, label)| counter_rank(*channel, label.as_deref()));
        let mut moved: Option<CounterGain> = None;
        let mut stands_still = false;
        let mut failure = Reading::Unsupported;
        for (channel, _) in channels {
            let energy = match hwmon.read(&format!("energy{channel}_input")) {
                Reading::Value(energy) => u64::try_from(energy).ok(),
                unknown => {
                    failure = super::greatest([failure, unknown.as_unknown()].into_iter());
                    continue;
                }
            };
            let counter = self.counters.entry(channel).or_default();
            let gain = energy.and_then(|energy| counter.gain_since_last(energy, now()));
            stands_still |= gain.is_some_and(|gain| gain.amount == 0);
            moved = moved.or(gain.filter(|gain| gain.amount > 0));
        }
        if moved.is_some() {
            self.standstills = 0;
        } else if stands_still {
            self.standstills = self.standstills.saturating_add(1);
        }
        match moved.map(CounterGain::power) {
            Some(Ok(power)) => Reading::Value(power),
            Some(Err(why)) => Reading::Failed(why.into()),
            None if failure == Reading::Unsupported && self.standstills >= MAX_STANDSTILLS => {
                Reading::Failed("the energy counter stands still".into())
            }
            None => failure,
        }
    }
}

/// The rank of a counter; lower is better. Without a label the first is the card's (i915), the
/// second its package's.
fn counter_rank(channel: u32, label: Option<&str>) -> Option<u32> {
    match (label, channel) {
        (Some("card"), _) => Some(0),
        (None, 1) => Some(1),
        (Some("pkg"), _) => Some(2),
        (None, 2) => Some(3),
        (Some(_) | None, _) => None,
    }
}
