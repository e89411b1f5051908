//! The file descriptor scan, the sampler and the writers of the store as benchmarks and tests run
//! them; no stable interface.

use crate::fd_scan::{DeviceNumber, FdScanHandle, WatchMode};
use crate::kill::kill_result;
use crate::poll::device_faults;
use crate::poll::sampler::{Sampler, SamplerInput};
use crate::store::{
    Action, ActionKind, BenchRecorder, BenchStore, FaultChange, RecordedEvent, Sample,
};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::json::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillReport};
use gpukill_proto::model::{Device, GpuEvent, Snapshot};
use gpukill_proto::units::Timestamp;
use serde_json::json;
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
        let times = (at, Duration::from_secs(2), Duration::from_secs(10));
        add_poll(&mut self.sampler, snapshot, times)
            .iter()
            .try_for_each(|sample| self.recording.write(sample))
    }
}

/// Adds a poll of a host without groups, accounts and verdicts, at this time by the monotonic
/// clock, with this poll interval and this sample interval.
fn add_poll(
    sampler: &mut Sampler,
    snapshot: &Arc<Snapshot>,
    (at, interval, sample_interval): (Duration, Duration, Duration),
) -> Vec<Sample> {
    sampler.add(&SamplerInput {
        snapshot,
        groups: &Arc::default(),
        accounts: &Arc::default(),
        suspected: &Arc::default(),
        at,
        interval,
        sample_interval,
    })
}

/// Writes a store as one run of the daemon does, with a manual clock and without a daemon: the
/// samples of polls, and the record of actions, events and decisions.
pub struct DaemonRunBench {
    sampler: Sampler,
    store: BenchStore,
    started_at: Timestamp,
    interval: Duration,
}

impl DaemonRunBench {
    /// Opens the store in this directory, and records the start of the daemon at this time in
    /// this boot of the host. `interval` is the longest time between two polls.
    ///
    /// # Errors
    /// When the store cannot be opened or written; the text has the reason.
    pub fn start(
        directory: &Path,
        boot: &str,
        at: Timestamp,
        interval: Duration,
    ) -> Result<Self, String> {
        Ok(Self {
            // No such processes exist: all processes that leave have ended.
            sampler: Sampler::new("/nonexistent".into()),
            store: BenchStore::start(directory, boot, at)?,
            started_at: at,
            interval,
        })
    }

    /// Records the end of the daemon.
    ///
    /// # Errors
    /// The error of the store.
    pub fn stop(self, at: Timestamp) -> Result<(), String> {
        self.store.record(at, &RecordedEvent::Stopped)
    }

    /// Writes the sample of a poll.
    ///
    /// # Errors
    /// The error of the store.
    pub fn poll(&mut self, snapshot: &Arc<Snapshot>) -> Result<(), String> {
        let at = snapshot.taken_at.since(self.started_at);
        let times = (at, self.interval, Duration::ZERO);
        add_poll(&mut self.sampler, snapshot, times)
            .iter()
            .try_for_each(|sample| self.store.write(sample))
    }

    /// Records an event of a device.
    ///
    /// # Errors
    /// The error of the store.
    pub fn device_event(&self, event: &GpuEvent) -> Result<(), String> {
        let recorded = RecordedEvent::Device(event.clone(), 1);
        self.store.record(event.at, &recorded)
    }

    /// Records the faults of a device that began or are over between two polls.
    ///
    /// # Errors
    /// The error of the store.
    pub fn change_faults(
        &self,
        at: Timestamp,
        before: &Device,
        after: &Device,
    ) -> Result<(), String> {
        let [before, after] = [before, after].map(|device| (device, device_faults(device, true)));
        let began = after.1.iter().filter(|fault| !before.1.contains(fault));
        let over = before.1.iter().filter(|fault| !after.1.contains(fault));
        let began = began.map(|fault| (fault, false));
        let mut changes = began.chain(over.map(|fault| (fault, true)));
        changes.try_for_each(|(fault, is_over)| {
            let change = FaultChange {
                at,
                part: fault.part.clone(),
                device: Some(after.0.id.clone()),
                code: fault.cause.code,
                what: fault.cause.what.clone(),
                is_over,
                times: 1,
            };
            self.store.record(at, &RecordedEvent::Fault(change))
        })
    }

    /// Records a decision of the guard.
    ///
    /// # Errors
    /// The error of the store.
    pub fn decide(&self, record: &GuardRecord) -> Result<(), String> {
        self.store.decide(record)
    }

    /// Records a kill that was planned by this user's request, and was over at this time.
    ///
    /// # Errors
    /// The error of the store.
    pub fn kill(
        &mut self,
        uid: u32,
        request: &str,
        plan: &KillPlan,
        (report, finished_at): (&KillReport, Timestamp),
    ) -> Result<(), String> {
        let text = |document: serde_json::Result<String>| document.map_err(|it| it.to_string());
        let action = Action {
            kind: ActionKind::Kill,
            uid,
            request: request.to_owned(),
            plan: text(serde_json::to_string(&KillPlanDocument::from(plan)))?,
        };
        let outcome = text(serde_json::to_string(&KillReportDocument::from(report)))?;
        let end = (kill_result(plan, report), outcome);
        self.store.act(&action, (plan.at, finished_at), end)
    }

    /// Records an edit of the guard's rules by this user, with its difference.
    ///
    /// # Errors
    /// The error of the store.
    pub fn edit_rules(
        &mut self,
        at: Timestamp,
        uid: u32,
        edit: &GuardEdit,
        difference: &str,
    ) -> Result<(), String> {
        let action = Action {
            kind: ActionKind::EditRules,
            uid,
            request: edit.to_string(),
            plan: json!({ "difference": difference }).to_string(),
        };
        self.store.act(&action, (at, at), ("done", "{}".to_owned()))
    }
}
