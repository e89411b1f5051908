//! The number of each device, for display and for typing.
//!
//! Devices are counted in the order of their PCI addresses, whoever made them, and
//! whether their driver is loaded or not: so they have the same numbers when the
//! daemon starts again. A number, once given, stays: somebody may have just read
//! it, to end what runs there.

use super::slots::Bus;
use crate::backend::DeviceReadings;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::snapshot::{DeviceId, Vendor};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of devices.
#[derive(Debug, Default)]
pub(super) struct Indices {
    bus: Option<Bus>,
    given: Given,
    /// For so many polls numbers were not for good because an address was missing.
    waited: u8,
}

/// For so many polls an address that could not be read is waited for.
const PATIENCE: u8 = 5;

/// The numbers that were given.
#[derive(Debug, Clone, Default)]
struct Given {
    devices: BTreeMap<DeviceId, u32>,
    /// By PCI address: places of devices, and those kept for GPUs whose driver has
    /// not told of them yet. A GPU that slept when its driver was first asked has
    /// another name later, and is where it was.
    places: BTreeMap<String, u32>,
}

/// The backend whose numbers people know from elsewhere.
const NVIDIA: &str = "nvidia";

/// So many devices are remembered that are gone: none is forgotten on a real box.
const MOST: usize = 4_096;

impl Indices {
    /// Of the devices on this bus, and of others.
    pub(super) fn on(bus: Bus) -> Self {
        Self {
            bus: Some(bus),
            given: Given::default(),
            waited: 0,
        }
    }

    /// The bus that the devices are on.
    pub(super) const fn bus(&self) -> Option<&Bus> {
        self.bus.as_ref()
    }

    /// The number of each of these; `are_all` says whether every backend has
    /// answered: before that, numbers are not for good.
    pub(super) fn of<'a>(
        &mut self,
        devices: impl Iterator<Item = (&'static str, &'a DeviceReadings)> + Clone,
        are_all: bool,
    ) -> BTreeMap<DeviceId, u32> {
        let mut given = self.given.clone();
        let here: BTreeSet<&DeviceId> = devices.clone().map(|(_, device)| &device.id).into_set();
        let mut new: Vec<&DeviceReadings> = devices
            .clone()
            .map(|(_, device)| device)
            .filter(|device| !given.devices.contains_key(&device.id))
            .collect();
        if new.is_empty() {
            return given.devices;
        }
        given.forget(&here);
        new.sort_indirect_by_key(|device| {
            let address = address(device);
            (address.is_none(), address, device.index)
        });
        let slots = self.bus.as_ref().map_or_else(Vec::new, Bus::slots);
        let are_nvidias = devices.map(|(name, _)| name).all(|name| name == NVIDIA)
            && slots.iter().all(|slot| slot.vendor == Vendor::Nvidia);
        if !are_nvidias {
            let slots = slots.into_iter().map(|slot| slot.address);
            let told = new.iter().filter_map(|device| address(device).cloned());
            given.keep_places(slots.chain(told).collect());
        }
        let is_out_of_place = |device: &&DeviceReadings| device.pci.failure().is_some();
        let is_one_out_of_place = !are_nvidias && new.iter().any(is_out_of_place);
        for device in new {
            // As its driver counts: `nvidia-smi` says the same.
            let wanted = are_nvidias.then_some(device.index);
            given.give(device, wanted, &here);
        }
        // A driver whose first answer lacks an address may tell it in the next.
        let waits = is_one_out_of_place && self.waited < PATIENCE;
        if are_all && waits {
            self.waited += 1;
        } else if are_all {
            self.given = given.clone();
        }
        given.devices
    }
}

impl Given {
    fn keep_places(&mut self, addresses: BTreeSet<String>) {
        for address in addresses {
            if !self.places.contains_key(&address) {
                let next = self.next();
                self.places.insert(address, next);
            }
        }
    }

    /// The number of its place, or else the one that is wanted for it, or else the
    /// next. None that another of those `here` has.
    fn give(&mut self, device: &DeviceReadings, wanted: Option<u32>, here: &BTreeSet<&DeviceId>) {
        let is_anothers = |index| {
            let mut devices = self.devices.iter();
            devices.any(|(id, given)| *given == index && here.contains(id))
        };
        let place = address(device).and_then(|address| self.places.get(address));
        let place = place.copied().filter(|index| !is_anothers(*index));
        let wanted = wanted.filter(|index| !self.all().any(|given| *given == *index));
        let index = place.or(wanted).unwrap_or_else(|| self.next());
        self.devices.insert(device.id.clone(), index);
        if let Some(address) = address(device) {
            self.places.entry(address.clone()).or_insert(index);
        }
    }

    fn next(&self) -> u32 {
        self.all().max().map_or(0, |last| last.saturating_add(1))
    }

    fn all(&self) -> impl Iterator<Item = &u32> {
        self.devices.values().chain(self.places.values())
    }

    /// A driver that makes up names, or places, fills no memory.
    fn forget(&mut self, here: &BTreeSet<&DeviceId>) {
        if self.devices.len().max(self.places.len()) > MOST {
            self.devices.retain(|id, _| here.contains(id));
            let used: BTreeSet<u32> = self.devices.values().copied().into_set();
            self.places.retain(|_, index| used.contains(index));
        }
    }
}

fn address(device: &DeviceReadings) -> Option<&String> {
    device.pci.last_known()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::Vendor;

    fn device(pci: &str, index: u32) -> DeviceReadings {
        let id = DeviceId(format!("at {pci}"));
        DeviceReadings {
            pci: Reading::Value(pci.to_owned()),
            ..DeviceReadings::unknown(id, index, Vendor::Other, &Reading::Unsupported)
        }
    }

    fn numbers(
        indices: &mut Indices,
        devices: &[(&'static str, DeviceReadings)],
        are_all: bool,
    ) -> Vec<u32> {
        let given = indices.of(devices.iter().map(|(name, it)| (*name, it)), are_all);
        devices.iter().map(|(_, it)| given[&it.id]).collect()
    }

    #[test]
    fn devices_of_several_vendors_are_counted_by_their_addresses() {
        let mixed = [
            ("nvidia", device("0000:17:00.0", 0)),
            ("nvidia", device("0000:65:00.0", 1)),
            ("amd", device("0000:03:00.0", 0)),
            ("intel", device("0000:00:02.0", 0)),
        ];
        assert_eq!(numbers(&mut Indices::default(), &mixed, true), [2, 3, 1, 0]);
    }

    #[test]
    fn devices_of_one_backend_keep_its_numbers() {
        // Number 1 is lost, and has no name yet.
        let some = [("nvidia", device("b", 0)), ("nvidia", device("a", 2))];
        assert_eq!(numbers(&mut Indices::default(), &some, true), [0, 2]);
    }

    #[test]
    fn a_number_stays_when_others_come_and_go() {
        let mut indices = Indices::default();
        let first = [("nvidia", device("0000:17:00.0", 0))];
        assert_eq!(numbers(&mut indices, &first, true), [0]);
        let both = [
            ("amd", device("0000:03:00.0", 0)),
            ("nvidia", device("0000:17:00.0", 0)),
        ];
        assert_eq!(numbers(&mut indices, &both, true), [1, 0]);
        let other = [("amd", device("0000:03:00.0", 0))];
        assert_eq!(numbers(&mut indices, &other, true), [1]);
    }

    #[test]
    fn numbers_are_for_good_only_when_all_have_answered() {
        let mut indices = Indices::default();
        let early = [("amd", device("0000:03:00.0", 0))];
        assert_eq!(numbers(&mut indices, &early, false), [0]);
        let all = [
            ("amd", device("0000:03:00.0", 0)),
            ("intel", device("0000:00:02.0", 0)),
        ];
        assert_eq!(numbers(&mut indices, &all, true), [1, 0]);
    }

    /// A sysfs with GPUs of these vendors at these addresses.
    fn sysfs(slots: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (address, vendor) in slots {
            let device = root.path().join("bus/pci/devices").join(address);
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("class"), "0x030000\n").unwrap();
            std::fs::write(device.join("vendor"), vendor).unwrap();
        }
        root
    }

    const NVIDIAS: &str = "0x10de\n";
    const AMDS: &str = "0x1002\n";

    fn indices(root: &tempfile::TempDir) -> Indices {
        Indices::on(Bus::new(root.path(), &["nvidia", "amd", "intel", "drm"]))
    }

    #[test]
    fn a_gpu_whose_driver_is_loaded_later_has_the_number_that_a_restart_would_give_it() {
        let box_ = sysfs(&[
            ("0000:01:00.0", NVIDIAS),
            ("0000:02:00.0", NVIDIAS),
            ("0000:0c:00.0", AMDS),
        ]);
        let early = [("amd", device("0000:0c:00.0", 0))];
        let all = [
            ("amd", device("0000:0c:00.0", 0)),
            ("nvidia", device("0000:01:00.0", 0)),
            ("nvidia", device("0000:02:00.0", 1)),
        ];
        let mut before = indices(&box_);
        assert_eq!(numbers(&mut before, &early, true), [2]);
        assert_eq!(numbers(&mut before, &all, true), [2, 0, 1]);
        let mut restarted = indices(&box_);
        assert_eq!(numbers(&mut restarted, &all, true), [2, 0, 1]);
        // Before all have answered, and when cards come one after another.
        let mut slow = indices(&box_);
        assert_eq!(numbers(&mut slow, &all[2..], false), [1]);
        assert_eq!(numbers(&mut slow, &early, true), [2]);
        assert_eq!(numbers(&mut slow, &all[1..2], true), [0]);
        let late = sysfs(&[("0000:00:08.0", AMDS), ("0000:01:00.0", NVIDIAS)]);
        let mut alone = indices(&late);
        assert_eq!(numbers(&mut alone, &all[1..2], true), [1]);
        // One that nobody could know of comes after all of them.
        let plugged = [("amd", device("0000:00:01.0", 0))];
        assert_eq!(numbers(&mut slow, &plugged, true), [3]);
    }

    #[test]
    fn an_address_that_could_not_be_read_is_waited_for_but_not_for_ever() {
        let box_ = sysfs(&[("0000:01:00.0", NVIDIAS), ("0000:0c:00.0", AMDS)]);
        let amds = device("0000:0c:00.0", 0);
        let nowhere = DeviceReadings {
            pci: Reading::Failed("NVML_ERROR_UNKNOWN".into()),
            ..device("0000:01:00.0", 0)
        };
        let silent = [("nvidia", nowhere), ("amd", amds.clone())];
        let told = [("nvidia", device("0000:01:00.0", 0)), ("amd", amds)];
        let mut patient = indices(&box_);
        assert_eq!(numbers(&mut patient, &silent, true), [2, 1]);
        assert_eq!(numbers(&mut patient, &told, true), [0, 1]);
        let mut tired = indices(&box_);
        for _ in 0..=PATIENCE {
            assert_eq!(numbers(&mut tired, &silent, true), [2, 1]);
        }
        assert_eq!(numbers(&mut tired, &told, true), [2, 1]);
    }

    #[test]
    fn where_all_are_nvidias_the_numbers_are_those_of_nvidia_smi() {
        // One of them is excluded by a parameter of the driver.
        let box_ = sysfs(&[
            ("0000:01:00.0", NVIDIAS),
            ("0000:02:00.0", NVIDIAS),
            ("0000:03:00.0", NVIDIAS),
        ]);
        let told = [
            ("nvidia", device("0000:01:00.0", 0)),
            ("nvidia", device("0000:03:00.0", 1)),
        ];
        assert_eq!(numbers(&mut indices(&box_), &told, true), [0, 1]);
    }

    #[test]
    fn a_gpu_that_tells_its_name_late_keeps_its_number() {
        let named = |id: &str| DeviceReadings {
            id: DeviceId(id.to_owned()),
            ..device("0000:01:00.0", 0)
        };
        for root in [sysfs(&[]), sysfs(&[("0000:0c:00.0", AMDS)])] {
            let mut indices = indices(&root);
            let asleep = [("nvidia", named("0000:01:00.0"))];
            assert_eq!(numbers(&mut indices, &asleep, true), [0]);
            let awake = [("nvidia", named("GPU-a"))];
            assert_eq!(numbers(&mut indices, &awake, true), [0]);
        }
    }

    #[test]
    fn two_devices_in_one_place_have_two_numbers() {
        let named = |id: &str, index| DeviceReadings {
            id: DeviceId(id.to_owned()),
            ..device("0000:01:00.0", index)
        };
        for name in ["amd", "nvidia"] {
            let parts = [(name, named("a", 0)), (name, named("b", 0))];
            assert_eq!(numbers(&mut Indices::default(), &parts, true), [0, 1]);
        }
    }

    #[test]
    fn names_that_are_made_up_fill_no_memory() {
        let mut indices = Indices::default();
        for index in 0..=u32::try_from(MOST).unwrap() {
            let made_up = device(&format!("{index:05}"), index);
            indices.given.give(&made_up, None, &BTreeSet::new());
        }
        let last = device("04096", 0);
        let listed = [("amd", last.clone()), ("amd", device("10000", 0))];
        assert_eq!(numbers(&mut indices, &listed, true), [4_096, 4_097]);
        let Given { devices, places } = indices.given;
        assert_eq!(devices.into_values().collect::<Vec<_>>(), [4_096, 4_097]);
        assert_eq!(places.into_values().collect::<Vec<_>>(), [4_096, 4_097]);
    }
}
