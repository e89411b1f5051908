//! The index of each device, for display and for typing.
//!
//! Devices are numbered in the order of their PCI addresses, across vendors, and whether or not
//! their driver is loaded, so that they keep their indices when the daemon restarts. An index never
//! changes once it is assigned: a user may have just read it to end a process there.

use super::pci_slots::PciBus;
use crate::backend::DeviceReadings;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, Vendor};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct DeviceIndices {
    bus: Option<PciBus>,
    assigned: AssignedIndices,
    /// For how many polls indices stayed provisional because an address was missing.
    waited_polls: u8,
}

/// For how many polls an unreadable address is waited for.
const MAX_WAIT_POLLS: u8 = 5;

#[derive(Debug, Clone, Default)]
struct AssignedIndices {
    devices: BTreeMap<DeviceId, u32>,
    /// By PCI address, both of devices and of GPUs that their driver has not reported yet. A GPU
    /// that slept when its driver was first asked has another id later, but the same address.
    by_address: BTreeMap<String, u32>,
}

/// The backend with the indices that users know from `nvidia-smi`.
const NVIDIA: &str = "nvidia";

/// How many devices are remembered after they are gone: more than any real host has.
const MAX_DEVICES: usize = 4_096;

impl DeviceIndices {
    pub(super) fn on_bus(bus: PciBus) -> Self {
        Self {
            bus: Some(bus),
            assigned: AssignedIndices::default(),
            waited_polls: 0,
        }
    }

    pub(super) const fn bus(&self) -> Option<&PciBus> {
        self.bus.as_ref()
    }

    /// The index of each of these devices. `are_all` is whether every backend has answered: before
    /// that, indices are provisional.
    pub(super) fn assign<'a>(
        &mut self,
        devices: impl Iterator<Item = (&'static str, &'a DeviceReadings)> + Clone,
        are_all: bool,
    ) -> BTreeMap<DeviceId, u32> {
        let mut given = self.assigned.clone();
        let present: BTreeSet<&DeviceId> = devices.clone().map(|(_, device)| &device.id).into_set();
        let mut new: Vec<&DeviceReadings> = devices
            .clone()
            .map(|(_, device)| device)
            .filter(|device| !given.devices.contains_key(&device.id))
            .collect();
        if new.is_empty() {
            return given.devices;
        }
        given.forget(&present);
        new.sort_indirect_by_key(|device| {
            let address = address(device);
            (address.is_none(), address, device.index)
        });
        let slots = self.bus.as_ref().map_or_else(Vec::new, PciBus::slots);
        let are_nvidias = devices.map(|(name, _)| name).all(|name| name == NVIDIA)
            && slots.iter().all(|slot| slot.vendor == Vendor::Nvidia);
        if !are_nvidias {
            let slots = slots.into_iter().map(|slot| slot.address);
            let reported = new.iter().filter_map(|device| address(device).cloned());
            given.reserve_addresses(slots.chain(reported).into_set());
        }
        let is_out_of_place = |device: &&DeviceReadings| device.pci.failure().is_some();
        let is_any_out_of_place = !are_nvidias && new.iter().any(is_out_of_place);
        for device in new {
            // The driver's own number, as in `nvidia-smi`.
            let wanted = are_nvidias.then_some(device.index);
            given.assign(device, wanted, &present);
        }
        // A first answer may lack an address that the next one has.
        let may_wait = is_any_out_of_place && self.waited_polls < MAX_WAIT_POLLS;
        if are_all && may_wait {
            self.waited_polls += 1;
        } else if are_all {
            self.assigned = given.clone();
        }
        given.devices
    }
}

impl AssignedIndices {
    fn reserve_addresses(&mut self, addresses: BTreeSet<String>) {
        for address in addresses {
            if !self.by_address.contains_key(&address) {
                let next = self.next_index();
                self.by_address.insert(address, next);
            }
        }
    }

    /// Assigns the index of its address, else the wanted one, else the next. Never an index that
    /// another device in `present` has.
    fn assign(
        &mut self,
        device: &DeviceReadings,
        wanted: Option<u32>,
        present: &BTreeSet<&DeviceId>,
    ) {
        let is_taken = |index| {
            let mut devices = self.devices.iter();
            devices.any(|(id, given)| *given == index && present.contains(id))
        };
        let known_index = address(device).and_then(|address| self.by_address.get(address));
        let known_index = known_index.copied().filter(|index| !is_taken(*index));
        let wanted = wanted.filter(|index| !self.all_indices().any(|given| *given == *index));
        let index = known_index.or(wanted).unwrap_or_else(|| self.next_index());
        self.devices.insert(device.id.clone(), index);
        if let Some(address) = address(device) {
            self.by_address.entry(address.clone()).or_insert(index);
        }
    }

    fn next_index(&self) -> u32 {
        self.all_indices()
            .max()
            .map_or(0, |last| last.saturating_add(1))
    }

    fn all_indices(&self) -> impl Iterator<Item = &u32> {
        self.devices.values().chain(self.by_address.values())
    }

    /// Bounds the memory against a driver that invents ids or addresses.
    fn forget(&mut self, present: &BTreeSet<&DeviceId>) {
        if self.devices.len().max(self.by_address.len()) > MAX_DEVICES {
            self.devices.retain_entries(|id, _| present.contains(id));
            let used: BTreeSet<u32> = self.devices.values().copied().into_set();
            self.by_address
                .retain_entries(|_, index| used.contains(index));
        }
    }
}

fn address(device: &DeviceReadings) -> Option<&String> {
    device.pci.last_known()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::Vendor;
    use gpukill_proto::reading::Reading;

    fn device(pci: &str, index: u32) -> DeviceReadings {
        let id = DeviceId(format!("at {pci}"));
        DeviceReadings {
            pci: Reading::Value(pci.to_owned()),
            ..DeviceReadings::unknown(id, index, Vendor::Other, &Reading::Unsupported)
        }
    }

    fn numbers(
        indices: &mut DeviceIndices,
        devices: &[(&'static str, DeviceReadings)],
        are_all: bool,
    ) -> Vec<u32> {
        let given = indices.assign(devices.iter().map(|(name, it)| (*name, it)), are_all);
        devices.iter().map(|(_, it)| given[&it.id]).collect()
    }

    #[test]
    fn several_vendors_count_by_address() {
        let mixed = [
            ("nvidia", device("0000:17:00.0", 0)),
            ("nvidia", device("0000:65:00.0", 1)),
            ("amd", device("0000:03:00.0", 0)),
            ("intel", device("0000:00:02.0", 0)),
        ];
        assert_eq!(
            numbers(&mut DeviceIndices::default(), &mixed, true),
            [2, 3, 1, 0]
        );
    }

    #[test]
    fn single_backend_keeps_its_numbers() {
        // Number 1 is lost and has no name yet.
        let some = [("nvidia", device("b", 0)), ("nvidia", device("a", 2))];
        assert_eq!(numbers(&mut DeviceIndices::default(), &some, true), [0, 2]);
    }

    #[test]
    fn index_stays_when_others_come_and_go() {
        let mut indices = DeviceIndices::default();
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
    fn indices_are_final_after_all_answered() {
        let mut indices = DeviceIndices::default();
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

    fn indices(root: &tempfile::TempDir) -> DeviceIndices {
        DeviceIndices::on_bus(PciBus::new(root.path(), &["nvidia", "amd", "intel", "drm"]))
    }

    #[test]
    fn late_driver_gets_its_restart_index() {
        let tree = sysfs(&[
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
        let mut before = indices(&tree);
        assert_eq!(numbers(&mut before, &early, true), [2]);
        assert_eq!(numbers(&mut before, &all, true), [2, 0, 1]);
        let mut restarted = indices(&tree);
        assert_eq!(numbers(&mut restarted, &all, true), [2, 0, 1]);
        // Before all have answered, and when cards appear one after the other.
        let mut slow = indices(&tree);
        assert_eq!(numbers(&mut slow, &all[2..], false), [1]);
        assert_eq!(numbers(&mut slow, &early, true), [2]);
        assert_eq!(numbers(&mut slow, &all[1..2], true), [0]);
        let late = sysfs(&[("0000:00:08.0", AMDS), ("0000:01:00.0", NVIDIAS)]);
        let mut alone = indices(&late);
        assert_eq!(numbers(&mut alone, &all[1..2], true), [1]);
        // A GPU that was not on the bus comes after all of them.
        let plugged = [("amd", device("0000:00:01.0", 0))];
        assert_eq!(numbers(&mut slow, &plugged, true), [3]);
    }

    #[test]
    fn waits_a_few_polls_for_an_address() {
        let tree = sysfs(&[("0000:01:00.0", NVIDIAS), ("0000:0c:00.0", AMDS)]);
        let amds = device("0000:0c:00.0", 0);
        let nowhere = DeviceReadings {
            pci: Reading::Failed("NVML_ERROR_UNKNOWN".into()),
            ..device("0000:01:00.0", 0)
        };
        let silent = [("nvidia", nowhere), ("amd", amds.clone())];
        let reported = [("nvidia", device("0000:01:00.0", 0)), ("amd", amds)];
        let mut patient = indices(&tree);
        assert_eq!(numbers(&mut patient, &silent, true), [2, 1]);
        assert_eq!(numbers(&mut patient, &reported, true), [0, 1]);
        let mut tired = indices(&tree);
        for _ in 0..=MAX_WAIT_POLLS {
            assert_eq!(numbers(&mut tired, &silent, true), [2, 1]);
        }
        assert_eq!(numbers(&mut tired, &reported, true), [2, 1]);
    }

    #[test]
    fn all_nvidia_uses_nvidia_smi_numbers() {
        // A driver parameter excludes one of them.
        let tree = sysfs(&[
            ("0000:01:00.0", NVIDIAS),
            ("0000:02:00.0", NVIDIAS),
            ("0000:03:00.0", NVIDIAS),
        ]);
        let reported = [
            ("nvidia", device("0000:01:00.0", 0)),
            ("nvidia", device("0000:03:00.0", 1)),
        ];
        assert_eq!(numbers(&mut indices(&tree), &reported, true), [0, 1]);
    }

    #[test]
    fn late_name_keeps_its_index() {
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
    fn two_devices_at_one_address_differ() {
        let named = |id: &str, index| DeviceReadings {
            id: DeviceId(id.to_owned()),
            ..device("0000:01:00.0", index)
        };
        for name in ["amd", "nvidia"] {
            let parts = [(name, named("a", 0)), (name, named("b", 0))];
            assert_eq!(numbers(&mut DeviceIndices::default(), &parts, true), [0, 1]);
        }
    }

    #[test]
    fn invented_names_fill_no_memory() {
        let mut indices = DeviceIndices::default();
        for index in 0..=u32::try_from(MAX_DEVICES).unwrap() {
            let made_up = device(&format!("{index:05}"), index);
            indices.assigned.assign(&made_up, None, &BTreeSet::new());
        }
        let last = device("04096", 0);
        let listed = [("amd", last.clone()), ("amd", device("10000", 0))];
        assert_eq!(numbers(&mut indices, &listed, true), [4_096, 4_097]);
        let AssignedIndices {
            devices,
            by_address,
        } = indices.assigned;
        assert_eq!(devices.into_values().collect::<Vec<_>>(), [4_096, 4_097]);
        assert_eq!(by_address.into_values().collect::<Vec<_>>(), [4_096, 4_097]);
    }
}
