//! The JSON of `gpukillctl holders`.

use super::SCHEMA;
use super::fields::{bytes, document, mib, part, percent, within};
use super::process::{owner_kind, uses};
use crate::holders::{
    EndedHolder, Finding, HeldDevice, Holder, HoldersReport, ProcessState, Remedy, Role,
};
use crate::reading::Reading;
use crate::snapshot::Container;
use crate::units::Timestamp;
use serde::Serialize;

/// What `gpukillctl holders -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HoldersDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The daemon's clock when it answered.
    pub ts: String,
    /// The devices, in the order of their index.
    pub held_gpus: Vec<HeldGpuDocument>,
}

impl HoldersDocument {
    /// These devices, at this moment.
    #[must_use]
    pub fn new(at: Timestamp, devices: &[HoldersReport]) -> Self {
        Self {
            schema: SCHEMA,
            ts: at.to_rfc3339(),
            held_gpus: devices.iter().map(HeldGpuDocument::from).collect(),
        }
    }
}

document! {
    /// One device, and whoever has it open.
    HeldGpuDocument(device: &HeldDevice, report: &HoldersReport) {
        gpu_index: u32 = device.index,
        gpu_id: String = device.id.0.clone(),
        name: Option<String> = device.name.clone(),
        mem_total_bytes: Option<u64> = bytes(&device.memory_total),
        mem_used_mb: Option<u64> = mib(&device.memory_used),
        mem_used_bytes: Option<u64> = bytes(&device.memory_used),
        /// Used, and explained by no process.
        mem_unattributed_bytes: Option<u64> = bytes(&device.memory_unattributed),
        util_pct: Option<u32> = percent(&device.utilization),
        /// Since when it is busy with nobody who holds it.
        busy_alone_since: Option<String> = device.busy_alone_since.map(Timestamp::to_rfc3339),
        /// Why there may be other holders.
        unseen: Option<String> = device.unseen.clone(),
        holders: Vec<HolderDocument> = holders(report),
        ended: Vec<EndedDocument> =
            device.ended.iter().map(EndedDocument::from).collect::<Vec<_>>(),
        findings: Vec<FindingDocument> =
            report.findings.iter().map(FindingDocument::from).collect::<Vec<_>>(),
    }
}

impl From<&HoldersReport> for HeldGpuDocument {
    fn from(report: &HoldersReport) -> Self {
        Self::new(&report.device, report)
    }
}

fn holders(report: &HoldersReport) -> Vec<HolderDocument> {
    let holders = report.device.holders.iter().zip(&report.roles);
    holders
        .map(|(holder, role)| HolderDocument::new(holder, *role))
        .collect()
}

document! {
    /// One process that has a device open, or is listed on it.
    HolderDocument(holder: &Holder, role: Role) {
        pid: u32 = holder.pid,
        start_ticks: Option<u64> = holder.start_ticks.clone(),
        uid: Option<u32> = holder.uid.clone(),
        user: Option<String> = holder.user.clone(),
        owner: Option<String> = part(&holder.owner, |owner| owner.name.clone()),
        owner_uid: Option<u32> = part(&holder.owner, |owner| owner.uid),
        owner_kind: Option<&'static str> = part(&holder.owner, |owner| owner_kind(owner.kind)),
        namespace_owner_uid: Option<u32> = holder.namespace_owner.clone(),
        proc_name: Option<String> = holder.name.clone(),
        command: Option<String> = holder.command.clone(),
        /// `running`, `sleeping`, `uninterruptible`, `stopped`, `zombie`, `other`.
        state: Option<&'static str> = part(&holder.state, ProcessState::name),
        /// What an uninterruptible one waits on.
        waits_on: Option<String> = part(&holder.state, waits_on),
        parent_pid: Option<u32> = holder.parent.clone(),
        parent_name: Option<String> = holder.parent_name.clone(),
        process_group: Option<u32> = holder.group.clone(),
        group_leader_is_here: Option<bool> = holder.group_leader_is_here.clone(),
        inner_pid: Option<u32> = holder.inner_pid.clone(),
        container: Option<String> = of_container(holder, |container| container.id.to_string()),
        container_name: Option<String> = within(&holder.container, |container| match container {
            Some(container) => part(&container.name, |name| Some(name.clone())),
            None => Reading::Value(None),
        }),
        /// `nvidia6`, `nvidia-uvm`: as below `/dev`.
        holds: Vec<String> = holder.holds.clone(),
        /// Whether one of them is of this device alone.
        holds_this_gpu: bool = holder.holds_this_device,
        /// Whether the driver lists it.
        listed: bool = holder.listed,
        /// The process for which what it has open is counted.
        shares_with: Option<u32> = holder.shares_with,
        /// The process that was first seen with a descriptor that was passed between
        /// processes of several persons.
        passed_from_pid: Option<u32> = holder.passed_from.map(|first| first.pid),
        passed_from_uid: Option<u32> = holder.passed_from.and_then(|first| first.uid),
        used_for: Vec<&'static str> = uses(holder.used_for),
        used_mem_mb: Option<u64> = mib(&holder.memory),
        used_mem_bytes: Option<u64> = bytes(&holder.memory),
        /// What it is to the device.
        role: &'static str = role.name(),
        /// The process that an orphan came from.
        orphan_of: Option<u32> = role.orphan().0,
        /// When that was first missed.
        orphaned_at: Option<String> = role.orphan().1.map(Timestamp::to_rfc3339),
    }
}

fn waits_on(state: &ProcessState) -> Option<String> {
    match state {
        ProcessState::Uninterruptible(place) => place.clone(),
        ProcessState::Running
        | ProcessState::Sleeping
        | ProcessState::Stopped
        | ProcessState::Zombie
        | ProcessState::Other(_) => None,
    }
}

fn of_container<T>(holder: &Holder, ask: impl FnOnce(&Container) -> T) -> Reading<Option<T>> {
    part(&holder.container, |container| container.as_ref().map(ask))
}

document! {
    /// One process that held a device, and has ended.
    EndedDocument(ended: &EndedHolder) {
        pid: u32 = ended.key.pid,
        start_ticks: u64 = ended.key.start_ticks,
        proc_name: Option<String> = ended.name.clone(),
        user: Option<String> = ended.user.clone(),
        used_mem_mb: Option<u64> = mib(&ended.memory),
        used_mem_bytes: Option<u64> = bytes(&ended.memory),
        /// When it was first missed.
        ended_at: String = ended.at.to_rfc3339(),
    }
}

impl From<&EndedHolder> for EndedDocument {
    fn from(ended: &EndedHolder) -> Self {
        Self::new(ended)
    }
}

/// Why memory is held that no process explains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct FindingDocument {
    pub cause: &'static str,
    pub pids: Vec<u32>,
    /// What was seen that says so.
    pub evidence: Vec<String>,
    /// `end`, `reap`, `reset`, `wait`; `null` where none is known.
    pub remedy: Option<&'static str>,
    /// Whom to end, or who has to reap.
    pub remedy_pids: Vec<u32>,
}

impl From<&Finding> for FindingDocument {
    fn from(finding: &Finding) -> Self {
        let (remedy, remedy_pids) = match &finding.remedy {
            Some(Remedy::End(pids)) => (Some("end"), pids.clone()),
            Some(Remedy::Reap(parent)) => (Some("reap"), vec![*parent]),
            Some(Remedy::Reset) => (Some("reset"), Vec::new()),
            Some(Remedy::Wait) => (Some("wait"), Vec::new()),
            None => (None, Vec::new()),
        };
        Self {
            cause: finding.cause.name(),
            pids: finding.pids.clone(),
            evidence: finding.evidence.clone(),
            remedy,
            remedy_pids,
        }
    }
}
