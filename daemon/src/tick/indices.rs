//! The number of each device, for display and for typing.
//!
//! Devices are counted in the order of their PCI addresses, whoever made them.
//! A number, once given, stays: somebody may have just read it, to end what runs
//! there.

use crate::backend::DeviceReadings;
use gpukill_proto::snapshot::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// The numbers that were given.
#[derive(Debug, Default)]
pub(super) struct Indices(BTreeMap<DeviceId, u32>);

impl Indices {
    /// The number of each of these; `are_all` says whether every backend has
    /// answered: before that, numbers are not for good.
    pub(super) fn of<'a>(
        &mut self,
        devices: impl Iterator<Item = (&'static str, &'a DeviceReadings)> + Clone,
        are_all: bool,
    ) -> BTreeMap<DeviceId, u32> {
        let mut given = self.0.clone();
        let backends: BTreeSet<&str> = devices.clone().map(|(name, _)| name).collect();
        let mut new: Vec<&DeviceReadings> = devices
            .map(|(_, device)| device)
            .filter(|device| !given.contains_key(&device.id))
            .collect();
        new.sort_by_key(|device| (address(device), device.index));
        for device in new {
            let index = if backends.len() == 1 && !given.values().any(|it| *it == device.index) {
                // As its driver counts: `nvidia-smi` says the same.
                device.index
            } else {
                given
                    .values()
                    .max()
                    .map_or(0, |last| last.saturating_add(1))
            };
            given.insert(device.id.clone(), index);
        }
        if are_all {
            self.0.clone_from(&given);
        }
        given
    }
}

/// Those without an address come last.
fn address(device: &DeviceReadings) -> (bool, Option<&String>, &DeviceId) {
    let pci = device.pci.last_known();
    (pci.is_none(), pci, &device.id)
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
}
