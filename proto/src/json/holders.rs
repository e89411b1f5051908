//! The JSON of `gpukillctl holders`.

use super::SCHEMA;
use super::fields::{and_then_ref, bytes, document, documents, map_ref, mib, percent};
use super::process::use_names;
use super::schema::described;
use crate::holders::{
    Cause, EndedHolder, Holder, HolderFinding, HoldersReport, ProcessState, Remedy, Role,
};
use crate::model::{Container, GpuUse, OwnerKind};
use crate::reading::Reading;
use crate::units::Timestamp;

described! {
    /// The document that `gpukillctl holders -o json` prints.
    pub struct HoldersDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        /// The daemon's clock when it answered.
        pub ts: String as Timestamp,
        /// The devices, in the order of their index.
        pub held_gpus: Vec<DeviceHoldersDocument>,
    }
}

impl HoldersDocument {
    /// The holders of these devices at this time.
    #[must_use]
    pub fn new(at: Timestamp, devices: &[HoldersReport]) -> Self {
        Self {
            schema: SCHEMA,
            ts: at.to_rfc3339(),
            held_gpus: documents(devices),
        }
    }
}

document! {
    /// One device and the processes that have it open.
    DeviceHoldersDocument(report: &HoldersReport) {
        gpu_index: u32 = report.device.index,
        gpu_id: String = report.device.id.0.clone(),
        name: Option<String> = report.device.name.clone(),
        mem_total_bytes: Option<u64> = bytes(&report.device.memory_total),
        mem_used_mb: Option<u64> = mib(&report.device.memory_used),
        mem_used_bytes: Option<u64> = bytes(&report.device.memory_used),
        /// Used memory that no process explains.
        mem_unattributed_bytes: Option<u64> = bytes(&report.device.memory_unattributed),
        util_pct: Option<u32> = percent(&report.device.utilization),
        /// Since when the device has been busy without a holder.
        busy_without_holder_since: Option<String> as Option<Timestamp> = report.device.busy_without_holder_since.map(Timestamp::to_rfc3339),
        /// Why there may be other holders.
        incomplete_reason: Option<String> = report.device.incomplete_reason.clone(),
        holders: Vec<HolderDocument> = report
            .device
            .holders
            .iter()
            .zip(&report.roles)
            .map(|(holder, role)| HolderDocument::new(holder, *role))
            .collect::<Vec<_>>(),
        ended: Vec<EndedHolderDocument> = documents(&report.device.ended),
        findings: Vec<HolderFindingDocument> = documents(&report.findings),
    }
}

document! {
    /// One process that has a device open or that its driver lists.
    HolderDocument(holder: &Holder, role: Role) {
        pid: u32 = holder.pid,
        start_ticks: Option<u64> = holder.start_ticks.clone(),
        uid: Option<u32> = holder.uid.clone(),
        user: Option<String> = holder.user.clone(),
        owner: Option<String> = map_ref(&holder.owner, |owner| owner.name.clone()),
        owner_uid: Option<u32> = map_ref(&holder.owner, |owner| owner.uid),
        owner_kind: Option<&'static str> as Option<OwnerKind> = map_ref(&holder.owner, |owner| owner.kind.name()),
        namespace_owner_uid: Option<u32> = holder.namespace_owner.clone(),
        proc_name: Option<String> = holder.name.clone(),
        command: Option<String> = holder.command.clone(),
        /// `running`, `sleeping`, `uninterruptible`, `stopped`, `zombie`, `other`.
        state: Option<&'static str> as Option<ProcessState> = map_ref(&holder.state, ProcessState::name),
        /// The kernel function that an uninterruptible process waits in.
        waits_on: Option<String> = map_ref(&holder.state, waits_on),
        parent_pid: Option<u32> = holder.parent.clone(),
        parent_name: Option<String> = holder.parent_name.clone(),
        process_group: Option<u32> = holder.group.clone(),
        group_leader_is_here: Option<bool> = holder.group_leader_is_here.clone(),
        inner_pid: Option<u32> = holder.inner_pid.clone(),
        container: Option<String> = container_value(holder, |container| container.id.to_string()),
        container_name: Option<String> = and_then_ref(&holder.container, |container| match container {
            Some(container) => map_ref(&container.name, |name| Some(name.clone())),
            None => Reading::Value(None),
        }),
        /// The open device files, as below `/dev`: `nvidia6`, `nvidia-uvm`.
        holds: Vec<String> = holder.holds.clone(),
        /// Whether one of these files belongs to this device alone.
        holds_this_gpu: bool = holder.holds_this_device,
        /// Whether the driver lists it.
        listed: bool = holder.listed,
        /// The process that the memory of its open files is counted for.
        shares_with: Option<u32> = holder.shares_with,
        /// The process that was first observed with a descriptor that was passed between
        /// processes of several persons.
        passed_from_pid: Option<u32> = holder.passed_from.map(|first| first.pid),
        passed_from_uid: Option<u32> = holder.passed_from.and_then(|first| first.uid),
        used_for: Vec<&'static str> as Vec<GpuUse> = use_names(holder.used_for),
        used_mem_mb: Option<u64> = mib(&holder.memory),
        used_mem_bytes: Option<u64> = bytes(&holder.memory),
        /// The role of the process for the device.
        role: &'static str as Role = role.name(),
        /// The ended process that had the descriptors of an orphan.
        orphan_of: Option<u32> = role.orphan_origin().0,
        /// When the end of that process was first observed.
        orphaned_at: Option<String> as Option<Timestamp> = role.orphan_origin().1.map(Timestamp::to_rfc3339),
    }
}

fn waits_on(state: &ProcessState) -> Option<String> {
    match state {
        ProcessState::Uninterruptible(kernel_function) => kernel_function.clone(),
        ProcessState::Running
        | ProcessState::Sleeping
        | ProcessState::Stopped
        | ProcessState::Zombie
        | ProcessState::Other(_) => None,
    }
}

fn container_value<T>(holder: &Holder, ask: impl FnOnce(&Container) -> T) -> Reading<Option<T>> {
    map_ref(&holder.container, |container| container.as_ref().map(ask))
}

document! {
    /// One process that held a device and has ended.
    EndedHolderDocument(ended: &EndedHolder) {
        pid: u32 = ended.key.pid,
        start_ticks: u64 = ended.key.start_ticks,
        proc_name: Option<String> = ended.name.clone(),
        user: Option<String> = ended.user.clone(),
        used_mem_mb: Option<u64> = mib(&ended.memory),
        used_mem_bytes: Option<u64> = bytes(&ended.memory),
        /// When its end was first observed.
        ended_at: String as Timestamp = ended.at.to_rfc3339(),
    }
}

document! {
    /// Why memory is unattributed.
    plain HolderFindingDocument(finding: &HolderFinding) {
        cause: &'static str as Cause = finding.cause.name(),
        pids: Vec<u32> = finding.pids.clone(),
        /// The observations that show the cause.
        evidence: Vec<String> = finding.evidence.clone(),
        /// `end`, `reap`, `reset`, `wait`; `null` if none is known.
        remedy: Option<&'static str> as Option<Remedy> = finding.remedy.as_ref().map(Remedy::name),
        /// The processes to end, or the parent that has to reap.
        remedy_pids: Vec<u32> = match &finding.remedy {
            Some(Remedy::End(pids)) => pids.clone(),
            Some(Remedy::Reap(parent)) => vec![*parent],
            Some(Remedy::Reset | Remedy::Wait) | None => Vec::new(),
        },
    }
}
