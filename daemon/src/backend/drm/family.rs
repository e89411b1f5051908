//! The backends of the configuration that read DRM cards: `amd`, `intel`, `drm`.
//! Each card is read on a thread of its own, so that one whose driver hangs
//! delays no other.

use super::card::{Card, Cards};
use super::one::One;
use crate::backend::reader::{Latest, Reader};
use crate::backend::{Backend, DeviceReadings, Failure, Readings, Roots, SILENT};
use crate::faults::FaultCause;
use crate::holders::{DeviceNumber, Holders, When};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, FaultCode, GpuEvent};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// Which drivers a backend reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `amdgpu`, and `radeon` before it.
    Amd,
    /// `i915` and `xe`.
    Intel,
    /// Every other, but NVIDIA's own.
    Other,
}

impl Family {
    /// As in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Other => "drm",
        }
    }

    fn of(driver: &str) -> Self {
        match driver {
            "amdgpu" | "radeon" => Self::Amd,
            "i915" | "xe" => Self::Intel,
            _ => Self::Other,
        }
    }

    const fn absent(self) -> &'static str {
        match self {
            Self::Amd => "no GPU with the driver amdgpu",
            Self::Intel => "no GPU with the driver i915 or xe",
            Self::Other => "no GPU with another DRM driver",
        }
    }
}

/// How long a round waits for its cards. A healthy card answers in one or two
/// milliseconds.
const PATIENCE: Duration = Duration::from_millis(300);

/// More cards than this are no box but garbage.
const MOST_CARDS: usize = 128;

/// A backend: the cards of one family.
pub(crate) struct Drm {
    family: Family,
    roots: Roots,
    holders: Holders,
    cards: Cards,
    readers: BTreeMap<DeviceId, (Card, Reader)>,
    /// What each card was called when it last answered, whatever drove it then.
    names: BTreeMap<DeviceId, Reading<String>>,
    faults: Vec<FaultCause>,
}

impl Drm {
    /// Reads below these roots. `holders` says who has a card open.
    pub(crate) fn new(family: Family, roots: Roots, holders: Holders) -> Self {
        Self {
            family,
            cards: Cards::new(&roots.sysfs),
            roots,
            holders,
            readers: BTreeMap::new(),
            names: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// Starts a thread for each card that came, and ends those of cards that
    /// went, or that are driven otherwise now.
    fn follow(&mut self) {
        let is_ours = |driver: &str| Family::of(driver) == self.family;
        let (here, too_many) = bounded(self.cards.now(is_ours, Instant::now()));
        self.readers
            .retain(|id, (card, _)| here.get(id) == Some(card));
        self.names.retain(|id, _| here.contains_key(id));
        self.faults.clear();
        self.faults.extend(too_many);
        for (id, card) in here {
            if self.readers.contains_key(&id) {
                continue;
            }
            let one = One::new(self.family, card.clone(), &self.roots, self.holders.clone());
            match Reader::start(one, || {}) {
                Ok(reader) => {
                    self.readers.insert(id, (card, reader));
                }
                Err(_) => {
                    let what = format!("{}: the system gives no thread", card.name);
                    self.faults.push(FaultCause::new(FaultCode::NoThread, what));
                }
            }
        }
    }

    /// Asks all cards at once.
    fn ask(&mut self) -> Vec<DeviceReadings> {
        let deadline = Instant::now() + PATIENCE;
        for (_, reader) in self.readers.values() {
            reader.ask();
        }
        let mut devices = Vec::new();
        for (id, (card, reader)) in &self.readers {
            let latest = reader.latest(deadline);
            let told = told(&latest, &mut self.faults);
            let device = match told {
                Some(device) => {
                    self.names.insert(id.clone(), device.name.clone());
                    device
                }
                None => silent(card, &latest, self.names.get(id)),
            };
            devices.push(device);
        }
        devices
    }
}

/// The cards that are read, by what names them, and what to say of the others: those
/// whose names come last are left out.
fn bounded(cards: &[Card]) -> (BTreeMap<DeviceId, Card>, Option<FaultCause>) {
    let all = cards.iter().map(|card| (card.id(), card.clone()));
    let mut here: BTreeMap<DeviceId, Card> = all.into_map();
    let left_out = here.len().saturating_sub(MOST_CARDS);
    for _ in 0..left_out {
        here.pop_last();
    }
    let fault = (left_out > 0).then(|| {
        let what = format!("{left_out} cards are left out: no more than {MOST_CARDS} are read");
        FaultCause::new(FaultCode::GpusLeftOut, what)
    });
    (here, fault)
}

/// What the card answered in this round; `None` where it did not.
fn told(latest: &Latest, faults: &mut Vec<FaultCause>) -> Option<DeviceReadings> {
    if !latest.is_fresh() {
        return None;
    }
    let (readings, _) = latest.readings.as_ref()?;
    faults.extend(readings.faults.iter().cloned());
    readings.devices.first().cloned()
}

/// A card whose driver does not answer: what it told last and when that was. Of one
/// that never did nothing is known but what it was called.
fn silent(card: &Card, latest: &Latest, name: Option<&Reading<String>>) -> DeviceReadings {
    let before = latest.readings.as_ref();
    let before = before.and_then(|(readings, at)| Some((readings.devices.first()?, *at)));
    if let Some((device, at)) = before {
        return DeviceReadings {
            silent_since: Some(at),
            ..device.clone()
        };
    }
    let why = Reading::Failed(SILENT.to_owned());
    let device = DeviceReadings::unknown(card.id(), 0, card.vendor(), &why);
    let pci = card.pci.as_ref().map(|pci| pci.slot.clone());
    DeviceReadings {
        name: name.cloned().unwrap_or_else(|| why.because()),
        pci: pci.map_or(Reading::Unsupported, Reading::Value),
        nodes: card.nodes.clone(),
        silent_since: Some(Timestamp::from(SystemTime::now())),
        ..device
    }
}

impl Backend for Drm {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        let started = Instant::now();
        self.follow();
        let mut devices = self.ask();
        devices.sort_indirect_by(|a, b| a.id.cmp(&b.id));
        for (index, device) in (0..).zip(&mut devices) {
            device.index = index;
        }
        let nodes = devices.iter().flat_map(|device| &device.nodes);
        let numbers: BTreeSet<DeviceNumber> = nodes.map(|node| node.number).into_set();
        self.holders
            .watch(self.family.name(), numbers, When::Always);
        let state = if devices.is_empty() && self.faults.is_empty() {
            BackendState::Absent(self.family.absent().to_owned())
        } else {
            BackendState::Ready
        };
        Ok(Readings {
            devices,
            faults: std::mem::take(&mut self.faults),
            cost_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            ..Readings::nothing(state)
        })
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn cards(many: usize) -> Vec<Card> {
        let card = |at: usize| Card {
            name: format!("card{at}"),
            directory: PathBuf::from("/nonexistent"),
            driver: "brandnew".to_owned(),
            pci: None,
            platform: Some(format!("{at:04}.gpu")),
            nodes: Vec::new(),
        };
        (0..many).map(card).collect()
    }

    #[test]
    fn of_more_cards_than_are_read_the_last_are_left_out_and_that_is_a_fault() {
        let bounded = |many| {
            let (here, fault) = bounded(&cards(many));
            (
                here.len(),
                here.last_key_value().map(|(id, _)| id.0.clone()),
                fault.map(|fault| fault.what),
            )
        };
        let last = || Some("0127.gpu".to_owned());
        assert_eq!(bounded(0), (0, None, None));
        assert_eq!(bounded(128), (128, last(), None));
        let fault = "3 cards are left out: no more than 128 are read";
        assert_eq!(bounded(131), (128, last(), Some(fault.to_owned())));
    }
}
