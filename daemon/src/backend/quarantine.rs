//! Devices at which the driver hangs or crashes. A device that failed twice in a row is left out,
//! so that the others can be read, until a sensor of its own can read it.

use gpukill_proto::collect::RetainEntries as _;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The wait before a device is retried, doubled with each failure.
const MIN_WAIT: Duration = Duration::from_secs(10);
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The devices that failed recently, by their index.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// The device at which the last sensor failed.
    suspect: Option<u32>,
    failed: BTreeMap<u32, QuarantinedDevice>,
}

#[derive(Debug)]
struct QuarantinedDevice {
    /// Whether the device is left out now.
    is_excluded: bool,
    /// The wait after the last failure.
    wait: Duration,
    /// When the device is retried or, once it is readmitted, forgotten.
    until: Instant,
}

impl Quarantine {
    /// Records that a sensor failed while it read this device; `None` if no device is known. True
    /// if the device is left out from now on: after two failures in a row, or after one if it was
    /// left out recently.
    pub(super) fn record_failure(&mut self, device: Option<u32>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.suspect, device);
        let Some(device) = device else {
            return false;
        };
        if before != Some(device) && !self.failed.contains_key(&device) {
            return false;
        }
        self.suspect = None;
        self.exclude(device, now);
        true
    }

    /// Leaves a device out, for longer than the last time.
    pub(super) fn exclude(&mut self, device: u32, now: Instant) {
        let again = self.failed.get(&device).map(|failed| failed.wait * 2);
        let wait = again.unwrap_or(MIN_WAIT).min(MAX_WAIT);
        let failed = QuarantinedDevice {
            is_excluded: true,
            wait,
            until: now + wait,
        };
        self.failed.insert(device, failed);
    }

    pub(super) fn excluded_devices(&self) -> Vec<u32> {
        let out = self.failed.iter().filter(|(_, failed)| failed.is_excluded);
        out.map(|(device, _)| *device).collect()
    }

    /// The device that is due for a retry first, if any.
    pub(super) fn due_for_retry(&self, now: Instant) -> Option<u32> {
        let failed = self.failed.iter();
        let due = failed.filter(|(_, failed)| failed.is_excluded && now >= failed.until);
        let first = due.min_by_key(|(_, failed)| failed.until);
        first.map(|(device, _)| *device)
    }

    /// Records that a sensor of its own could read the device.
    pub(super) fn readmit(&mut self, device: u32, now: Instant) {
        if let Some(failed) = self.failed.get_mut(&device) {
            failed.is_excluded = false;
            failed.until = now + MAX_WAIT;
        }
    }

    /// Records that a sensor read everything that is not left out.
    pub(super) fn record_success(&mut self, now: Instant) {
        self.suspect = None;
        self.failed
            .retain_entries(|_, failed| failed.is_excluded || now < failed.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_quarantine_a_device() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut quarantine = Quarantine::default();
        for device in [Some(1), Some(2), None, Some(2)] {
            assert!(!quarantine.record_failure(device, start), "{device:?}");
        }
        assert!(quarantine.record_failure(Some(2), start));
        assert_eq!(quarantine.excluded_devices(), [2]);
        quarantine.record_success(start + 9 * second);
        assert_eq!(quarantine.due_for_retry(start + 9 * second), None);
        // The device stays out while it is retried.
        assert_eq!(quarantine.due_for_retry(start + 10 * second), Some(2));
        assert_eq!(quarantine.excluded_devices(), [2]);
        quarantine.exclude(2, start + 10 * second);
        assert_eq!(quarantine.due_for_retry(start + 29 * second), None);
        assert_eq!(quarantine.due_for_retry(start + 30 * second), Some(2));
        for _ in 0..20 {
            quarantine.exclude(2, start);
        }
        assert_eq!(quarantine.due_for_retry(start + MAX_WAIT), Some(2));
    }

    #[test]
    fn readmitted_device_is_quarantined_at_once() {
        let start = Instant::now();
        let mut quarantine = Quarantine::default();
        quarantine.exclude(2, start);
        quarantine.readmit(2, start);
        quarantine.record_success(start);
        assert_eq!(quarantine.excluded_devices(), [0; 0]);
        assert_eq!(quarantine.due_for_retry(start + MAX_WAIT), None);
        assert!(quarantine.record_failure(Some(2), start));
        assert_eq!(quarantine.excluded_devices(), [2]);
        // After a long time without failure, its failures are forgotten.
        quarantine.readmit(2, start);
        quarantine.record_success(start + MAX_WAIT);
        assert!(!quarantine.record_failure(Some(2), start + MAX_WAIT));
    }
}
