//! The JSON that `-o json` prints: one shape for the client, exports and other
//! programs.
//!
//! Field names are stable; fields are only added. A field without a fresh value
//! is `null`, and `reasons` beside it says why: `"unsupported"`, `"failed: …"`,
//! `"stale: 12 s"` or `"withheld: …"`. Names that end in `_mb` count MiB, names
//! that end in `_bytes` are exact.

mod status;

pub use status::{BackendDocument, StatusDocument};

use crate::audit::{AuditRecord, AuditSubject};
use crate::reading::Reading;
use crate::snapshot::{Device, Fault, GpuProcess, Snapshot};
use crate::text;
use crate::units::{Bytes, Milliwatts, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of this shape. It grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What `gpukillctl list -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The host name of the box.
    pub host: String,
    /// When the poll began, RFC 3339 in UTC.
    pub ts: String,
    /// Counts polls since the daemon started.
    pub tick: u64,
    /// The devices, in the order of their index.
    pub gpus: Vec<GpuDocument>,
    /// One for each process and device it uses.
    pub procs: Vec<ProcessDocument>,
    /// How each vendor's backend stands: whether an empty `gpus` means "none".
    pub backends: Vec<BackendDocument>,
    /// What is broken now.
    pub faults: Vec<FaultDocument>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct GpuDocument {
    pub gpu_index: u32,
    /// The UUID (NVIDIA) or the PCI address: the name that lasts.
    pub id: String,
    pub pci: Option<String>,
    pub name: Option<String>,
    pub vendor: &'static str,
    /// `ok` or `lost`.
    pub state: &'static str,
    pub lost_since: Option<String>,
    pub lost_reason: Option<String>,
    pub mem_used_mb: Option<u64>,
    pub mem_total_mb: Option<u64>,
    pub mem_used_bytes: Option<u64>,
    pub mem_total_bytes: Option<u64>,
    /// Kept by the driver; not part of `mem_used_bytes`.
    pub mem_reserved_bytes: Option<u64>,
    /// Used, and explained by no process.
    pub mem_unattributed_bytes: Option<u64>,
    pub mem_unified: bool,
    pub util_pct: Option<u32>,
    pub temp_c: Option<i32>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    /// Uncorrected errors since the driver was loaded.
    pub ecc_volatile: Option<u64>,
    /// How many processes use it.
    pub pids: Option<u32>,
    /// The one that holds the most memory.
    pub top_proc: Option<ProcessDocument>,
    pub reasons: BTreeMap<&'static str, String>,
}

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct ProcessDocument {
    pub gpu_index: u32,
    pub gpu_id: String,
    pub pid: u32,
    pub uid: Option<u32>,
    pub user: Option<String>,
    /// The kernel's name for it, at most 15 bytes.
    pub proc_name: Option<String>,
    pub executable: Option<String>,
    /// The command line, at most 512 bytes, controls made visible.
    pub command: Option<String>,
    pub used_mem_mb: Option<u64>,
    pub used_mem_bytes: Option<u64>,
    /// Its share of the multiprocessors' time.
    pub util_pct: Option<u32>,
    /// How long it has run: `1h 30m`.
    pub start_time: Option<String>,
    pub started_at: Option<String>,
    /// Clock ticks from boot; with `pid` it names the process for good.
    pub start_ticks: Option<u64>,
    /// When the daemon first saw it on this device.
    pub first_seen: String,
    /// `compute`, `graphics`, `mps`.
    pub used_for: Vec<&'static str>,
    /// `docker/0123456789ab`; `null` without a reason when it runs in none.
    pub container: Option<String>,
    /// The whole id.
    pub container_id: Option<String>,
    pub reasons: BTreeMap<&'static str, String>,
}

/// Something that is broken now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct FaultDocument {
    pub part: String,
    pub what: String,
    pub since: String,
}

/// One record of `gpukillctl audit -o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct AuditDocument {
    pub id: u64,
    pub timestamp: String,
    pub gpu_index: u32,
    pub gpu_id: String,
    pub gpu_name: Option<String>,
    /// `null` in a record of the device as a whole.
    pub pid: Option<u32>,
    pub uid: Option<u32>,
    pub user: Option<String>,
    pub process_name: Option<String>,
    pub command: Option<String>,
    pub memory_used_mb: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub utilization_pct: Option<u32>,
    pub temperature_c: Option<i32>,
    pub power_w: Option<f64>,
    pub container: Option<String>,
    pub reasons: BTreeMap<&'static str, String>,
}

/// Collects why fields are `null` while their values are taken.
#[derive(Default)]
struct Reasons(BTreeMap<&'static str, String>);

impl Reasons {
    fn take<T: Clone>(&mut self, field: &'static str, reading: &Reading<T>) -> Option<T> {
        if let Some(reason) = reading.reason() {
            self.0.insert(field, reason);
        }
        reading.known().cloned()
    }

    fn take_both(
        &mut self,
        fields: [&'static str; 2],
        reading: &Reading<Bytes>,
    ) -> (Option<u64>, Option<u64>) {
        let mib = self.take(fields[0], reading).map(Bytes::as_mib);
        let bytes = self.take(fields[1], reading).map(|bytes| bytes.0);
        (mib, bytes)
    }
}

impl From<&Snapshot> for ListDocument {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            schema: SCHEMA,
            host: snapshot.host.clone(),
            ts: snapshot.taken_at.to_rfc3339(),
            tick: snapshot.tick,
            gpus: snapshot
                .devices
                .iter()
                .map(|device| gpu(snapshot, device))
                .collect(),
            procs: snapshot
                .processes
                .iter()
                .map(|process| proc(snapshot, process))
                .collect(),
            backends: snapshot
                .backends
                .iter()
                .map(BackendDocument::from)
                .collect(),
            faults: snapshot.faults.iter().map(FaultDocument::from).collect(),
        }
    }
}

impl From<&Fault> for FaultDocument {
    fn from(fault: &Fault) -> Self {
        Self {
            part: fault.part.clone(),
            what: fault.what.clone(),
            since: fault.since.to_rfc3339(),
        }
    }
}

/// The process that holds the most known memory on a device.
#[must_use]
pub fn top_process<'a>(snapshot: &'a Snapshot, device: &Device) -> Option<&'a GpuProcess> {
    let on_device = snapshot
        .processes
        .iter()
        .filter(|process| process.device == device.id);
    // The lowest pid wins a tie, so that two runs print the same.
    on_device.max_by_key(|process| {
        (
            process.memory.last_known().copied(),
            std::cmp::Reverse(process.pid),
        )
    })
}

fn gpu(snapshot: &Snapshot, device: &Device) -> GpuDocument {
    let mut reasons = Reasons::default();
    let (mem_used_mb, mem_used_bytes) =
        reasons.take_both(["mem_used_mb", "mem_used_bytes"], &device.memory_used);
    let (mem_total_mb, mem_total_bytes) =
        reasons.take_both(["mem_total_mb", "mem_total_bytes"], &device.memory_total);
    GpuDocument {
        gpu_index: device.index,
        id: device.id.0.clone(),
        pci: reasons.take("pci", &device.pci),
        name: reasons.take("name", &device.name),
        vendor: device.vendor.name(),
        state: if device.lost.is_some() { "lost" } else { "ok" },
        lost_since: device.lost.as_ref().map(|loss| loss.since.to_rfc3339()),
        lost_reason: device.lost.as_ref().map(|loss| loss.reason.clone()),
        mem_used_mb,
        mem_total_mb,
        mem_used_bytes,
        mem_total_bytes,
        mem_reserved_bytes: reasons
            .take("mem_reserved_bytes", &device.memory_reserved)
            .map(|b| b.0),
        mem_unattributed_bytes: reasons
            .take("mem_unattributed_bytes", &device.memory_unattributed)
            .map(|b| b.0),
        mem_unified: device.memory_unified,
        util_pct: reasons.take("util_pct", &device.utilization).map(|p| p.0),
        temp_c: reasons.take("temp_c", &device.temperature).map(|c| c.0),
        power_w: reasons
            .take("power_w", &device.power)
            .map(Milliwatts::as_watts),
        power_limit_w: reasons
            .take("power_limit_w", &device.power_limit)
            .map(Milliwatts::as_watts),
        ecc_volatile: reasons.take("ecc_volatile", &device.ecc_volatile),
        pids: reasons.take("pids", &device.process_count),
        top_proc: top_process(snapshot, device).map(|process| proc(snapshot, process)),
        reasons: reasons.0,
    }
}

fn proc(snapshot: &Snapshot, process: &GpuProcess) -> ProcessDocument {
    let mut reasons = Reasons::default();
    let (used_mem_mb, used_mem_bytes) =
        reasons.take_both(["used_mem_mb", "used_mem_bytes"], &process.memory);
    let started_at = reasons.take("started_at", &process.started_at);
    if let Some(reason) = process.started_at.reason() {
        reasons.0.insert("start_time", reason);
    }
    let container = reasons.take("container", &process.container).flatten();
    let uses = [
        ("compute", process.used_for.compute),
        ("graphics", process.used_for.graphics),
        ("mps", process.used_for.mps),
    ];
    ProcessDocument {
        gpu_index: snapshot
            .devices
            .iter()
            .find(|device| device.id == process.device)
            .map_or(0, |device| device.index),
        gpu_id: process.device.0.clone(),
        pid: process.pid,
        uid: reasons.take("uid", &process.uid),
        user: reasons.take("user", &process.user),
        proc_name: reasons.take("proc_name", &process.name),
        executable: reasons.take("executable", &process.executable),
        command: reasons.take("command", &process.command),
        used_mem_mb,
        used_mem_bytes,
        util_pct: reasons.take("util_pct", &process.utilization).map(|p| p.0),
        start_time: started_at.map(|at| text::duration(snapshot.taken_at.since(at))),
        started_at: started_at.map(Timestamp::to_rfc3339),
        start_ticks: reasons.take("start_ticks", &process.start_ticks),
        first_seen: process.first_seen.to_rfc3339(),
        used_for: uses
            .into_iter()
            .filter(|(_, does)| *does)
            .map(|(name, _)| name)
            .collect(),
        container: container.as_ref().map(ToString::to_string),
        container_id: container.map(|container| container.id),
        reasons: reasons.0,
    }
}

impl From<&AuditRecord> for AuditDocument {
    fn from(record: &AuditRecord) -> Self {
        let mut reasons = Reasons::default();
        let (memory_used_mb, memory_used_bytes) =
            reasons.take_both(["memory_used_mb", "memory_used_bytes"], &record.memory);
        let utilization_pct = reasons
            .take("utilization_pct", &record.utilization)
            .map(|p| p.0);
        let mut document = Self {
            id: record.id,
            timestamp: record.at.to_rfc3339(),
            gpu_index: record.gpu_index,
            gpu_id: record.device.0.clone(),
            gpu_name: record.gpu_name.clone(),
            pid: None,
            uid: None,
            user: None,
            process_name: None,
            command: None,
            memory_used_mb,
            memory_used_bytes,
            utilization_pct,
            temperature_c: None,
            power_w: None,
            container: None,
            reasons: BTreeMap::new(),
        };
        match &record.subject {
            AuditSubject::Device { temperature, power } => {
                document.temperature_c = reasons.take("temperature_c", temperature).map(|c| c.0);
                document.power_w = reasons.take("power_w", power).map(Milliwatts::as_watts);
            }
            AuditSubject::Process {
                pid,
                uid,
                user,
                name,
                command,
                container,
            } => {
                document.pid = Some(*pid);
                document.uid = *uid;
                document.user.clone_from(user);
                document.process_name.clone_from(name);
                document.command = reasons.take("command", command);
                document.container.clone_from(container);
            }
        }
        document.reasons = reasons.0;
        document
    }
}
