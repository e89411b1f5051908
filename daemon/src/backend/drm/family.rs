//! The backends that read DRM cards: `amd`, `intel` and `drm` in the configuration. Each card is
//! read on a thread of its own, so that a driver that hangs delays no other card.

use super::card::{CardList, DrmCard};
use super::card_reader::CardReader;
use crate::backend::reader::{BackendReader, LatestReadings};
use crate::backend::{
    Backend, BackendError, BackendReadings, DRIVER_NOT_ANSWERING, DeviceReadings, Roots,
};
use crate::fault::FaultCause;
use crate::fd_scan::{DeviceNumber, FdScanHandle, WatchMode};
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::{BackendState, DeviceId, FaultCode};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// The drivers that one backend reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrmFamily {
    /// `amdgpu`, and its predecessor `radeon`.
    Amd,
    /// `i915` and `xe`.
    Intel,
    /// All others, except NVIDIA's own.
    Other,
}

impl DrmFamily {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Other => "drm",
        }
    }

    fn from_driver(driver: &str) -> Self {
        match driver {
            "amdgpu" | "radeon" => Self::Amd,
            "i915" | "xe" => Self::Intel,
            _ => Self::Other,
        }
    }

    const fn absent_reason(self) -> &'static str {
        match self {
            Self::Amd => "no GPU with the driver amdgpu",
            Self::Intel => "no GPU with the driver i915 or xe",
            Self::Other => "no GPU with another DRM driver",
        }
    }
}

/// How long a round waits for its cards. A healthy card answers in one or two milliseconds.
const CARD_TIMEOUT: Duration = Duration::from_millis(300);

/// More cards than this are no real host but garbage.
const MAX_CARDS: usize = 128;

/// A backend: the cards of one family.
pub(crate) struct DrmBackend {
    family: DrmFamily,
    roots: Roots,
    holders: FdScanHandle,
    cards: CardList,
    readers: BTreeMap<DeviceId, (DrmCard, BackendReader)>,
    /// The name of each card when it last answered, also under another driver.
    names: BTreeMap<DeviceId, Reading<String>>,
    faults: Vec<FaultCause>,
}

impl DrmBackend {
    /// Reads below these roots. `holders` reports the processes that have a card open.
    pub(crate) fn new(family: DrmFamily, roots: Roots, holders: FdScanHandle) -> Self {
        Self {
            family,
            cards: CardList::new(&roots.sysfs),
            roots,
            holders,
            readers: BTreeMap::new(),
            names: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// Starts a thread for each new card, and ends the threads of cards that are gone or have
    /// another driver now.
    fn update_readers(&mut self) {
        let is_own_driver = |driver: &str| DrmFamily::from_driver(driver) == self.family;
        let (cards, too_many) = limit_cards(self.cards.refresh(is_own_driver, Instant::now()));
        self.readers
            .retain_entries(|id, (card, _)| cards.get(id) == Some(card));
        self.names.retain_entries(|id, _| cards.contains_key(id));
        self.faults.clear();
        self.faults.extend(too_many);
        for (id, card) in cards {
            if self.readers.contains_key(&id) {
                continue;
            }
            let reader =
                CardReader::new(self.family, card.clone(), &self.roots, self.holders.clone());
            match BackendReader::start(reader, || {}) {
                Ok(reader) => {
                    self.readers.insert(id, (card, reader));
                }
                Err(_) => {
                    let what = format!("{}: cannot start a thread", card.name);
                    self.faults.push(FaultCause::new(FaultCode::NoThread, what));
                }
            }
        }
    }

    /// Reads all cards at the same time.
    fn read_cards(&mut self) -> Vec<DeviceReadings> {
        let deadline = Instant::now() + CARD_TIMEOUT;
        for (_, reader) in self.readers.values() {
            reader.request();
        }
        let mut devices = Vec::new();
        for (id, (card, reader)) in &self.readers {
            let latest = reader.latest(deadline);
            let answer = fresh_answer(&latest, &mut self.faults);
            let device = match answer {
                Some(device) => {
                    self.names.insert(id.clone(), device.name.clone());
                    device
                }
                None => stale_card(card, &latest, self.names.get(id)),
            };
            devices.push(device);
        }
        devices
    }
}

/// The cards that are read, by their ids, and a fault for the others: the last ids are left out.
fn limit_cards(cards: &[DrmCard]) -> (BTreeMap<DeviceId, DrmCard>, Option<FaultCause>) {
    let all = cards.iter().map(|card| (card.id(), card.clone()));
    let mut cards: BTreeMap<DeviceId, DrmCard> = all.into_map();
    let left_out = cards.len().saturating_sub(MAX_CARDS);
    for _ in 0..left_out {
        cards.pop_last();
    }
    let fault = (left_out > 0).then(|| {
        let what = format!("{left_out} cards are left out: no more than {MAX_CARDS} are read");
        FaultCause::new(FaultCode::GpusLeftOut, what)
    });
    (cards, fault)
}

/// The card's answer in this round; `None` if there is none.
fn fresh_answer(latest: &LatestReadings, faults: &mut Vec<FaultCause>) -> Option<DeviceReadings> {
    if !latest.is_fresh() {
        return None;
    }
    let (readings, _) = latest.readings.as_ref()?;
    faults.extend(readings.faults.iter().cloned());
    readings.devices.first().cloned()
}

/// The readings of a card with a driver that does not answer: its last readings with their time. If
/// it never answered, only its name is known.
fn stale_card(
    card: &DrmCard,
    latest: &LatestReadings,
    name: Option<&Reading<String>>,
) -> DeviceReadings {
    let before = latest.readings.as_ref();
    let before = before.and_then(|(readings, at)| Some((readings.devices.first()?, *at)));
    if let Some((device, at)) = before {
        return DeviceReadings {
            stale_since: Some(at),
            ..device.clone()
        };
    }
    let why = Reading::Failed(DRIVER_NOT_ANSWERING.to_owned());
    let device = DeviceReadings::unknown(card.id(), 0, card.vendor(), &why);
    DeviceReadings {
        name: name.cloned().unwrap_or_else(|| why.as_unknown()),
        pci: card.pci_slot(),
        nodes: card.nodes.clone(),
        stale_since: Some(Timestamp::from(SystemTime::now())),
        ..device
    }
}

impl Backend for DrmBackend {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn read(&mut self) -> Result<BackendReadings, BackendError> {
        let started = Instant::now();
        self.update_readers();
        let mut devices = self.read_cards();
        devices.sort_indirect_by(|a, b| a.id.cmp(&b.id));
        for (index, device) in (0..).zip(&mut devices) {
            device.index = index;
        }
        let nodes = devices.iter().flat_map(|device| &device.nodes);
        let numbers: BTreeSet<DeviceNumber> = nodes.map(|node| node.number).into_set();
        self.holders
            .watch(self.family.name(), numbers, WatchMode::Always);
        let state = if devices.is_empty() && self.faults.is_empty() {
            BackendState::Absent(self.family.absent_reason().to_owned())
        } else {
            BackendState::Ready
        };
        Ok(BackendReadings {
            devices,
            faults: std::mem::take(&mut self.faults),
            cost_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            ..BackendReadings::without_devices(state)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn cards(many: usize) -> Vec<DrmCard> {
        let card = |at: usize| DrmCard {
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
    fn excess_cards_are_a_fault() {
        let bounded = |many| {
            let (here, fault) = limit_cards(&cards(many));
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
