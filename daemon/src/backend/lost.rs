//! Gives a device that the driver cannot reach the name it had when it was
//! last read. Remembered here and not in the sensor: a device that is lost
//! often takes the sensor with it.

use super::{DeviceReadings, LostDevice, MemoryReadings, Readings};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, Vendor};
use std::collections::BTreeMap;

/// What each index was called when it last answered.
#[derive(Default)]
pub(super) struct Names(BTreeMap<u32, Named>);

struct Named {
    id: DeviceId,
    vendor: Vendor,
    name: Reading<String>,
    pci: Reading<String>,
}

impl Names {
    /// The same readings with the devices that are lost among the others. One
    /// that never had a name is a fault.
    pub(super) fn complete(&mut self, mut readings: Readings) -> Readings {
        // One that is lost half-way may not have told its name any more.
        let well = |device: &&DeviceReadings| device.lost.is_none();
        for device in readings.devices.iter().filter(well) {
            self.0.insert(device.index, Named::from(device));
        }
        for lost in std::mem::take(&mut readings.lost) {
            // Indices move when devices come and go: a name that another
            // device has now is not this one's.
            let named = self.0.get(&lost.index).filter(|named| {
                let mut others = readings.devices.iter();
                !others.any(|device| device.id == named.id)
            });
            match named {
                Some(named) => readings.devices.push(named.lost(&lost)),
                None => {
                    let LostDevice { index, why } = lost;
                    readings.faults.push(format!("GPU at index {index}: {why}"));
                }
            }
        }
        readings
    }
}

impl From<&DeviceReadings> for Named {
    fn from(device: &DeviceReadings) -> Self {
        Self {
            id: device.id.clone(),
            vendor: device.vendor,
            name: device.name.clone(),
            pci: device.pci.clone(),
        }
    }
}

impl Named {
    fn lost(&self, lost: &LostDevice) -> DeviceReadings {
        let why = &lost.why;
        DeviceReadings {
            id: self.id.clone(),
            index: lost.index,
            vendor: self.vendor,
            name: self.name.clone(),
            pci: self.pci.clone(),
            memory: MemoryReadings::unknown(&Reading::Failed(why.clone())),
            utilization: Reading::Failed(why.clone()),
            temperature: Reading::Failed(why.clone()),
            power: Reading::Failed(why.clone()),
            power_limit: Reading::Failed(why.clone()),
            ecc_volatile: Reading::Failed(why.clone()),
            lost: Some(why.clone()),
            processes: Reading::Failed(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::BackendState;

    /// Devices that answer, by index and name, and indices that do not.
    fn readings(answer: &[(u32, &str)], lost: &[u32]) -> Readings {
        let named = |name: &str| Named {
            id: DeviceId(name.to_owned()),
            vendor: Vendor::Nvidia,
            name: Reading::Value(name.to_owned()),
            pci: Reading::Unsupported,
        };
        let gone = |index| LostDevice {
            index,
            why: "gone".to_owned(),
        };
        let devices = answer.iter().map(|(index, name)| DeviceReadings {
            lost: None,
            ..named(name).lost(&gone(*index))
        });
        Readings {
            state: BackendState::Ready,
            driver: Reading::Unsupported,
            cuda: Reading::Unsupported,
            devices: devices.collect(),
            lost: lost.iter().copied().map(gone).collect(),
            faults: Vec::new(),
            cost_us: 0,
        }
    }

    fn seen(readings: &Readings) -> Vec<(u32, &str, bool)> {
        let devices = readings.devices.iter();
        devices
            .map(|device| (device.index, device.id.0.as_str(), device.lost.is_some()))
            .collect()
    }

    #[test]
    fn a_lost_device_keeps_the_name_it_had() {
        let mut names = Names::default();
        names.complete(readings(&[(0, "a"), (1, "b")], &[]));
        for _ in 0..2 {
            let lost = names.complete(readings(&[(0, "a")], &[1]));
            assert_eq!(seen(&lost), [(0, "a", false), (1, "b", true)]);
            assert_eq!(lost.faults, Vec::<String>::new());
        }
    }

    #[test]
    fn a_lost_device_without_a_name_of_its_own_is_a_fault() {
        let mut names = Names::default();
        let fault = |index: u32| [format!("GPU at index {index}: gone")];
        let never_seen = names.complete(readings(&[(0, "a")], &[1]));
        assert_eq!(seen(&never_seen), [(0, "a", false)]);
        assert_eq!(never_seen.faults, fault(1));
        // What was called so before answers under another index now.
        let moved = names.complete(readings(&[(1, "a")], &[0]));
        assert_eq!(seen(&moved), [(1, "a", false)]);
        assert_eq!(moved.faults, fault(0));
    }
}
