//! Names a device that the driver cannot read by its last known name. The names are kept here and
//! not in the sensor: a lost device often ends the sensor.

use super::{BackendReadings, DeviceReadings, LostDevice};
use crate::fault::FaultCause;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{DeviceId, FaultCode, LossKind, Vendor};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// The name of the device at each index when it last answered.
#[derive(Default)]
pub(super) struct DeviceNames(BTreeMap<u32, NamedDevice>);

struct NamedDevice {
    id: DeviceId,
    vendor: Vendor,
    name: Reading<String>,
    pci: Reading<String>,
}

impl DeviceNames {
    /// Adds the lost devices to the readings. A device that never answered gets its name from the
    /// kernel driver, which the callback reads; a device without any name is a fault.
    pub(super) fn name_lost_devices(
        &mut self,
        mut readings: BackendReadings,
        read_driver_files: impl FnOnce() -> Vec<DeviceReadings>,
    ) -> BackendReadings {
        // A device that is lost half-way may not report its name any more, but has been identified.
        for device in readings.devices.iter_mut().filter(|it| it.lost.is_some()) {
            self.name_lost(device);
        }
        for device in &readings.devices {
            self.0.insert(device.index, NamedDevice::from(device));
        }
        self.name_by_driver(&readings, read_driver_files);
        for lost in std::mem::take(&mut readings.lost) {
            // Indices move when devices come and go: a name that another device has now does not
            // belong to this one.
            let named = self.0.get(&lost.index).filter(|named| {
                let mut others = readings.devices.iter();
                !others.any(|device| device.id == named.id)
            });
            match named {
                Some(named) => readings.devices.push(named.lost_readings(&lost)),
                None => {
                    readings.faults.push(unnamed_fault(&lost));
                }
            }
        }
        readings
    }

    /// A device that is lost half-way keeps its names.
    fn name_lost(&self, device: &mut DeviceReadings) {
        let Some(named) = self.0.values().find(|named| named.id == device.id) else {
            return;
        };
        if device.name.known().is_none() {
            device.name.clone_from(&named.name);
        }
        if device.pci.known().is_none() {
            device.pci.clone_from(&named.pci);
        }
    }

    /// NVML counts devices in the order of their addresses: if the kernel driver names exactly as
    /// many unknown devices as are lost, they are the same devices.
    fn name_by_driver(
        &mut self,
        readings: &BackendReadings,
        read_driver_files: impl FnOnce() -> Vec<DeviceReadings>,
    ) {
        let unnamed = readings.lost.iter().map(|lost| lost.index);
        let mut unnamed: Vec<u32> = unnamed.filter(|at| !self.0.contains_key(at)).collect();
        if unnamed.is_empty() {
            return;
        }
        unnamed.sort_indirect();
        let answered = readings
            .devices
            .iter()
            .map(|device| (&device.id, &device.pci));
        let named = self.0.values().map(|named| (&named.id, &named.pci));
        let known: Vec<_> = answered.chain(named).collect();
        let is_known = |device: &DeviceReadings| {
            let same = |(id, pci): &(&DeviceId, &Reading<String>)| {
                **id == device.id || (pci.known().is_some() && **pci == device.pci)
            };
            known.iter().any(same)
        };
        let mut others: Vec<DeviceReadings> = read_driver_files();
        others.retain(|device| !is_known(device));
        others.sort_indirect_by(|a, b| a.pci.known().cmp(&b.pci.known()));
        if others.len() == unnamed.len() {
            let names = others.iter().map(NamedDevice::from);
            self.0.extend(unnamed.into_iter().zip(names));
        }
    }
}

/// The fault of a lost device without a name, with the remedy: no gpukill command can address it.
fn unnamed_fault(LostDevice { index, cause }: &LostDevice) -> FaultCause {
    let why = &cause.why;
    let remedy = match cause.kind {
        LossKind::Lost => {
            format!(": its name is unknown: nvidia-smi --gpu-reset -i {index}, or a reboot")
        }
        LossKind::NotPermitted => cause.kind.remedy().to_owned(),
        LossKind::Gone | LossKind::Unknown => String::new(),
    };
    let what = format!("GPU at index {index}: {why}{remedy}");
    FaultCause::new(FaultCode::GpuUnnamed, what)
}

impl From<&DeviceReadings> for NamedDevice {
    fn from(device: &DeviceReadings) -> Self {
        Self {
            id: device.id.clone(),
            vendor: device.vendor,
            name: device.name.clone(),
            pci: device.pci.clone(),
        }
    }
}

impl NamedDevice {
    fn lost_readings(&self, lost: &LostDevice) -> DeviceReadings {
        let failed = Reading::Failed(lost.cause.why.clone());
        DeviceReadings {
            name: self.name.clone(),
            pci: self.pci.clone(),
            lost: Some(lost.cause.clone()),
            ..DeviceReadings::unknown(self.id.clone(), lost.index, self.vendor, &failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::LossCause;
    use gpukill_proto::model::BackendState;

    /// Devices that answer, by index and name, and indices of lost devices.
    fn readings(answer: &[(u32, &str)], lost: &[u32]) -> BackendReadings {
        let named = |name: &str| NamedDevice {
            id: DeviceId(name.to_owned()),
            vendor: Vendor::Nvidia,
            name: Reading::Value(name.to_owned()),
            pci: Reading::Unsupported,
        };
        let gone = |index| LostDevice {
            index,
            cause: LossCause {
                kind: LossKind::Unknown,
                why: "gone".to_owned(),
            },
        };
        let devices = answer.iter().map(|(index, name)| DeviceReadings {
            lost: None,
            ..named(name).lost_readings(&gone(*index))
        });
        BackendReadings {
            devices: devices.collect(),
            lost: lost.iter().copied().map(gone).collect(),
            ..BackendReadings::without_devices(BackendState::Ready)
        }
    }

    fn summary(readings: &BackendReadings) -> Vec<(u32, &str, bool)> {
        let devices = readings.devices.iter();
        devices
            .map(|device| (device.index, device.id.0.as_str(), device.lost.is_some()))
            .collect()
    }

    #[test]
    fn lost_device_keeps_its_name() {
        let mut names = DeviceNames::default();
        names.name_lost_devices(readings(&[(0, "a"), (1, "b")], &[]), Vec::new);
        for _ in 0..2 {
            let lost = names.name_lost_devices(readings(&[(0, "a")], &[1]), Vec::new);
            assert_eq!(summary(&lost), [(0, "a", false), (1, "b", true)]);
            assert_eq!(lost.faults, []);
        }
    }

    #[test]
    fn half_lost_device_keeps_its_name() {
        let mut names = DeviceNames::default();
        names.name_lost_devices(readings(&[(0, "a"), (1, "b")], &[]), Vec::new);
        let mut half = readings(&[(0, "a"), (1, "b")], &[]);
        half.devices[1].name = Reading::Failed("gone".into());
        half.devices[1].lost = Some(LossCause {
            kind: LossKind::Lost,
            why: "gone".into(),
        });
        let half = names.name_lost_devices(half, Vec::new);
        assert_eq!(half.devices[1].name, Reading::Value("b".into()));
    }

    #[test]
    fn initially_lost_device_keeps_its_name() {
        let mut names = DeviceNames::default();
        let mut half = readings(&[(0, "a"), (1, "b")], &[]);
        half.devices[1].lost = Some(LossCause {
            kind: LossKind::Lost,
            why: "gone".into(),
        });
        names.name_lost_devices(half, Vec::new);
        let lost = names.name_lost_devices(readings(&[(0, "a")], &[1]), Vec::new);
        assert_eq!(summary(&lost), [(0, "a", false), (1, "b", true)]);
        assert_eq!(lost.faults, []);
    }

    #[test]
    fn unnamed_device_has_a_remedy() {
        let lost = |kind| {
            unnamed_fault(&LostDevice {
                index: 2,
                cause: LossCause {
                    kind,
                    why: "why".into(),
                },
            })
        };
        let reset = "its name is unknown: nvidia-smi --gpu-reset -i 2, or a reboot";
        for (kind, remedy) in [
            (LossKind::Lost, format!(": {reset}")),
            (
                LossKind::NotPermitted,
                ": see the modes of /dev/nvidia*".into(),
            ),
            (LossKind::Unknown, String::new()),
        ] {
            assert_eq!(lost(kind).what, format!("GPU at index 2: why{remedy}"));
        }
    }

    #[test]
    fn unnamed_lost_device_is_a_fault() {
        let mut names = DeviceNames::default();
        let fault = |index: u32| {
            let what = format!("GPU at index {index}: gone");
            [FaultCause::new(FaultCode::GpuUnnamed, what)]
        };
        let never_seen = names.name_lost_devices(readings(&[(0, "a")], &[1]), Vec::new);
        assert_eq!(summary(&never_seen), [(0, "a", false)]);
        assert_eq!(never_seen.faults, fault(1));
        // The device with that name now answers under another index.
        let moved = names.name_lost_devices(readings(&[(1, "a")], &[0]), Vec::new);
        assert_eq!(summary(&moved), [(1, "a", false)]);
        assert_eq!(moved.faults, fault(0));
    }

    #[test]
    fn kernel_driver_names_unambiguous_devices() {
        let read_driver_files = |names: &[&str]| -> Vec<DeviceReadings> {
            let device = |name: &&str| {
                let id = DeviceId((*name).to_owned());
                let unknown = &Reading::Unsupported;
                DeviceReadings {
                    pci: Reading::Value((*name).to_owned()),
                    ..DeviceReadings::unknown(id, 0, Vendor::Nvidia, unknown)
                }
            };
            names.iter().map(device).collect()
        };
        let mut names = DeviceNames::default();
        let lost = readings(&[(1, "b")], &[0, 2]);
        let named = names.name_lost_devices(lost.clone(), || read_driver_files(&["c", "b", "a"]));
        let mut all = summary(&named);
        all.sort_unstable();
        assert_eq!(all, [(0, "a", true), (1, "b", false), (2, "c", true)]);
        // The driver is read once.
        let again = names.name_lost_devices(lost, || unreachable!());
        assert_eq!(summary(&again).len(), 3);
        let mut names = DeviceNames::default();
        let doubtful = names.name_lost_devices(readings(&[(1, "b")], &[0]), || {
            read_driver_files(&["c", "b", "a"])
        });
        assert_eq!(summary(&doubtful), [(1, "b", false)]);
    }
}
