//! A store filled by the daemon's own sample writer.

use super::super::database::{OpenDatabase, SAMPLES, open};
use super::super::sample::{DepartedProcess, Sample};
use super::super::sample_writer::SampleWriter;
use super::Deadline;
use gpukill_policy::usage::Usage;
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Owner, OwnerKind, Snapshot, Vendor};
use gpukill_proto::reading::Reading::{Unsupported, Value};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A Monday, midnight in UTC: 2026-11-16.
pub(super) const MONDAY: i64 = 1_794_787_200_000;
pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;

pub(super) struct SampleStore {
    pub(super) opened: OpenDatabase,
    written: SampleWriter,
    _directory: tempfile::TempDir,
}

pub(super) fn id(gpu: u32) -> DeviceId {
    DeviceId(format!("GPU-{gpu}"))
}

/// A device with this utilization, which draws a watt per percent.
pub(super) fn device(gpu: u32, percent: u32, memory: u64) -> Device {
    let mut device = Device::unknown(id(gpu), gpu, Vendor::Nvidia, &Unsupported);
    device.vitals.utilization = Value(Percent(percent));
    device.vitals.power = Value(Milliwatts(u64::from(percent) * 1000));
    device.vitals.temperature = Value(Celsius(40));
    device.memory_used = Value(Bytes::mib(memory));
    device.memory_unattributed = Value(Bytes(0));
    device
}

pub(super) fn owner(name: &str) -> Owner {
    Owner {
        name: name.into(),
        uid: Some(u32::try_from(name.len()).unwrap()),
        kind: OwnerKind::User,
    }
}

/// A process of this user with this utilization, which holds a MiB per percent.
pub(super) fn process(gpu: u32, pid: u32, name: &str, percent: u32) -> GpuProcess {
    GpuProcess {
        start_ticks: Value(9),
        uid: Value(owner(name).uid.unwrap()),
        user: Value(name.into()),
        owner: Value(owner(name)),
        name: Value("python".into()),
        command: Value(format!("python /home/{name}/train.py")),
        utilization: Value(Percent(percent)),
        memory: Value(Bytes::mib(u64::from(percent))),
        ..GpuProcess::unknown(id(gpu), pid, Timestamp(0), &Unsupported)
    }
}

impl SampleStore {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::open_in(directory)
    }

    fn open_in(directory: tempfile::TempDir) -> Self {
        let opened = open(directory.path(), &SAMPLES).unwrap();
        opened
            .connection
            .pragma_update(None, "synchronous", "OFF")
            .unwrap();
        Self {
            opened,
            written: SampleWriter::default(),
            _directory: directory,
        }
    }

    /// Copies the store.
    pub(super) fn copy(&self) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let path = path.to_str().unwrap();
        self.opened
            .connection
            .execute("VACUUM INTO ?1", [path])
            .unwrap();
        Self::open_in(directory)
    }

    /// Writes a sample that began at `from`, in milliseconds since 1970.
    pub(super) fn sample(
        &mut self,
        from: i64,
        length: i64,
        devices: Vec<Device>,
        processes: Vec<GpuProcess>,
    ) {
        self.sample_with_departed((from, length), devices, processes, Vec::new());
    }

    /// Writes a sample in which these processes also departed.
    pub(super) fn sample_with_departed(
        &mut self,
        (from, length): (i64, i64),
        devices: Vec<Device>,
        processes: Vec<GpuProcess>,
        departed: Vec<DepartedProcess>,
    ) {
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: Timestamp(from + length),
            polls: 1,
            devices,
            processes,
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let mut usage = Usage::starting_at(Timestamp(from));
        usage.add(&snapshot, Duration::from_millis(length.unsigned_abs()));
        let sample = Sample {
            usage,
            snapshot: Arc::new(snapshot),
            departed,
            groups: Arc::default(),
            accounts: Arc::default(),
            suspected: Arc::default(),
        };
        self.written
            .write(&mut self.opened.connection, "boot", &sample)
            .unwrap();
    }

    /// Writes the same sample repeatedly.
    pub(super) fn samples(
        &mut self,
        from: i64,
        until: i64,
        length: i64,
        devices: &[Device],
        processes: &[GpuProcess],
    ) {
        let mut at = from;
        while at < until {
            self.sample(at, length, devices.to_vec(), processes.to_vec());
            at += length;
        }
    }

    pub(super) fn execute(&self, statement: &str) {
        self.opened.connection.execute_batch(statement).unwrap();
    }
}

pub(super) fn generous_deadline() -> Deadline {
    Deadline(Instant::now() + Duration::from_secs(600))
}

pub(super) fn between(since: i64, until: i64) -> AuditFilter {
    AuditFilter::for_period(Timestamp(since), Timestamp(until))
}

pub(super) fn all_times() -> AuditFilter {
    between(i64::MIN, i64::MAX)
}
