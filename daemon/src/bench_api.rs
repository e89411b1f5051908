//! The file descriptor scan and the sampler as the benchmarks run them; no stable interface.

use crate::fd_scan::{DeviceNumber, FdScanHandle, WatchMode};
use crate::poll::sampler::{Sampler, SamplerInput};
use crate::store::BenchRecorder;
use gpukill_proto::model::Snapshot;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
        let file_holders = self.scan.file_holders();
        file_holders.processes.keys().map(|key| key.pid).collect()
    }
}

/// Samples polls and writes the samples without a daemon.
pub struct SamplerBench {
    sampler: Sampler,
    recording: BenchRecorder,
}

impl SamplerBench {
    /// Opens the store in this directory.
    ///
    /// # Errors
    /// When the store cannot be opened; the text has the reason.
    pub fn open(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            // No such processes exist: all processes that leave have ended.
            sampler: Sampler::new("/nonexistent".into()),
            recording: BenchRecorder::open(directory)?,
        })
    }

    /// Takes a poll that was this long after the first one, and two seconds after the previous one.
    ///
    /// # Errors
    /// The error of the store.
    pub fn poll(&mut self, snapshot: &Arc<Snapshot>, at: Duration) -> Result<(), String> {
        let poll = SamplerInput {
            snapshot,
            groups: &Arc::default(),
            accounts: &Arc::default(),
            suspected: &Arc::default(),
            at,
            interval: Duration::from_secs(2),
            sample_interval: Duration::from_secs(10),
        };
        let samples = self.sampler.add(&poll);
        samples
            .iter()
            .try_for_each(|sample| self.recording.write(sample))
    }
}
