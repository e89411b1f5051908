//! What i915 and xe tell of a card, of one tile or of several. From files alone:
//! no ioctl and no debugfs, and no device file is opened, for that would wake
//! the card.

mod counter;

mod gt;

mod link;

mod sensors;

use super::Told;
use super::card::Card;
use super::hwmon::{Hwmon, Kept};
use super::names;
use super::sysfs;
use crate::backend::MemoryReadings;
use counter::{Counter, Gain};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Bytes, Megahertz, Percent};
use gt::Gt;
use sensors::Energy;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// One card, and what must be remembered of it from one poll to the next.
pub(crate) struct Intel {
    host_root: PathBuf,
    /// Once it was looked for.
    name: Option<String>,
    /// How long each GT had been idle in all, in milliseconds, by its directory.
    idle: BTreeMap<PathBuf, Counter>,
    hwmon: Kept,
    energy: Energy,
    /// How long the card had slept in all, in milliseconds.
    slept: Reading<u64>,
}

impl Intel {
    /// Nothing is read yet. `host_root` is where the host's files are seen.
    pub(crate) fn new(host_root: PathBuf) -> Self {
        Self {
            host_root,
            name: None,
            idle: BTreeMap::new(),
            hwmon: Kept::default(),
            energy: Energy::default(),
            slept: Reading::Unsupported,
        }
    }

    /// What its files tell now. Never called while the card sleeps. What takes two
    /// readings (power, utilization) is unsupported in the first: nothing is
    /// broken then.
    pub(crate) fn read(&mut self, card: &Card, _at: Instant) -> Told {
        // A counter is dated when it is read, and not when the poll began: what is
        // read before it may have taken long.
        self.told(card, &Instant::now)
    }

    fn told(&mut self, card: &Card, now: &dyn Fn() -> Instant) -> Told {
        self.forget_what_was_before_sleep(card);
        let gts = gt::of(card);
        let (rendering, media): (Vec<_>, Vec<_>) = gts.into_iter().partition(|gt| gt.renders);

        let mut vitals = Vitals::unknown(&Reading::Unsupported);
        vitals.utilization = self.utilization(&rendering, now);
        // Both names are of the one clock of what renders and computes.
        vitals.clock_graphics = greatest(rendering.iter().map(Gt::clock));
        vitals.clock_sm = vitals.clock_graphics.clone();
        vitals.clock_sm_max = greatest(rendering.iter().map(Gt::clock_max));
        vitals.clock_video = greatest(media.iter().map(Gt::clock));
        vitals.clock_memory_max = memory_clock_max(card);
        vitals.throttle = gt::throttle(&rendering);
        let hwmon = self.hwmon.or(now(), || Hwmon::of(card, &card.driver));
        let memory = memory(card, hwmon.is_some());
        if let Some(hwmon) = hwmon {
            vitals.power = self.energy.power(hwmon, now);
            sensors::read(hwmon, &mut vitals);
        }
        link::read(card, &mut vitals);
        Told {
            name: Reading::Value(self.name(card)),
            memory,
            vitals,
            ..Told::unknown(&Reading::Unsupported)
        }
    }

    /// The counters of a card that has slept may begin anew, or jump; and asleep is
    /// neither idle nor busy for them.
    fn forget_what_was_before_sleep(&mut self, card: &Card) {
        let slept = sysfs::number(&card.device().join("power/runtime_suspended_time"));
        if slept != self.slept {
            self.idle.clear();
            self.energy = Energy::default();
        }
        self.slept = slept;
    }

    /// The share of time in which the busiest GT was awake (not in RC6). That is
    /// coarse, and an upper bound: a GT is awake a little longer than it works,
    /// and where it has the video engines too it is awake for those. What the
    /// clients' engines tell is better, where all clients could be read.
    ///
    /// A media GT counts for nothing: it does not say whether it codes or decodes.
    fn utilization(&mut self, gts: &[Gt], now: &dyn Fn() -> Instant) -> Reading<Percent> {
        let mut shares = Vec::new();
        for gt in gts {
            let idle = match gt.idle() {
                Reading::Value(idle) => idle,
                unknown => return unknown.because(),
            };
            let counter = self.idle.entry(gt.place.clone()).or_default();
            shares.push(counter.gained(idle, now()).and_then(Gain::busy));
        }
        // Of one GT alone nobody knows whether it is the busiest.
        let known: Option<Vec<Percent>> = shares.into_iter().collect();
        known
            .and_then(|shares| shares.into_iter().max())
            .map_or(Reading::Unsupported, Reading::Value)
    }

    fn name(&mut self, card: &Card) -> String {
        let name = || names::of(&self.host_root, card);
        self.name.get_or_insert_with(name).clone()
    }
}

/// The memory of its own that a card has. How much of it is in use only an ioctl
/// tells, to who has `CAP_PERFMON`, over a device file whose opening wakes the
/// card: that is not asked.
///
/// The size of the PCI window onto it (BAR 2) is not its size: that is a power of
/// two, so 16 GiB for a card of 12, and 256 MiB where it cannot be resized.
fn memory(card: &Card, has_sensors: bool) -> MemoryReadings {
    let total = own_memory(card);
    // Drivers have sensors for cards with memory of their own only. A card that is
    // passed through to a virtual machine may have an address like this, too.
    if total == Reading::Unsupported && is_built_in(card) && !has_sensors {
        return MemoryReadings::shared_with_host();
    }
    MemoryReadings {
        total,
        ..MemoryReadings::unknown(&Reading::Unsupported)
    }
}

/// Whether it has the place of a processor's own graphics, or of a virtual
/// function of it.
fn is_built_in(card: &Card) -> bool {
    let slot = card.pci.as_ref().map(|pci| pci.slot.as_str());
    slot.is_some_and(|slot| slot.starts_with("0000:00:02."))
}

/// What some versions of xe tell of each tile, and i915 outside of the kernel's
/// tree of the whole card.
fn own_memory(card: &Card) -> Reading<Bytes> {
    let mut all: Vec<Reading<u64>> = gt::tiles(card)
        .iter()
        .map(|tile| sysfs::number(&tile.join("physical_vram_size_bytes")))
        .collect();
    if all.is_empty() {
        all.push(sysfs::number(&card.directory.join("lmem_total_bytes")));
    }
    let mut sum: u64 = 0;
    for size in all {
        match size {
            Reading::Value(size) => sum = sum.saturating_add(size),
            unknown => return unknown.because(),
        }
    }
    if sum == 0 {
        return Reading::Unsupported;
    }
    Reading::Value(Bytes(sum))
}

/// Of its memory, where that is HBM.
fn memory_clock_max(card: &Card) -> Reading<Megahertz> {
    let of_tiles = gt::tiles(card)
        .into_iter()
        .map(|tile| gt::megahertz(&tile.join("memory/freq0/max_freq")));
    greatest(of_tiles)
}

/// The greatest of those there are; not known when one of them failed, for that
/// may have been it.
fn greatest<T: Ord>(readings: impl Iterator<Item = Reading<T>>) -> Reading<T> {
    readings.fold(Reading::Unsupported, |greatest, reading| {
        match (greatest, reading) {
            (Reading::Value(a), Reading::Value(b)) => Reading::Value(a.max(b)),
            (Reading::Failed(why), _) | (_, Reading::Failed(why)) => Reading::Failed(why),
            (Reading::Value(one), _) | (_, Reading::Value(one)) => Reading::Value(one),
            (other, _) => other,
        }
    })
}

#[cfg(test)]
mod captures;

#[cfg(test)]
mod tests;
