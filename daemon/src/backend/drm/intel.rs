//! Reads a card of i915 or xe, with one tile or several. Reads only files: it uses no ioctl and no
//! debugfs, and opens no device file, because that would wake the card.

mod counter;
mod gt;
mod link;
mod sensors;

use super::CardReadings;
use super::card::DrmCard;
use super::hwmon::{CachedHwmon, Hwmon};
use super::sysfs;
use crate::backend::MemoryReadings;
use counter::{CounterGain, GrowthCounter};
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Megahertz, Percent};
use gt::Gt;
use sensors::EnergyCounters;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// One card, and the state kept from one poll to the next.
pub(crate) struct IntelCard {
    /// The total idle time of each GT in milliseconds, by its directory.
    idle: BTreeMap<PathBuf, GrowthCounter>,
    hwmon: CachedHwmon,
    energy: EnergyCounters,
    /// The total time that the card has slept, in milliseconds.
    slept: Reading<u64>,
}

impl IntelCard {
    pub(crate) fn new() -> Self {
        Self {
            idle: BTreeMap::new(),
            hwmon: CachedHwmon::default(),
            energy: EnergyCounters::default(),
            slept: Reading::Unsupported,
        }
    }

    /// Reads the card's files. Never called while the card is suspended. Values that need two
    /// readings (power, utilization) are unsupported in the first: that is no fault.
    pub(crate) fn read(&mut self, card: &DrmCard) -> CardReadings {
        // A counter gets the time at which it is read, not the start of the poll: earlier reads may
        // take long.
        self.read_with_clock(card, &Instant::now)
    }

    fn read_with_clock(&mut self, card: &DrmCard, now: &dyn Fn() -> Instant) -> CardReadings {
        self.reset_after_sleep(card);
        let gts = gt::list_gts(card);
        let (rendering, media): (Vec<_>, Vec<_>) = gts.into_iter().partition(|gt| gt.renders);

        let mut vitals = Vitals::unknown(&Reading::Unsupported);
        vitals.utilization = self.utilization(&rendering, now);
        // Both names mean the one clock of rendering and computing.
        vitals.clock_graphics = greatest(rendering.iter().map(Gt::clock));
        vitals.clock_sm = vitals.clock_graphics.clone();
        vitals.clock_sm_max = greatest(rendering.iter().map(Gt::clock_max));
        vitals.clock_video = greatest(media.iter().map(Gt::clock));
        vitals.clock_memory_max = memory_clock_max(card);
        vitals.throttle = gt::throttle_reasons(&rendering);
        let hwmon = self
            .hwmon
            .get_or_find(now(), || Hwmon::find(card, &card.driver));
        let memory = card_memory(card, hwmon.is_some());
        if let Some(hwmon) = hwmon {
            vitals.power = self.energy.power(hwmon, now);
            sensors::read_sensors(hwmon, &mut vitals);
        }
        link::read_link(card, &mut vitals);
        CardReadings {
            memory,
            vitals,
            ..CardReadings::unknown(&Reading::Unsupported)
        }
    }

    /// The counters of a card that has slept may restart or jump, and sleep counts neither as idle
    /// nor as busy.
    fn reset_after_sleep(&mut self, card: &DrmCard) {
        let slept = sysfs::number(&card.device_directory().join("power/runtime_suspended_time"));
        if slept != self.slept {
            self.idle.clear();
            self.energy = EnergyCounters::default();
        }
        self.slept = slept;
    }

    /// The share of time in which the busiest GT was awake (not in RC6). This is a coarse upper
    /// bound: a GT stays awake a little longer than it works, and a GT that contains the video
    /// engines is awake for those too. The clients' engine counters are better if all clients could
    /// be read.
    ///
    /// A media GT does not count: it does not distinguish encoding from decoding.
    fn utilization(&mut self, gts: &[Gt], now: &dyn Fn() -> Instant) -> Reading<Percent> {
        let mut shares = Vec::new();
        for gt in gts {
            let idle = match gt.idle_ms() {
                Reading::Value(idle) => idle,
                unknown => return unknown.as_unknown(),
            };
            let counter = self.idle.entry(gt.directory.clone()).or_default();
            shares.push(
                counter
                    .gain_since_last(idle, now())
                    .and_then(CounterGain::busy_share),
            );
        }
        // If some shares are unknown, the busiest GT is unknown.
        let known: Option<Vec<Percent>> = shares.into_iter().collect();
        known
            .and_then(|shares| shares.into_iter().max())
            .map_or(Reading::Unsupported, Reading::Value)
    }
}

/// The card's own memory. Only an ioctl reports how much is in use, to a caller with `CAP_PERFMON`,
/// through a device file that wakes the card when it is opened: it is not used.
///
/// The size of the PCI window onto the memory (BAR 2) is not the memory's size: it is a power of
/// two, so 16 GiB for a card of 12, and 256 MiB where it cannot be resized.
fn card_memory(card: &DrmCard, has_sensors: bool) -> MemoryReadings {
    let total = own_memory(card);
    // Drivers have sensors only for cards with memory of their own. A card that is passed through
    // to a virtual machine may have an address like this, too.
    if total == Reading::Unsupported && is_built_in(card) && !has_sensors {
        return MemoryReadings::shared_with_host();
    }
    MemoryReadings {
        total,
        ..MemoryReadings::unknown(&Reading::Unsupported)
    }
}

/// Whether the card has the PCI address of a processor's own graphics, or of one of its virtual
/// functions.
fn is_built_in(card: &DrmCard) -> bool {
    let slot = card.pci.as_ref().map(|pci| pci.slot.as_str());
    slot.is_some_and(|slot| slot.starts_with("0000:00:02."))
}

/// Some versions of xe report the size for each tile; i915 outside of the kernel tree reports it
/// for the whole card.
fn own_memory(card: &DrmCard) -> Reading<Bytes> {
    let mut all: Vec<Reading<u64>> = gt::tiles(card)
        .iter()
        .map(|tile| sysfs::number(&tile.join("physical_vram_size_bytes")))
        .collect();
    if all.is_empty() {
        all.push(sysfs::number(&card.directory.join("lmem_total_bytes")));
    }
    super::sum_sizes(all)
}

/// The highest memory clock, reported where the memory is HBM.
fn memory_clock_max(card: &DrmCard) -> Reading<Megahertz> {
    let of_tiles = gt::tiles(card)
        .into_iter()
        .map(|tile| gt::read_megahertz(&tile.join("memory/freq0/max_freq")));
    greatest(of_tiles)
}

/// The greatest known value; failed if one failed, since that may have been the greatest.
fn greatest<T: Ord>(readings: impl Iterator<Item = Reading<T>>) -> Reading<T> {
    readings.fold(Reading::Unsupported, |greatest, reading| {
        greatest.combine_supported(reading, |one, other| Reading::Value(one.max(other)))
    })
}

#[cfg(test)]
mod captures;
#[cfg(test)]
mod tests;
