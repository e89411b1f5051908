//! Collects GPU events between two polls: XIDs, memory errors, MIG changes.
//!
//! Events are fetched at each poll, almost without waiting: NVML keeps them until then. A thread
//! that waits for events would keep the library loaded when it must go.

use super::codes::{ErrorClass, error_class, explain};
use super::raw::{EventSet, RawEvent, device_key};
use crate::fault::FaultCause;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{DeviceId, EventKind, FaultCode, GpuEvent};
use gpukill_proto::units::Timestamp;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// The most events of one poll; more are cut, and the cut is reported.
const MAX_EVENTS: usize = 256;

/// The wait before a device or an event set that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The registered event types (nvml.h, `nvmlEventType…`). Changes of clocks and power states are
/// not included, nor single corrected memory errors: those are counted.
const REGISTERED_TYPES: u64 =
    0x2 | 0x8 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000;

#[derive(Default)]
pub(super) struct EventCollector {
    set: Option<EventSet>,
    /// The registered devices, by their handles, and those that could not be registered, with the
    /// time of the next try.
    registered: BTreeMap<usize, DeviceId>,
    refused: BTreeMap<DeviceId, Instant>,
    retry_at: Option<Instant>,
    /// Why events of a device, or of all, are not received.
    unreceived: BTreeMap<DeviceId, String>,
    unreceived_by_all: Option<String>,
    /// Whether more events occurred at once than are reported.
    is_cut: bool,
}

impl EventCollector {
    /// Registers this device for events, unless it is registered.
    pub(super) fn ensure_registered(
        &mut self,
        nvml: &Nvml,
        device: &Device<'_>,
        id: &DeviceId,
        now: Instant,
    ) {
        let key = device_key(device);
        if self.registered.get(&key) == Some(id)
            || self.refused.get(id).is_some_and(|until| now < *until)
            || self.retry_at.is_some_and(|moment| now < moment)
        {
            return;
        }
        match self.register(nvml, device) {
            Ok(()) => {
                self.registered.insert(key, id.clone());
                self.refused.remove(id);
                self.unreceived.remove(id);
                self.unreceived_by_all = None;
            }
            Err(error) => {
                // Some devices normally have no events.
                if error_class(&error) != ErrorClass::Unsupported {
                    self.unreceived.insert(id.clone(), explain(&error));
                }
                // A lost device may be back at the next poll.
                let wait = match error_class(&error) {
                    ErrorClass::Lost => Duration::ZERO,
                    _ => RETRY_INTERVAL,
                };
                self.refused.insert(id.clone(), now + wait);
            }
        }
    }

    fn register(&mut self, nvml: &Nvml, device: &Device<'_>) -> Result<(), NvmlError> {
        let set = match self.set.take() {
            Some(set) => set,
            None => EventSet::new(nvml)?,
        };
        let registered = set.register(nvml, device, REGISTERED_TYPES);
        match &registered {
            // The error leaves the set undefined (nvml.h).
            Err(NvmlError::Unknown) => {
                set.free(nvml);
                self.registered.clear();
            }
            Ok(()) | Err(_) => self.set = Some(set),
        }
        registered
    }

    /// The events since the last poll, oldest first.
    pub(super) fn take_events(&mut self, nvml: &Nvml, now: Instant) -> Vec<GpuEvent> {
        let mut events = Vec::new();
        let Some(set) = &self.set else {
            return events;
        };
        while events.len() < MAX_EVENTS {
            // The first call waits a moment; events that are already there come at once.
            let wait_ms = u32::from(events.is_empty());
            match set.next(nvml, wait_ms) {
                Ok(Some(raw)) => events.push(self.to_gpu_event(&raw)),
                Ok(None) => break,
                Err(error) => {
                    // The set is unusable, as after a lost GPU, and its waiting events are gone.
                    self.unreceived_by_all = Some(explain(&error));
                    if let Some(set) = self.set.take() {
                        set.free(nvml);
                    }
                    self.registered.clear();
                    self.retry_at = Some(now + RETRY_INTERVAL);
                    break;
                }
            }
        }
        self.is_cut = events.len() == MAX_EVENTS;
        events
    }

    /// Forgets every other device.
    pub(super) fn keep_only(&mut self, is_present: impl Fn(&DeviceId) -> bool) {
        self.unreceived.retain_entries(|id, _| is_present(id));
        self.refused.retain_entries(|id, _| is_present(id));
    }

    /// Why events of this device are not received.
    pub(super) fn unreceived_reason(&self, id: &DeviceId) -> Option<&str> {
        self.unreceived.get(id).map(String::as_str)
    }

    /// The faults of events that are not received.
    pub(super) fn faults(&self) -> Vec<FaultCause> {
        let all = self.unreceived_by_all.iter();
        let not_received = |what| FaultCause::new(FaultCode::EventsNotReceived, what);
        let all =
            all.map(|why| not_received(format!("XIDs and other events are not received: {why}")));
        let some = self.unreceived.values();
        let some = some.map(|why| not_received(format!("XIDs of a GPU are not received: {why}")));
        let cut = self.is_cut.then(|| {
            FaultCause::new(
                FaultCode::EventsDropped,
                "more events at once than can be reported",
            )
        });
        let faults: BTreeSet<FaultCause> = all.chain(some).chain(cut).into_set();
        faults.into_iter().collect()
    }

    fn to_gpu_event(&self, raw: &RawEvent) -> GpuEvent {
        GpuEvent {
            device: self.registered.get(&raw.device).cloned(),
            instance: raw.instance,
            at: Timestamp::from(SystemTime::now()),
            kind: event_kind(raw.kind, raw.data),
        }
    }
}

/// Maps nvml.h, `nvmlEventType…`.
fn event_kind(kind: u64, data: u64) -> EventKind {
    match kind {
        0x1 => EventKind::SingleBitEcc,
        0x2 => EventKind::DoubleBitEcc,
        0x8 => EventKind::Xid(data),
        0x100 => EventKind::MigChange,
        0x200 => EventKind::SingleBitEccStorm,
        0x400 => EventKind::MemoryRetired,
        0x800 => EventKind::MemoryRetirementFailed,
        0x1000 => EventKind::NonFatalPoison,
        0x2000 => EventKind::FatalPoison,
        0x4000 => EventKind::Unavailable,
        0x8000 => EventKind::RecoveryAction,
        other => EventKind::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_and_xid_data() {
        assert_eq!(event_kind(8, 79), EventKind::Xid(79));
        assert_eq!(event_kind(0x100, 79), EventKind::MigChange);
        assert_eq!(event_kind(1 << 40, 0), EventKind::Other(1 << 40));
    }

    #[test]
    fn every_registered_type_has_a_name() {
        for bit in (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(|bit| REGISTERED_TYPES & bit != 0)
        {
            assert!(
                !matches!(event_kind(bit, 0), EventKind::Other(_)),
                "0x{bit:x}"
            );
        }
    }
}
