//! GPUs that their drivers do not list any more. Each keeps its row, and says since when
//! it is gone, until it is back or an admin says that it stays away.
//!
//! A driver that lists nothing at all is not told of one GPU after the other; and of one
//! that does not answer no GPU is gone.

use super::slots::Bus;
use crate::backend::reader::Latest;
use crate::faults::FoundFault;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    BackendState, Device, DeviceId, EventKind, FaultCode, GpuEvent, Loss, LossKind,
};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// GPUs beyond this number are not remembered: no box has as many.
const MOST: usize = 256;

/// Every GPU that was listed once since the daemon started.
#[derive(Debug, Default)]
pub(super) struct Gone {
    known: BTreeMap<DeviceId, Known>,
}

/// One GPU, as it was when it was listed last.
#[derive(Debug)]
struct Known {
    backend: &'static str,
    row: Device,
    loss: Option<Loss>,
    /// An event said that it is gone.
    was_reported: bool,
}

impl Gone {
    /// Takes over the GPUs of a poll and adds rows for those that are gone. Gives what
    /// happened to them.
    pub(super) fn follow(
        &mut self,
        latest: &[(&'static str, Latest)],
        bus: Option<&Bus>,
        devices: &mut Vec<Device>,
        now: Timestamp,
    ) -> Vec<GpuEvent> {
        let mut events = self.learn(latest, devices, now);
        self.forget_renamed(devices);
        let lists: BTreeSet<&str> = latest
            .iter()
            .filter(is_whole)
            .map(|(name, _)| *name)
            .into_set();
        let listed: BTreeSet<DeviceId> = devices.iter().map(|device| device.id.clone()).into_set();
        for (id, known) in &mut self.known {
            if known.loss.is_none() && !listed.contains(id) && lists.contains(known.backend) {
                known.loss = Some(Loss {
                    since: now,
                    reason: reason(&known.row, bus).to_owned(),
                    kind: LossKind::Gone,
                });
            }
        }
        let unloaded = self.unloaded();
        for (id, known) in &mut self.known {
            let is_one = known.loss.is_some() && !unloaded.contains_key(known.backend);
            if is_one && !known.was_reported {
                known.was_reported = true;
                events.push(event(id, EventKind::Gone, now));
            }
        }
        devices.extend(self.known.values().filter_map(Known::row));
        events
    }

    /// Remembers the GPUs that are listed, and tells which of them are back.
    fn learn(
        &mut self,
        latest: &[(&'static str, Latest)],
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
                let known = Known {
                    backend,
                    row,
                    loss: None,
                    was_reported: false,
                };
                let is_full = self.known.len() >= MOST && !self.known.contains_key(&read.id);
                let before = (!is_full).then(|| self.known.insert(read.id.clone(), known));
                if before.flatten().is_some_and(|before| before.was_reported) {
                    events.push(event(&read.id, EventKind::Returned, now));
                }
            }
        }
        events
    }

    /// A GPU that is named by its place has another name when it wakes, or when another
    /// driver takes it.
    fn forget_renamed(&mut self, devices: &[Device]) {
        let listed: BTreeMap<&String, &DeviceId> = devices
            .iter()
            .filter_map(|device| Some((device.pci.last_known()?, &device.id)))
            .into_map();
        self.known.retain(|id, known| {
            let place = known.row.pci.last_known();
            let now = place.and_then(|place| Some((place, *listed.get(place)?)));
            now.is_none_or(|(place, now)| now == id || (id.0 != *place && now.0 != *place))
        });
    }

    /// The backends of which all GPUs are gone and were several, with their number: their
    /// driver was unloaded.
    fn unloaded(&self) -> BTreeMap<&'static str, usize> {
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

    /// What is wrong: for each GPU that is gone, or once for all of a driver.
    pub(super) fn faults(&self) -> Vec<FoundFault> {
        let unloaded = self.unloaded();
        let of_drivers = unloaded.iter().map(|(backend, number)| {
            let what = format!("all {number} GPUs are gone: its driver was unloaded");
            FoundFault::new(*backend, FaultCode::DriverUnloaded, what)
        });
        let one_by_one = self.known.values().filter_map(|known| {
            let loss = known.loss.as_ref()?;
            let index = known.row.index;
            let mut all = self.known.values();
            let is_shared = all.any(|it| it.row.id != known.row.id && it.row.index == index);
            let called = match is_shared {
                // Another GPU took its place.
                true => known.row.id.0.clone(),
                false => index.to_string(),
            };
            let reason = &loss.reason;
            let what =
                format!("gone ({reason}): where it stays away, gpukillctl forget --gpu {called}");
            (!unloaded.contains_key(known.backend))
                .then(|| FoundFault::new(format!("GPU {index}"), FaultCode::GpuGone, what))
        });
        of_drivers.chain(one_by_one).collect()
    }

    /// Drops these GPUs, where they are gone.
    pub(super) fn forget(&mut self, ids: &[DeviceId]) {
        self.known
            .retain(|id, known| known.loss.is_none() || !ids.contains(id));
    }
}

impl Known {
    /// Its row, where it is gone.
    fn row(&self) -> Option<Device> {
        let lost = Some(self.loss.clone()?);
        Some(Device {
            lost,
            ..self.row.clone()
        })
    }
}

/// Whether a backend has just listed every GPU that its driver has.
fn is_whole((_, latest): &&(&'static str, Latest)) -> bool {
    let state = latest.readings.as_ref().map(|(read, _)| &read.state);
    let lists = matches!(state, Some(BackendState::Ready | BackendState::Absent(_)));
    lists && latest.failure.is_none() && latest.is_fresh()
}

/// Why its driver may not list it.
fn reason(device: &Device, bus: Option<&Bus>) -> &'static str {
    let address = device.pci.last_known();
    match address.and_then(|address| bus?.has(address)) {
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
    use crate::backend::{DeviceReadings, Failure, Readings};
    use gpukill_proto::snapshot::Vendor;
    use std::sync::Arc;

    /// What a backend with these GPUs tells.
    fn told(ids: &[&str]) -> Latest {
        let devices = ids.iter().map(|id| DeviceReadings {
            pci: Reading::Value(format!("pci of {id}")),
            ..DeviceReadings::unknown(
                DeviceId((*id).to_owned()),
                0,
                Vendor::Amd,
                &Reading::Unsupported,
            )
        });
        let readings = Readings {
            devices: devices.collect(),
            ..Readings::nothing(BackendState::Ready)
        };
        Latest {
            readings: Some((Arc::new(readings), Timestamp(0))),
            events: Vec::new(),
            failure: None,
            on_time: true,
            recent: true,
            slow: None,
        }
    }

    /// Events, GPUs that are gone with their times, and faults.
    type Polled = (
        Vec<(String, EventKind)>,
        Vec<(String, i64)>,
        Vec<(String, String)>,
    );

    /// A poll of this backend: what happened, the GPUs that are gone and since when, and
    /// what is wrong.
    fn poll(gone: &mut Gone, latest: Latest, now: i64) -> Polled {
        let listed = latest.readings.iter().flat_map(|(read, _)| &read.devices);
        let mut devices: Vec<Device> = (0..)
            .zip(listed)
            .map(|(index, read)| Device {
                pci: read.pci.clone(),
                ..Device::unknown(read.id.clone(), index, Vendor::Amd, &Reading::Unsupported)
            })
            .collect();
        let events = gone.follow(&[("amd", latest)], None, &mut devices, Timestamp(now));
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
    fn a_gpu_that_is_not_listed_any_more_is_gone_until_it_is_back() {
        let mut gone = Gone::default();
        assert_eq!(
            poll(&mut gone, told(&["a", "b"]), 1),
            (vec![], vec![], vec![])
        );
        let fault = (
            "GPU 1".to_owned(),
            "gone (its driver does not list it): where it stays away, gpukillctl forget --gpu 1"
                .to_owned(),
        );
        let row = vec![("b".to_owned(), 2)];
        let (events, rows, faults) = poll(&mut gone, told(&["a"]), 2);
        assert_eq!(events, [("b".to_owned(), EventKind::Gone)]);
        assert_eq!((rows, faults), (row.clone(), vec![fault.clone()]));
        // It is told once, and goes on while the driver does not answer.
        assert_eq!(
            poll(&mut gone, told(&["a"]), 3),
            (vec![], row.clone(), vec![fault.clone()])
        );
        let silent = Latest {
            failure: Some(Failure::Quiesced(Timestamp(9))),
            ..told(&["a"])
        };
        assert_eq!(poll(&mut gone, silent, 4), (vec![], row, vec![fault]));
        let back = vec![("b".to_owned(), EventKind::Returned)];
        assert_eq!(
            poll(&mut gone, told(&["a", "b"]), 5),
            (back, vec![], vec![])
        );
    }

    #[test]
    fn where_a_driver_does_not_answer_or_is_let_go_of_nothing_is_gone() {
        for failure in [
            Failure::Failed(FaultCode::SensorHangs, "it hangs".to_owned()),
            Failure::Quiesced(Timestamp(9)),
        ] {
            let mut gone = Gone::default();
            let _ = poll(&mut gone, told(&["a", "b"]), 1);
            let failed = Latest {
                failure: Some(failure),
                ..told(&["a"])
            };
            assert_eq!(poll(&mut gone, failed, 2), (vec![], vec![], vec![]));
        }
        let mut gone = Gone::default();
        let _ = poll(&mut gone, told(&["a", "b"]), 1);
        let old = Latest {
            on_time: false,
            recent: false,
            ..told(&["a"])
        };
        assert_eq!(poll(&mut gone, old, 2), (vec![], vec![], vec![]));
    }

    #[test]
    fn a_driver_that_is_unloaded_is_one_fault_and_no_event() {
        let mut gone = Gone::default();
        let _ = poll(&mut gone, told(&["a", "b"]), 1);
        let fault = (
            "amd".to_owned(),
            "all 2 GPUs are gone: its driver was unloaded".to_owned(),
        );
        let rows = vec![("a".to_owned(), 2), ("b".to_owned(), 2)];
        assert_eq!(poll(&mut gone, told(&[]), 2), (vec![], rows, vec![fault]));
        // It is loaded again, and one does not come back.
        let (events, rows, faults) = poll(&mut gone, told(&["a"]), 3);
        assert_eq!(events, [("b".to_owned(), EventKind::Gone)]);
        assert_eq!(rows, [("b".to_owned(), 2)]);
        assert_eq!(faults.len(), 1);
        // One alone may have been taken out.
        let mut gone = Gone::default();
        let _ = poll(&mut gone, told(&["a"]), 1);
        assert_eq!(
            poll(&mut gone, told(&[]), 2).0,
            [("a".to_owned(), EventKind::Gone)]
        );
    }

    #[test]
    fn only_what_is_gone_is_forgotten() {
        let mut gone = Gone::default();
        let _ = poll(&mut gone, told(&["a", "b", "c"]), 1);
        let _ = poll(&mut gone, told(&["a"]), 2);
        let ids: Vec<DeviceId> = names(&["a", "b"]).into_iter().map(DeviceId).collect();
        gone.forget(&ids);
        let (events, rows, _) = poll(&mut gone, told(&["a"]), 3);
        assert_eq!((events, rows), (vec![], vec![("c".to_owned(), 2)]));
        // It comes back as any other does.
        assert_eq!(poll(&mut gone, told(&["a", "b"]), 4).0, []);
    }

    /// GPUs of these names, the last of them at this place.
    fn told_at(ids: &[&str], place: &str) -> Latest {
        let mut told = told(ids);
        if let Some((readings, _)) = &mut told.readings
            && let Some(last) = Arc::make_mut(readings).devices.last_mut()
        {
            last.pci = Reading::Value(place.to_owned());
        }
        told
    }

    #[test]
    fn a_gpu_that_was_named_by_its_place_is_the_same_and_another_there_is_not() {
        for [before, after] in [["place", "GPU-b"], ["GPU-b", "place"]] {
            let mut gone = Gone::default();
            let _ = poll(&mut gone, told_at(&["a", before], "place"), 1);
            let renamed = told_at(&["a", after], "place");
            assert_eq!(poll(&mut gone, renamed, 2), (vec![], vec![], vec![]));
        }
        let mut gone = Gone::default();
        let _ = poll(&mut gone, told_at(&["a", "GPU-b"], "place"), 1);
        let (events, ..) = poll(&mut gone, told_at(&["a", "GPU-c"], "place"), 2);
        assert_eq!(events, [("GPU-b".to_owned(), EventKind::Gone)]);
    }
}
