//! The JSON of a process on a device.

use super::fields::{bytes, document, mib, part, percent, within};
use super::{MarkDocument, Marks, SuspectedDocument};
use crate::guard::of_process;
use crate::reading::Reading;
use crate::rogue::Suspected;
use crate::snapshot::{
    Container, GpuProcess, Job, NetworkRole, OwnerKind, Parent, Pod, SchedulerJob, Snapshot, Unit,
    Use,
};
use crate::text;
use crate::units::Timestamp;
use serde::Serialize;
use std::cmp::Reverse;

document! {
    /// One process on one device, or on one part of a device that is divided.
    ProcessDocument(
        gpu_index: u32,
        taken_at: Timestamp,
        process: &GpuProcess,
        marks: Marks<'_>
    ) {
        gpu_index: u32 = gpu_index,
        gpu_id: String = process.device.0.clone(),
        gpu_instance: Option<u32> = process.instance.map(|instance| instance.gpu),
        compute_instance: Option<u32> = process.instance.map(|instance| instance.compute),
        pid: u32 = process.pid,
        uid: Option<u32> = process.uid.clone(),
        user: Option<String> = process.user.clone(),
        /// The kernel's name for it, at most 15 bytes.
        proc_name: Option<String> = process.name.clone(),
        executable: Option<String> = process.executable.clone(),
        /// The command line, at most 512 bytes, controls made visible.
        command: Option<String> = process.command.clone(),
        used_mem_mb: Option<u64> = mib(&process.memory),
        used_mem_bytes: Option<u64> = bytes(&process.memory),
        /// Its share of the multiprocessors' time.
        util_pct: Option<u32> = percent(&process.utilization),
        mem_util_pct: Option<u32> = percent(&process.memory_utilization),
        encoder_util_pct: Option<u32> = percent(&process.encoder),
        decoder_util_pct: Option<u32> = percent(&process.decoder),
        /// When it last used the device; `null` without a reason: not since
        /// `first_seen`.
        last_active_at: Option<String> = moment(&process.last_active),
        /// How long it has run: `1h 30m`.
        start_time: Option<String> = part(&process.started_at, |at| {
            text::duration(taken_at.since(*at))
        }),
        started_at: Option<String> = part(&process.started_at, |at| at.to_rfc3339()),
        /// Clock ticks from boot; with `pid` it names the process for good.
        start_ticks: Option<u64> = start_ticks(process),
        /// Since when it has ended, where its driver lists it still; `null` without a
        /// reason where it has not.
        ended_at: Option<String> = process.ended_ago().map(|seconds| {
            let before = i64::from(seconds).saturating_mul(1000);
            Timestamp(taken_at.0.saturating_sub(before)).to_rfc3339()
        }),
        /// When gpukilld first saw it on this device, also before a restart.
        first_seen: Option<String> = part(&process.first_seen, |at| at.to_rfc3339()),
        /// `compute`, `graphics`, `mps`.
        used_for: Vec<&'static str> = uses(process.used_for),
        host_mem_bytes: Option<u64> = bytes(&process.host_memory),
        /// Of one core: 800 for eight.
        cpu_pct: Option<u32> = percent(&process.cpu),
        /// `private`, `service`, `notebook`: how others use its job over TCP.
        network_role: Option<&'static str> = part(&process.network_role, NetworkRole::name),
        /// The ports on which others can connect to its job, or to its notebook server.
        ports: Vec<u16> = process
            .network_role
            .last_known()
            .map_or_else(Vec::new, |role| role.ports().to_vec()),
        /// Connections of others to these ports, open or closed within the last minute.
        connections: Option<u32> = process.connections.clone(),
        /// Whom to ask.
        owner: Option<String> = part(&process.owner, |owner| owner.name.clone()),
        owner_uid: Option<u32> = part(&process.owner, |owner| owner.uid),
        /// `user`, `namespace`, `label`, `container`.
        owner_kind: Option<&'static str> = part(&process.owner, |owner| owner_kind(owner.kind)),
        login_uid: Option<u32> = process.login_uid.clone(),
        login_user: Option<String> = process.login_user.clone(),
        namespace_owner_uid: Option<u32> = process.namespace_owner.clone(),
        /// Its pid as its own container has it.
        inner_pid: Option<u32> = process.inner_pid.clone(),
        /// `docker/0123456789ab`; `null` without a reason when it runs in none.
        container: Option<String> = of_container(process, |container| container.id.to_string()),
        /// The whole id.
        container_id: Option<String> = of_container(process, |container| container.id.id.clone()),
        container_name: Option<String> = in_container(process, |container| some(&container.name)),
        container_image: Option<String> = in_container(process, |container| some(&container.image)),
        container_runtime: Option<String> =
            of_container(process, |container| container.id.runtime.clone()),
        /// The user below whose own systemd it is, who may call it what they like.
        container_manager_uid: Option<u32> =
            in_container(process, |container| Reading::Value(container.manager)),
        pod: Option<String> = in_pod(process, |pod| some(&pod.name)),
        pod_namespace: Option<String> = in_pod(process, |pod| some(&pod.namespace)),
        pod_uid: Option<String> = in_pod(process, |pod| Reading::Value(Some(pod.uid.clone()))),
        unit: Option<String> = of_unit(process, |unit| Some(unit.name.clone())),
        /// The user whose own systemd runs the unit.
        unit_manager_uid: Option<u32> = of_unit(process, |unit| unit.manager),
        session: Option<String> = process.place.session.clone(),
        terminal: Option<String> = process.place.terminal.clone(),
        /// `slurm`, `pbs`, `lsf`, `htcondor`.
        scheduler: Option<&'static str> = of_scheduler(process, |job| Some(job.scheduler.name())),
        scheduler_job: Option<String> = of_scheduler(process, |job| Some(job.job.clone())),
        scheduler_step: Option<String> = of_scheduler(process, |job| job.step.clone()),
        /// `slurm 1234.0`, `docker/0123456789ab`, `train.service`, `tree 4711`.
        job: Option<String> = part(&process.job, ToString::to_string),
        /// `scheduler`, `container`, `unit`, `tree`.
        /// Names it: no two jobs of one moment have the same.
        job_id: Option<String> = part(&process.job, Job::id),
        job_kind: Option<&'static str> = part(&process.job, job_kind),
        /// The nearest first, without pid 1.
        parents: Vec<ParentDocument> =
            process.parents.iter().map(ParentDocument::from).collect::<Vec<_>>(),
        /// The rules that it breaks, or is part of what does; the one that ends a job
        /// first comes first.
        rules: Vec<MarkDocument> = of_process(process, marks.rules)
            .into_iter()
            .map(MarkDocument::from)
            .collect::<Vec<_>>(),
        /// What it may be; `null` without a reason where there is no verdict of it.
        rogue: Option<SuspectedDocument> = part(&start_ticks(process), |_| {
            Suspected::of(process, marks.suspected).map(SuspectedDocument::from)
        }),
    }
}

/// An ancestor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ParentDocument {
    pub pid: u32,
    pub start_ticks: u64,
    pub name: String,
}

impl From<&Parent> for ParentDocument {
    fn from(parent: &Parent) -> Self {
        Self {
            pid: parent.key.pid,
            start_ticks: parent.key.start_ticks,
            name: parent.name.clone(),
        }
    }
}

/// The process that holds the most known memory; of those whose memory nobody
/// tells, the one that uses the most.
#[must_use]
pub fn top_process<'a>(
    processes: impl IntoIterator<Item = &'a GpuProcess>,
) -> Option<&'a GpuProcess> {
    // Whoever is no process here comes after those who are, and then the lowest pid
    // wins a tie, so that two runs print the same.
    processes.into_iter().max_by_key(|process| {
        let memory = process.memory.last_known().copied();
        let used = process.utilization.last_known().copied();
        let used = used.filter(|_| memory.is_none());
        let is_here = process.key().is_some();
        (memory, used, is_here, Reverse(process.pid))
    })
}

impl ProcessDocument {
    /// One process of a snapshot.
    pub(super) fn of(snapshot: &Snapshot, process: &GpuProcess, marks: Marks<'_>) -> Self {
        let index = gpu_index(snapshot, process);
        Self::new(index, snapshot.taken_at, process, marks)
    }
}

/// Also of one that has ended: `ended_at` says so.
fn start_ticks(process: &GpuProcess) -> Reading<u64> {
    match process.start_ticks {
        Reading::Stale(start_ticks, _) => Reading::Value(start_ticks),
        ref reading => reading.clone(),
    }
}

fn gpu_index(snapshot: &Snapshot, process: &GpuProcess) -> u32 {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.id == process.device);
    device.map_or(0, |device| device.index)
}

pub(super) fn uses(used_for: Use) -> Vec<&'static str> {
    let uses = [
        ("compute", used_for.compute),
        ("graphics", used_for.graphics),
        ("mps", used_for.mps),
    ];
    let does = uses.into_iter().filter(|(_, does)| *does);
    does.map(|(name, _)| name).collect()
}

pub(super) const fn owner_kind(kind: OwnerKind) -> &'static str {
    match kind {
        OwnerKind::User => "user",
        OwnerKind::Namespace => "namespace",
        OwnerKind::Label => "label",
        OwnerKind::Container => "container",
        OwnerKind::Subordinate => "subordinate",
    }
}

const fn job_kind(job: &Job) -> &'static str {
    match job {
        Job::Scheduler(_) => "scheduler",
        Job::Container { .. } => "container",
        Job::Unit { .. } => "unit",
        Job::Tree(_) => "tree",
    }
}

fn moment(reading: &Reading<Option<Timestamp>>) -> Reading<Option<String>> {
    part(reading, |at| at.map(Timestamp::to_rfc3339))
}

fn some<T: Clone>(reading: &Reading<T>) -> Reading<Option<T>> {
    part(reading, |value| Some(value.clone()))
}

// What is asked of a container, a pod, a unit or a scheduler's job is a known
// "none" where the process is in none.

fn in_container<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&Container) -> Reading<Option<T>>,
) -> Reading<Option<T>> {
    within(&process.place.container, |container| match container {
        Some(container) => ask(container),
        None => Reading::Value(None),
    })
}

fn of_container<T>(process: &GpuProcess, ask: impl FnOnce(&Container) -> T) -> Reading<Option<T>> {
    in_container(process, |container| Reading::Value(Some(ask(container))))
}

fn in_pod<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&Pod) -> Reading<Option<T>>,
) -> Reading<Option<T>> {
    in_container(process, |container| match &container.pod {
        Some(pod) => ask(pod),
        None => Reading::Value(None),
    })
}

fn of_unit<T>(process: &GpuProcess, ask: impl FnOnce(&Unit) -> Option<T>) -> Reading<Option<T>> {
    part(&process.place.unit, |unit| unit.as_ref().and_then(ask))
}

fn of_scheduler<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&SchedulerJob) -> Option<T>,
) -> Reading<Option<T>> {
    part(&process.place.scheduler, |job| job.as_ref().and_then(ask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading::{Failed, Unsupported, Value};
    use crate::snapshot::DeviceId;
    use crate::units::{Bytes, Percent};

    #[test]
    fn the_top_process_holds_the_most_or_else_uses_the_most_and_is_one_of_this_box() {
        let process = |pid, memory, utilization, start_ticks| GpuProcess {
            memory,
            utilization,
            start_ticks,
            ..GpuProcess::unknown(DeviceId("GPU-0".into()), pid, Timestamp(0), &Unsupported)
        };
        let used = |percent| Value(Percent(percent));
        let here = || Value(7);
        let nowhere = || Failed("no such process here".to_owned());
        for (processes, expected) in [
            (
                [
                    process(1, Unsupported, used(90), here()),
                    process(2, Value(Bytes(5)), used(1), nowhere()),
                ],
                2,
            ),
            // Of two that hold the same, what they use may change at each poll.
            (
                [
                    process(1, Value(Bytes(5)), used(1), here()),
                    process(2, Value(Bytes(5)), used(9), here()),
                ],
                1,
            ),
            (
                [
                    process(1, Unsupported, used(1), here()),
                    process(2, Unsupported, used(9), nowhere()),
                ],
                2,
            ),
            (
                [
                    process(1, Unsupported, Unsupported, nowhere()),
                    process(2, Unsupported, Unsupported, here()),
                ],
                2,
            ),
            (
                [
                    process(1, Unsupported, Unsupported, here()),
                    process(2, Unsupported, used(0), here()),
                ],
                2,
            ),
        ] {
            assert_eq!(top_process(&processes).map(|it| it.pid), Some(expected));
        }
    }
}
