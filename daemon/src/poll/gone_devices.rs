//! GPUs that their drivers no longer list. Each keeps its row and the time since when it is gone,
//! until it returns or an admin forgets it.
//!
//! When a driver stops listing all its GPUs, that is one fault and not one for each GPU. When a
//! driver does not answer, none of its GPUs is gone.

use super::pci_slots::PciBus;
use crate::backend::reader::LatestReadings;
use crate::fault::PartFault;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{
    BackendState, Device, DeviceId, EventKind, FaultCode, GpuEvent, Loss, LossKind,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// How many GPUs are remembered: no host has as many.
const MAX_DEVICES: usize = 256;

/// Every GPU that was listed since the daemon started.
#[derive(Debug, Default)]
pub(super) struct GoneDevices {
    known: BTreeMap<DeviceId, KnownDevice>,
}

/// One GPU, as it was last listed.
#[derive(Debug)]
struct KnownDevice {
    backend: &'static str,
    row: Device,
    loss: Option<Loss>,
    /// Whether an event reported that it is gone.
    was_reported: bool,
}

impl GoneDevices {
    /// Takes the GPUs of a poll and adds rows for GPUs that are gone. Returns the events.
    pub(super) fn update(
        &mut self,
        latest: &[(&'static str, LatestReadings)],
        bus: Option<&PciBus>,
        devices: &mut Vec<Device>,
        now: Timestamp,
    ) -> Vec<GpuEvent> {
        let mut events = self.record_listed(latest, devices, now);
        self.forget_renamed(devices);
        let lists: BTreeSet<&str> = latest
            .iter()
            .filter(has_complete_list)
            .map(|(name, _)| *name)
            .into_set();
        let listed: BTreeSet<DeviceId> = devices.iter().map(|device| device.id.clone()).into_set();
        for (id, known) in &mut self.known {
            if known.loss.is_none() && !listed.contains(id) && lists.contains(known.backend) {
                known.loss = Some(Loss {
                    since: now,
                    reason: loss_reason(&known.row, bus).to_owned(),
                    kind: LossKind::Gone,
                });
            }
        }
        let unloaded = self.unloaded_backends();
        for (id, known) in &mut self.known {
            let is_one = known.loss.is_some() && !unloaded.contains_key(known.backend);
            if is_one && !known.was_reported {
                known.was_reported = true;
                events.push(event(id, EventKind::Gone, now));
            }
        }
        devices.extend(self.known.values().filter_map(KnownDevice::row));
        events
    }

    /// Remembers the listed GPUs and returns events for those that are back.
    fn record_listed(
        &mut self,
        latest: &[(&'static str, LatestReadings)],
        devices: &[Device],
        now: Timestamp,
    ) -> Vec<GpuEvent> {
        let mut events = Vec::new();
        for (backend, latest) in latest {
            let readings = latest.readings.iter().flat_map(|(read, _)| &read.devices);
            for read in readings {
                let Some(device) = devices.iter().find(|device| device.id == read.id) else {
                    continue;
                };
                let why = Reading::Failed("gone".to_owned());
                let row = Device {
                    name: device.name.clone(),
                    pci: device.pci.clone(),
                    memory_unified: device.memory_unified,
                    last_xid: device.last_xid.clone(),
                    ..Device::unknown(device.id.clone(), device.index, device.vendor, &why)
                };
                let known = KnownDevice {
                    backend,
                    row,
                    loss: None,
                    was_reported: false,
                };
                let is_full = self.known.len() >= MAX_DEVICES && !self.known.contains_key(&read.id);
                let before = (!is_full).then(|| self.known.insert(read.id.clone(), known));
                if before.flatten().is_some_and(|before| before.was_reported) {
                    events.push(event(&read.id, EventKind::Returned, now));
                }
            }
        }
        events
    }

    /// Forgets earlier ids of listed GPUs: a GPU that is named by its PCI address has another id
    /// when it wakes, or when another driver takes it.
    fn forget_renamed(&mut self, devices: &[Device]) {
        let listed: BTreeMap<&String, &DeviceId> = devices
            .iter()
            .filter_map(|device| Some((device.pci.last_known()?, &device.id)))
            .into_map();
        self.known.retain_entries(|id, known| {
            let address = known.row.pci.last_known();
            let now = address.and_then(|address| Some((address, *listed.get(address)?)));
            now.is_none_or(|(address, now)| now == id || (id.0 != *address && now.0 != *address))
        });
    }

    /// The backends that had several GPUs of which all are gone, with their number: the driver was
    /// unloaded.
    fn unloaded_backends(&self) -> BTreeMap<&'static str, usize> {
        let mut all: BTreeMap<&'static str, (usize, bool)> = BTreeMap::new();
        for known in self.known.values() {
            let (number, are_gone) = all.entry(known.backend).or_insert((0, true));
            *number += 1;
            *are_gone &= known.loss.is_some() && !known.was_reported;
        }
        all.into_iter()
            .filter(|(_, (number, are_gone))| *number > 1 && *are_gone)
            .map(|(backend, (number, _))| (backend, number))
            .into_map()
    }

    /// The faults: one for each GPU that is gone, or one for a whole driver.
    pub(super) fn faults(&self) -> Vec<PartFault> {
        let unloaded = self.unloaded_backends();
        let of_drivers = unloaded.iter().map(|(backend, number)| {
            let what = format!("all {number} GPUs are gone: its driver was unloaded");
            PartFault::new(*backend, FaultCode::DriverUnloaded, what)
        });
        let one_by_one = self.known.values().filter_map(|known| {
            let loss = known.loss.as_ref()?;
            let index = known.row.index;
            let mut all = self.known.values();
            let is_shared = all.any(|it| it.row.id != known.row.id && it.row.index == index);
            let called = match is_shared {
                // Another GPU has the same index.
                true => known.row.id.0.clone(),
                false => index.to_string(),
            };
            let reason = &loss.reason;
            let what = format!(
                "gone ({reason}): if it will not return, run gpukillctl forget --gpu {called}"
            );
            (!unloaded.contains_key(known.backend))
                .then(|| PartFault::new(format!("GPU {index}"), FaultCode::GpuGone, what))
        });
        of_drivers.chain(one_by_one).collect()
    }

    /// Drops those of these GPUs that are gone.
    pub(super) fn forget(&mut self, ids: &[DeviceId]) {
        self.known
            .retain_entries(|id, known| known.loss.is_none() || !ids.contains(id));
    }
}

impl KnownDevice {
    /// The row of a GPU that is gone.
    fn row(&self) -> Option<Device> {
        let lost = Some(self.loss.clone()?);
        Some(Device {
            lost,
            ..self.row.clone()
        })
    }
}

/// Whether a backend has just listed all GPUs of its driver.
fn has_complete_list((_, latest): &&(&'static str, LatestReadings)) -> bool {
    let state = latest.readings.as_ref().map(|(read, _)| &read.state);
    let lists = matches!(state, Some(BackendState::Ready | BackendState::Absent(_)));
    lists && latest.failure.is_none() && latest.is_fresh()
}

/// Why its driver may not list it.
fn loss_reason(device: &Device, bus: Option<&PciBus>) -> &'static str {
    let address = device.pci.last_known();
    match address.and_then(|address| bus?.has_device(address)) {
        Some(true) => "its driver does not list it, and it is on the PCI bus",
        Some(false) => "it is not on the PCI bus",
        None => "its driver does not list it",
    }
}

fn event(id: &DeviceId, kind: EventKind, at: Timestamp) -> GpuEvent {
    GpuEvent {
        device: Some(id.clone()),
        instance: None,
        at,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, BackendReadings, DeviceReadings};
    use gpukill_proto::model::Vendor;
    use std::sync::Arc;

    /// The readings of a backend with these GPUs.
    fn readings(ids: &[&str]) -> LatestReadings {
        let devices = ids.iter().map(|id| DeviceReadings {
            pci: Reading::Value(format!("pci of {id}")),
            ..DeviceReadings::unknown(
                DeviceId((*id).to_owned()),
                0,
                Vendor::Amd,
                &Reading::Unsupported,
            )
        });
        let readings = BackendReadings {
            devices: devices.collect(),
            ..BackendReadings::without_devices(BackendState::Ready)
        };
        LatestReadings {
            readings: Some((Arc::new(readings), Timestamp(0))),
            events: Vec::new(),
            failure: None,
            on_time: true,
            is_recent: true,
            slowest_answer: None,
        }
    }

    /// Events, gone GPUs with their times, and faults.
    type PollSummary = (
        Vec<(String, EventKind)>,
        Vec<(String, i64)>,
        Vec<(String, String)>,
    );

    /// A poll of this backend: the events, the gone GPUs and since when, and the faults.
    fn poll(gone: &mut GoneDevices, latest: LatestReadings, now: i64) -> PollSummary {
        let listed = latest.readings.iter().flat_map(|(read, _)| &read.devices);
        let mut devices: Vec<Device> = (0..)
            .zip(listed)
            .map(|(index, read)| Device {
                pci: read.pci.clone(),
                ..Device::unknown(read.id.clone(), index, Vendor::Amd, &Reading::Unsupported)
            })
            .collect();
        let events = gone.update(&[("amd", latest)], None, &mut devices, Timestamp(now));
        let events = events.into_iter();
        let events = events.map(|event| (event.device.unwrap().0, event.kind));
        let rows = devices.into_iter().filter_map(|device| {
            let loss = device.lost?;
            assert_eq!(device.memory_used, Reading::Failed("gone".to_owned()));
            Some((device.id.0, loss.since.0))
        });
        let faults = gone.faults().into_iter();
        let faults = faults.map(|fault| (fault.part, fault.cause.what));
        (events.collect(), rows.collect(), faults.collect())
    }

    fn names(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn unlisted_gpu_is_gone_until_it_returns() {
        let mut gone = GoneDevices::default();
        assert_eq!(
            poll(&mut gone, readings(&["a", "b"]), 1),
            (vec![], vec![], vec![])
        );
        let fault = (
            "GPU 1".to_owned(),
            "gone (its driver does not list it): if it will not return, run gpukillctl forget --gpu 1"
                .to_owned(),
        );
        let row = vec![("b".to_owned(), 2)];
        let (events, rows, faults) = poll(&mut gone, readings(&["a"]), 2);
        assert_eq!(events, [("b".to_owned(), EventKind::Gone)]);
        assert_eq!((rows, faults), (row.clone(), vec![fault.clone()]));
        // Reported once; it stays gone while the driver does not answer.
        assert_eq!(
            poll(&mut gone, readings(&["a"]), 3),
            (vec![], row.clone(), vec![fault.clone()])
        );
        let silent = LatestReadings {
            failure: Some(BackendError::Quiesced(Timestamp(9))),
            ..readings(&["a"])
        };
        assert_eq!(poll(&mut gone, silent, 4), (vec![], row, vec![fault]));
        let back = vec![("b".to_owned(), EventKind::Returned)];
        assert_eq!(
            poll(&mut gone, readings(&["a", "b"]), 5),
            (back, vec![], vec![])
        );
    }

    #[test]
    fn silent_or_released_driver_loses_no_gpu() {
        for failure in [
            BackendError::Failed(FaultCode::SensorHangs, "it hangs".to_owned()),
            BackendError::Quiesced(Timestamp(9)),
        ] {
            let mut gone = GoneDevices::default();
            let _ = poll(&mut gone, readings(&["a", "b"]), 1);
            let failed = LatestReadings {
                failure: Some(failure),
                ..readings(&["a"])
            };
            assert_eq!(poll(&mut gone, failed, 2), (vec![], vec![], vec![]));
        }
        let mut gone = GoneDevices::default();
        let _ = poll(&mut gone, readings(&["a", "b"]), 1);
        let old = LatestReadings {
            on_time: false,
            is_recent: false,
            ..readings(&["a"])
        };
        assert_eq!(poll(&mut gone, old, 2), (vec![], vec![], vec![]));
    }

    #[test]
    fn unloaded_driver_is_one_fault() {
        let mut gone = GoneDevices::default();
        let _ = poll(&mut gone, readings(&["a", "b"]), 1);
        let fault = (
            "amd".to_owned(),
            "all 2 GPUs are gone: its driver was unloaded".to_owned(),
        );
        let rows = vec![("a".to_owned(), 2), ("b".to_owned(), 2)];
        assert_eq!(
            poll(&mut gone, readings(&[]), 2),
            (vec![], rows, vec![fault])
        );
        // It is loaded again, and one GPU does not return.
        let (events, rows, faults) = poll(&mut gone, readings(&["a"]), 3);
        assert_eq!(events, [("b".to_owned(), EventKind::Gone)]);
        assert_eq!(rows, [("b".to_owned(), 2)]);
        assert_eq!(faults.len(), 1);
        // A single GPU may have been removed.
        let mut gone = GoneDevices::default();
        let _ = poll(&mut gone, readings(&["a"]), 1);
        assert_eq!(
            poll(&mut gone, readings(&[]), 2).0,
            [("a".to_owned(), EventKind::Gone)]
        );
    }

    #[test]
    fn forgets_only_gone_gpus() {
        let mut gone = GoneDevices::default();
        let _ = poll(&mut gone, readings(&["a", "b", "c"]), 1);
        let _ = poll(&mut gone, readings(&["a"]), 2);
        let ids: Vec<DeviceId> = names(&["a", "b"]).into_iter().map(DeviceId).collect();
        gone.forget(&ids);
        let (events, rows, _) = poll(&mut gone, readings(&["a"]), 3);
        assert_eq!((events, rows), (vec![], vec![("c".to_owned(), 2)]));
        // It returns as any other GPU does.
        assert_eq!(poll(&mut gone, readings(&["a", "b"]), 4).0, []);
    }

    /// GPUs with these ids, the last of them at this address.
    fn readings_with_address(ids: &[&str], address: &str) -> LatestReadings {
        let mut latest = readings(ids);
        if let Some((readings, _)) = &mut latest.readings
            && let Some(last) = Arc::make_mut(readings).devices.last_mut()
        {
            last.pci = Reading::Value(address.to_owned());
        }
        latest
    }

    #[test]
    fn renamed_gpu_at_same_address_is_not_gone() {
        for [before, after] in [["place", "GPU-b"], ["GPU-b", "place"]] {
            let mut gone = GoneDevices::default();
            let _ = poll(&mut gone, readings_with_address(&["a", before], "place"), 1);
            let renamed = readings_with_address(&["a", after], "place");
            assert_eq!(poll(&mut gone, renamed, 2), (vec![], vec![], vec![]));
        }
        let mut gone = GoneDevices::default();
        let _ = poll(
            &mut gone,
            readings_with_address(&["a", "GPU-b"], "place"),
            1,
        );
        let (events, ..) = poll(
            &mut gone,
            readings_with_address(&["a", "GPU-c"], "place"),
            2,
        );
        assert_eq!(events, [("GPU-b".to_owned(), EventKind::Gone)]);
    }
}
