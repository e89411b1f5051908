//! What happens to GPUs between two polls: XIDs, memory errors, MIG changes.
//!
//! They are fetched at each poll, with next to no waiting: NVML keeps them until
//! then. A thread that waits for them would keep the library in memory when it
//! must go.

use super::codes::{Class, class, explain};
use super::raw::{RawEvent, Set, device_key};
use crate::faults::FaultCause;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::{DeviceId, EventKind, FaultCode, GpuEvent};
use gpukill_proto::units::Timestamp;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

/// The most events of one poll; a storm of them is cut, and told.
const MOST: usize = 256;

/// The wait before a device or a set that failed is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// nvml.h, `nvmlEventType…`: what is registered for. Not changes of clocks and
/// power states, and not each corrected memory error: those are counted.
const WANTED: u64 = 0x2 | 0x8 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000;

/// The events of all devices.
#[derive(Default)]
pub(super) struct Events {
    set: Option<Set>,
    /// The devices that were registered, by their handles, and those that could
    /// not be, until when.
    registered: BTreeMap<usize, DeviceId>,
    refused: BTreeMap<DeviceId, Instant>,
    retry_at: Option<Instant>,
    /// Why events of a device, or of all, are not heard.
    deaf: BTreeMap<DeviceId, String>,
    deaf_to_all: Option<String>,
    /// Whether more happened at once than is told.
    cut: bool,
}

impl Events {
    /// Makes sure that the events of this device are heard.
    pub(super) fn hear(&mut self, nvml: &Nvml, device: &Device<'_>, id: &DeviceId, now: Instant) {
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
                self.deaf.remove(id);
                self.deaf_to_all = None;
            }
            Err(error) => {
                // A device without events is normal.
                if class(&error) != Class::Unsupported {
                    self.deaf.insert(id.clone(), explain(&error));
                }
                // A lost device may be back at the next poll.
                let wait = match class(&error) {
                    Class::Lost => Duration::ZERO,
                    _ => RETRY,
                };
                self.refused.insert(id.clone(), now + wait);
            }
        }
    }

    fn register(&mut self, nvml: &Nvml, device: &Device<'_>) -> Result<(), NvmlError> {
        let set = match self.set.take() {
            Some(set) => set,
            None => Set::new(nvml)?,
        };
        let registered = set.register(nvml, device, WANTED);
        match &registered {
            // It leaves the set undefined (nvml.h).
            Err(NvmlError::Unknown) => {
                set.free(nvml);
                self.registered.clear();
            }
            Ok(()) | Err(_) => self.set = Some(set),
        }
        registered
    }

    /// What happened since the last poll, the oldest first.
    pub(super) fn take(&mut self, nvml: &Nvml, now: Instant) -> Vec<GpuEvent> {
        let mut events = Vec::new();
        let Some(set) = &self.set else {
            return events;
        };
        while events.len() < MOST {
            // The first gets a moment; what waits already comes at once.
            let wait_ms = u32::from(events.is_empty());
            match set.next(nvml, wait_ms) {
                Ok(Some(raw)) => events.push(self.named(&raw)),
                Ok(None) => break,
                Err(error) => {
                    // The set is dead, as after a lost GPU; so is what waited.
                    self.deaf_to_all = Some(explain(&error));
                    if let Some(set) = self.set.take() {
                        set.free(nvml);
                    }
                    self.registered.clear();
                    self.retry_at = Some(now + RETRY);
                    break;
                }
            }
        }
        self.cut = events.len() == MOST;
        events
    }

    /// Forgets every device but these.
    pub(super) fn keep_only(&mut self, is_here: impl Fn(&DeviceId) -> bool) {
        self.deaf.retain(|id, _| is_here(id));
        self.refused.retain(|id, _| is_here(id));
    }

    /// Why events of this device are not heard.
    pub(super) fn deaf_to(&self, id: &DeviceId) -> Option<&str> {
        self.deaf.get(id).map(String::as_str)
    }

    /// What is not heard, and why.
    pub(super) fn faults(&self) -> Vec<FaultCause> {
        let all = self.deaf_to_all.iter();
        let unheard = |what| FaultCause::new(FaultCode::EventsNotReceived, what);
        let all = all.map(|why| unheard(format!("XIDs and other events are not heard: {why}")));
        let some = self.deaf.values();
        let some = some.map(|why| unheard(format!("XIDs of a GPU are not heard: {why}")));
        let cut = self.cut.then(|| {
            FaultCause::new(
                FaultCode::EventsDropped,
                "more events at once than are told",
            )
        });
        let faults: BTreeSet<FaultCause> = all.chain(some).chain(cut).into_set();
        faults.into_iter().collect()
    }

    fn named(&self, raw: &RawEvent) -> GpuEvent {
        GpuEvent {
            device: self.registered.get(&raw.device).cloned(),
            instance: raw.instance,
            at: Timestamp::from(SystemTime::now()),
            kind: kind(raw.kind, raw.data),
        }
    }
}

/// nvml.h, `nvmlEventType…`.
fn kind(kind: u64, data: u64) -> EventKind {
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
    fn an_event_is_known_by_its_type_and_an_xid_by_its_data() {
        assert_eq!(kind(8, 79), EventKind::Xid(79));
        assert_eq!(kind(0x100, 79), EventKind::MigChange);
        assert_eq!(kind(1 << 40, 0), EventKind::Other(1 << 40));
    }

    #[test]
    fn every_type_that_is_registered_for_has_a_name() {
        for bit in (0..u64::BITS)
            .map(|place| 1 << place)
            .filter(|bit| WANTED & bit != 0)
        {
            assert!(!matches!(kind(bit, 0), EventKind::Other(_)), "0x{bit:x}");
        }
    }
}
