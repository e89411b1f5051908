//! The sensors of a card with memory of its own: temperatures, fans, power.

use super::super::hwmon::{self, Hwmon};
use super::counter::{Counter, Gain};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Celsius, Milliwatts, Rpm};
use std::collections::BTreeMap;
use std::time::Instant;

/// Reads what needs no memory.
pub(super) fn read(hwmon: &Hwmon, vitals: &mut Vitals) {
    vitals.temperature = temperature(hwmon, &[Some("pkg"), None]);
    vitals.memory_temperature = temperature(hwmon, &[Some("vram")]);
    vitals.fan_speed = fastest_fan(hwmon);
    vitals.power_limit = power_limit(hwmon);
}

/// The first sensor with one of these labels; i915 gives its only one none.
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

/// The limit of sustained power (PL1) of the card, else of its package. One that
/// is 0 is switched off. Only where there is none at all: that of bursts, and that
/// which the card was made with.
fn power_limit(hwmon: &Hwmon) -> Reading<Milliwatts> {
    let files = ["max", "cap", "rated_max"]
        .into_iter()
        .flat_map(|kind| [1, 2].map(|channel| format!("power{channel}_{kind}")));
    for file in files {
        match hwmon.read(&file) {
            Reading::Unsupported => {}
            Reading::Value(0) => return Reading::Unsupported,
            told => return hwmon::milliwatts(told),
        }
    }
    Reading::Unsupported
}

/// So often in a row every counter must have stood still before that is said to be
/// broken: a start and a card that has just woken are neither.
const STILL_MOST: u32 = 5;

/// The energy counters of a card, in microjoules. Drivers tell no power.
#[derive(Debug, Default)]
pub(super) struct Energy {
    /// By channel.
    counters: BTreeMap<u32, Counter>,
    /// How many times in a row none of them moved.
    still: u32,
}

impl Energy {
    /// What was drawn since the last reading. Of the whole card if that is
    /// counted, else of its package: some cards have a counter of the first kind
    /// that stays 0. One that stands still tells nothing, for whoever answers
    /// draws something; where all of them do again and again, they are broken.
    pub(super) fn power(
        &mut self,
        hwmon: &Hwmon,
        now: &dyn Fn() -> Instant,
    ) -> Reading<Milliwatts> {
        let mut channels = hwmon.channels("energy");
        channels.retain(|(channel, label)| rank(*channel, label.as_deref()).is_some());
        channels.sort_indirect_by_key(|(channel, label)| rank(*channel, label.as_deref()));
        let mut moved: Option<Gain> = None;
        let mut stands_still = false;
        let mut failure = Reading::Unsupported;
        for (channel, _) in channels {
            let energy = match hwmon.read(&format!("energy{channel}_input")) {
                Reading::Value(energy) => u64::try_from(energy).ok(),
                unknown => {
                    failure = super::greatest([failure, unknown.because()].into_iter());
                    continue;
                }
            };
            let counter = self.counters.entry(channel).or_default();
            let gain = energy.and_then(|energy| counter.gained(energy, now()));
            stands_still |= gain.is_some_and(|gain| gain.amount == 0);
            moved = moved.or(gain.filter(|gain| gain.amount > 0));
        }
        if moved.is_some() {
            self.still = 0;
        } else if stands_still {
            self.still = self.still.saturating_add(1);
        }
        match moved.map(Gain::power) {
            Some(Ok(power)) => Reading::Value(power),
            Some(Err(why)) => Reading::Failed(why.into()),
            None if failure == Reading::Unsupported && self.still >= STILL_MOST => {
                Reading::Failed("the energy counter stands still".into())
            }
            None => failure,
        }
    }
}

/// Which counter is better; the lower, the better. Without a label the first is
/// the card's (i915), the second its package's.
fn rank(channel: u32, label: Option<&str>) -> Option<u32> {
    match (label, channel) {
        (Some("card"), _) => Some(0),
        (None, 1) => Some(1),
        (Some("pkg"), _) => Some(2),
        (None, 2) => Some(3),
        (Some(_) | None, _) => None,
    }
}
