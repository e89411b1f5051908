//! Gives a device that the driver cannot read the name it had when it was
//! last read. Remembered here and not in the sensor: a device that is lost
//! often takes the sensor with it.

use super::{DeviceReadings, LostDevice, Readings};
use crate::faults::FaultCause;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, FaultCode, LossKind, Vendor};
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
    /// that never answered has the name that the kernel driver, of whom `told`
    /// asks, has for it; one without any name is a fault.
    pub(super) fn complete(
        &mut self,
        mut readings: Readings,
        told: impl FnOnce() -> Vec<DeviceReadings>,
    ) -> Readings {
        // One that is lost half-way may not tell its name any more, and has told who it is.
        for device in readings.devices.iter_mut().filter(|it| it.lost.is_some()) {
            self.name_lost(device);
        }
        for device in &readings.devices {
            self.0.insert(device.index, Named::from(device));
        }
        self.name_by_driver(&readings, told);
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
                    readings.faults.push(unnamed(&lost));
                }
            }
        }
        readings
    }

    /// A device that is lost half-way keeps the names it had.
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

    /// NVML counts devices in the order of their addresses: where as many are
    /// lost as the kernel driver names besides those that answer, these are they.
    fn name_by_driver(&mut self, readings: &Readings, told: impl FnOnce() -> Vec<DeviceReadings>) {
        let unnamed = readings.lost.iter().map(|lost| lost.index);
        let mut unnamed: Vec<u32> = unnamed.filter(|at| !self.0.contains_key(at)).collect();
        if unnamed.is_empty() {
            return;
        }
        unnamed.sort_unstable();
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
        let mut others: Vec<DeviceReadings> = told();
        others.retain(|device| !is_known(device));
        others.sort_indirect_by(|a, b| a.pci.known().cmp(&b.pci.known()));
        if others.len() == unnamed.len() {
            let names = others.iter().map(Named::from);
            self.0.extend(unnamed.into_iter().zip(names));
        }
    }
}

/// What is wrong with a device that nobody can name, and what to do about it: no command of
/// gpukill can be given its name.
fn unnamed(LostDevice { index, cause }: &LostDevice) -> FaultCause {
    let why = &cause.why;
    let remedy = match cause.kind {
        LossKind::Lost => {
            format!(": it has no name here: nvidia-smi --gpu-reset -i {index}, or a reboot")
        }
        LossKind::NotPermitted => cause.kind.remedy().to_owned(),
        LossKind::Gone | LossKind::Unknown => String::new(),
    };
    let what = format!("GPU at index {index}: {why}{remedy}");
    FaultCause::new(FaultCode::GpuUnnamed, what)
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
            cause: LossCause {
                kind: LossKind::Unknown,
                why: "gone".to_owned(),
            },
        };
        let devices = answer.iter().map(|(index, name)| DeviceReadings {
            lost: None,
            ..named(name).lost(&gone(*index))
        });
        Readings {
            devices: devices.collect(),
            lost: lost.iter().copied().map(gone).collect(),
            ..Readings::nothing(BackendState::Ready)
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
        names.complete(readings(&[(0, "a"), (1, "b")], &[]), Vec::new);
        for _ in 0..2 {
            let lost = names.complete(readings(&[(0, "a")], &[1]), Vec::new);
            assert_eq!(seen(&lost), [(0, "a", false), (1, "b", true)]);
            assert_eq!(lost.faults, []);
        }
    }

    #[test]
    fn a_device_that_is_lost_half_way_keeps_its_name() {
        let mut names = Names::default();
        names.complete(readings(&[(0, "a"), (1, "b")], &[]), Vec::new);
        let mut half = readings(&[(0, "a"), (1, "b")], &[]);
        half.devices[1].name = Reading::Failed("gone".into());
        half.devices[1].lost = Some(LossCause {
            kind: LossKind::Lost,
            why: "gone".into(),
        });
        let half = names.complete(half, Vec::new);
        assert_eq!(half.devices[1].name, Reading::Value("b".into()));
    }

    #[test]
    fn a_device_that_was_never_well_keeps_the_name_that_it_told() {
        let mut names = Names::default();
        let mut half = readings(&[(0, "a"), (1, "b")], &[]);
        half.devices[1].lost = Some(LossCause {
            kind: LossKind::Lost,
            why: "gone".into(),
        });
        names.complete(half, Vec::new);
        let lost = names.complete(readings(&[(0, "a")], &[1]), Vec::new);
        assert_eq!(seen(&lost), [(0, "a", false), (1, "b", true)]);
        assert_eq!(lost.faults, []);
    }

    #[test]
    fn a_device_without_a_name_comes_with_what_to_do() {
        let told = |kind| {
            unnamed(&LostDevice {
                index: 2,
                cause: LossCause {
                    kind,
                    why: "why".into(),
                },
            })
        };
        let reset = "it has no name here: nvidia-smi --gpu-reset -i 2, or a reboot";
        for (kind, remedy) in [
            (LossKind::Lost, format!(": {reset}")),
            (
                LossKind::NotPermitted,
                ": see the modes of /dev/nvidia*".into(),
            ),
            (LossKind::Unknown, String::new()),
        ] {
            assert_eq!(told(kind).what, format!("GPU at index 2: why{remedy}"));
        }
    }

    #[test]
    fn a_lost_device_without_a_name_of_its_own_is_a_fault() {
        let mut names = Names::default();
        let fault = |index: u32| {
            let what = format!("GPU at index {index}: gone");
            [FaultCause::new(FaultCode::GpuUnnamed, what)]
        };
        let never_seen = names.complete(readings(&[(0, "a")], &[1]), Vec::new);
        assert_eq!(seen(&never_seen), [(0, "a", false)]);
        assert_eq!(never_seen.faults, fault(1));
        // What was called so before answers under another index now.
        let moved = names.complete(readings(&[(1, "a")], &[0]), Vec::new);
        assert_eq!(seen(&moved), [(1, "a", false)]);
        assert_eq!(moved.faults, fault(0));
    }

    #[test]
    fn a_device_that_never_answered_is_named_by_the_kernel_driver_where_there_is_no_doubt() {
        let told = |names: &[&str]| -> Vec<DeviceReadings> {
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
        let mut names = Names::default();
        let lost = readings(&[(1, "b")], &[0, 2]);
        let named = names.complete(lost.clone(), || told(&["c", "b", "a"]));
        let mut all = seen(&named);
        all.sort_unstable();
        assert_eq!(all, [(0, "a", true), (1, "b", false), (2, "c", true)]);
        // Asked once.
        let again = names.complete(lost, || unreachable!());
        assert_eq!(seen(&again).len(), 3);
        let mut names = Names::default();
        let doubtful = names.complete(readings(&[(1, "b")], &[0]), || told(&["c", "b", "a"]));
        assert_eq!(seen(&doubtful), [(1, "b", false)]);
    }
}
