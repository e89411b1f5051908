//! Devices at which the driver hangs or crashes. One that failed twice in a row is left out, so
//! that the others can be read, until it could be read in a sensor of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The wait before a device is tried again, doubled each time it fails.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The devices that failed lately, by their index.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// At which the last sensor failed.
    suspect: Option<u32>,
    failed: BTreeMap<u32, Failed>,
}

#[derive(Debug)]
struct Failed {
    /// Whether it is left out now.
    is_out: bool,
    /// The wait after its last failure.
    wait: Duration,
    /// When it is tried again, or forgotten once it is back.
    until: Instant,
}

impl Quarantine {
    /// A sensor failed while it read this device; `None`: none in particular.
    /// True when the device is left out from now on: after two failures in a row, or one where
    /// it was left out not long ago.
    pub(super) fn blame(&mut self, device: Option<u32>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.suspect, device);
        let Some(device) = device else {
            return false;
        };
        if before != Some(device) && !self.failed.contains_key(&device) {
            return false;
        }
        self.suspect = None;
        self.leave_out(device, now);
        true
    }

    /// Leaves a device out, longer than the last time.
    pub(super) fn leave_out(&mut self, device: u32, now: Instant) {
        let again = self.failed.get(&device).map(|failed| failed.wait * 2);
        let wait = again.unwrap_or(SHORTEST).min(LONGEST);
        let failed = Failed {
            is_out: true,
            wait,
            until: now + wait,
        };
        self.failed.insert(device, failed);
    }

    /// The devices that are left out now.
    pub(super) fn left_out(&self) -> Vec<u32> {
        let out = self.failed.iter().filter(|(_, failed)| failed.is_out);
        out.map(|(device, _)| *device).collect()
    }

    /// The device that should be tried again first, if its time has come.
    pub(super) fn due(&self, now: Instant) -> Option<u32> {
        let failed = self.failed.iter();
        let due = failed.filter(|(_, failed)| failed.is_out && now >= failed.until);
        let first = due.min_by_key(|(_, failed)| failed.until);
        first.map(|(device, _)| *device)
    }

    /// A device could be read in a sensor of its own.
    pub(super) fn readmit(&mut self, device: u32, now: Instant) {
        if let Some(failed) = self.failed.get_mut(&device) {
            failed.is_out = false;
            failed.until = now + LONGEST;
        }
    }

    /// A sensor read everything but what is left out.
    pub(super) fn well(&mut self, now: Instant) {
        self.suspect = None;
        self.failed
            .retain(|_, failed| failed.is_out || now < failed.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_left_out_after_two_failures_in_a_row_and_longer_each_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut quarantine = Quarantine::default();
        for device in [Some(1), Some(2), None, Some(2)] {
            assert!(!quarantine.blame(device, start), "{device:?}");
        }
        assert!(quarantine.blame(Some(2), start));
        assert_eq!(quarantine.left_out(), [2]);
        quarantine.well(start + 9 * second);
        assert_eq!(quarantine.due(start + 9 * second), None);
        // It stays out while it is tried again.
        assert_eq!(quarantine.due(start + 10 * second), Some(2));
        assert_eq!(quarantine.left_out(), [2]);
        quarantine.leave_out(2, start + 10 * second);
        assert_eq!(quarantine.due(start + 29 * second), None);
        assert_eq!(quarantine.due(start + 30 * second), Some(2));
        for _ in 0..20 {
            quarantine.leave_out(2, start);
        }
        assert_eq!(quarantine.due(start + LONGEST), Some(2));
    }

    #[test]
    fn a_device_that_is_back_and_fails_again_needs_no_second_chance() {
        let start = Instant::now();
        let mut quarantine = Quarantine::default();
        quarantine.leave_out(2, start);
        quarantine.readmit(2, start);
        quarantine.well(start);
        assert_eq!(quarantine.left_out(), [0; 0]);
        assert_eq!(quarantine.due(start + LONGEST), None);
        assert!(quarantine.blame(Some(2), start));
        assert_eq!(quarantine.left_out(), [2]);
        // Well for long, its failures are forgotten.
        quarantine.readmit(2, start);
        quarantine.well(start + LONGEST);
        assert!(!quarantine.blame(Some(2), start + LONGEST));
    }
}
