//! The file descriptor scan as its benchmark runs it; no stable interface.

use super::{DeviceNumber, FdScanHandle, WatchMode};
use std::path::PathBuf;

/// The scan for holders of one device.
pub struct FdScanBench {
    scan: FdScanHandle,
}

impl FdScanBench {
    /// Scans below `/proc` for holders of the device with this number.
    ///
    /// # Errors
    /// When the scan cannot be started.
    pub fn start(major: u32, minor: u32) -> std::io::Result<Self> {
        let holders = FdScanHandle::start(PathBuf::from("/proc"))?;
        let numbers = [DeviceNumber { major, minor }].into();
        holders.watch("bench", numbers, WatchMode::Always);
        Ok(Self { scan: holders })
    }

    /// Requests a scan of every process.
    #[must_use]
    pub fn request_scan(&self) -> u64 {
        self.scan.request_scan()
    }

    /// Whether that scan is complete.
    #[must_use]
    pub fn has_scanned(&self, since: u64) -> bool {
        self.scan.has_scanned(since)
    }

    /// The PIDs of the holders that were found.
    #[must_use]
    pub fn holders(&self) -> Vec<u32> {
        let found = self.scan.file_holders();
        found.processes.keys().map(|key| key.pid).collect()
    }
}
