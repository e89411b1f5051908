//! The search as its benchmark runs it; no interface.

use super::{DeviceNumber, Holders, When};
use std::path::PathBuf;

/// The search for holders of one device.
pub struct Measured {
    holders: Holders,
}

impl Measured {
    /// Searches below `/proc` for holders of the device of this number.
    ///
    /// # Errors
    /// When the search cannot be started.
    pub fn start(major: u32, minor: u32) -> std::io::Result<Self> {
        let holders = Holders::start(PathBuf::from("/proc"))?;
        let numbers = [DeviceNumber { major, minor }].into();
        holders.watch("bench", numbers, When::Always);
        Ok(Self { holders })
    }

    /// Wishes for a look at every process.
    #[must_use]
    pub fn look_now(&self) -> u64 {
        self.holders.look_now()
    }

    /// Whether that wish came true.
    #[must_use]
    pub fn has_looked(&self, since: u64) -> bool {
        self.holders.has_looked(since)
    }

    /// The pids of the processes that were found.
    #[must_use]
    pub fn holders(&self) -> Vec<u32> {
        let found = self.holders.found();
        found.processes.keys().map(|key| key.pid).collect()
    }
}
