//! Devices about which the driver hangs or crashes. One that did so twice in a
//! row is left out for a while, so that the others can be read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a device is left out at first; doubled each time it fails again,
/// for every try costs the others their readings.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Which devices are left out, by their index.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// At which the last sensor failed.
    suspect: Option<u32>,
    held: BTreeMap<u32, Held>,
}

#[derive(Debug)]
struct Held {
    until: Instant,
    length: Duration,
}

impl Quarantine {
    /// A sensor failed while it read this device; `None`: none in particular.
    /// True when the device is left out from now on.
    pub(super) fn blame(&mut self, device: Option<u32>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.suspect, device);
        let Some(device) = device else {
            return false;
        };
        let again = self.held.get(&device).map(|held| held.length * 2);
        if again.is_none() && before != Some(device) {
            return false;
        }
        let length = again.unwrap_or(SHORTEST).min(LONGEST);
        let until = now + length;
        self.held.insert(device, Held { until, length });
        self.suspect = None;
        true
    }

    /// The devices to leave out now.
    pub(super) fn held(&self, now: Instant) -> Vec<u32> {
        let held = self.held.iter().filter(|(_, held)| now < held.until);
        held.map(|(device, _)| *device).collect()
    }

    /// A sensor read everything but these.
    pub(super) fn well_but(&mut self, left_out: &[u32]) {
        self.suspect = None;
        self.held.retain(|device, _| left_out.contains(device));
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
        assert!(!quarantine.blame(Some(1), start));
        assert!(!quarantine.blame(Some(2), start));
        assert!(!quarantine.blame(None, start));
        assert!(!quarantine.blame(Some(2), start));
        assert!(quarantine.blame(Some(2), start));
        assert_eq!(quarantine.held(start + 9 * second), [2]);
        quarantine.well_but(&[2]);
        // Tried again, it needs no second chance.
        assert!(quarantine.held(start + 11 * second).is_empty());
        assert!(quarantine.blame(Some(2), start + 11 * second));
        assert_eq!(quarantine.held(start + 30 * second), [2]);
        for _ in 0..20 {
            quarantine.blame(Some(2), start);
        }
        assert!(quarantine.held(start + LONGEST + second).is_empty());
        // Well again, all is forgotten.
        quarantine.well_but(&[]);
        assert!(!quarantine.blame(Some(2), start));
    }
}
