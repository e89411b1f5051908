//! The JSON of a process on a device.

use super::fields::{and_then_ref, bytes, document, documents, map_ref, mib, percent};
use super::{ProcessAnnotations, VerdictSummaryDocument, ViolationMarkDocument};
use crate::guard::find_marks;
use crate::model::{
    Ancestor, Container, GpuProcess, GpuUse, Job, NetworkRole, OwnerKind, Pod, Scheduler,
    SchedulerJob, Snapshot, Unit,
};
use crate::reading::Reading;
use crate::rogue::VerdictSummary;
use crate::text;
use crate::units::Timestamp;
use std::cmp::Reverse;

document! {
    /// One process on one device, or on one instance of a divided device.
    ProcessDocument(
        gpu_index: u32,
        taken_at: Timestamp,
        process: &GpuProcess,
        marks: ProcessAnnotations<'_>
    ) {
        gpu_index: u32 = gpu_index,
        gpu_id: String = process.device.0.clone(),
        gpu_instance: Option<u32> = process.instance.map(|instance| instance.gpu),
        compute_instance: Option<u32> = process.instance.map(|instance| instance.compute),
        pid: u32 = process.pid,
        uid: Option<u32> = process.uid.clone(),
        user: Option<String> = process.user.clone(),
        /// The kernel's name of the process, at most 15 bytes.
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
        /// When it last used the device; `null` without a reason: not since `first_seen`.
        last_active_at: Option<String> as Option<Timestamp> = optional_timestamp(&process.last_active),
        /// How long the process has run: `1h 30m`.
        start_time: Option<String> = map_ref(&process.started_at, |at| {
            text::format_duration(taken_at.since(*at))
        }),
        started_at: Option<String> as Option<Timestamp> = map_ref(&process.started_at, |at| at.to_rfc3339()),
        /// Clock ticks since boot; identifies the process together with `pid`.
        start_ticks: Option<u64> = start_ticks(process),
        /// The end of the process, if its driver still lists it; `null` without a reason if it
        /// has not ended.
        ended_at: Option<String> as Option<Timestamp> = process.seconds_since_end().map(|seconds| {
            let before = i64::from(seconds).saturating_mul(1000);
            Timestamp(taken_at.0.saturating_sub(before)).to_rfc3339()
        }),
        /// When gpukilld first observed it on this device, also before a restart.
        first_seen: Option<String> as Option<Timestamp> = map_ref(&process.first_seen, |at| at.to_rfc3339()),
        /// `compute`, `graphics`, `mps`.
        used_for: Vec<&'static str> as Vec<GpuUse> = use_names(process.used_for),
        host_mem_bytes: Option<u64> = bytes(&process.host_memory),
        /// In percent of one core: 800 for eight cores.
        cpu_pct: Option<u32> = percent(&process.cpu),
        /// `private`, `service`, `notebook`: how clients outside the job use it over TCP.
        network_role: Option<&'static str> as Option<NetworkRole> = map_ref(&process.network_role, NetworkRole::name),
        /// The ports on which others can connect to its job, or to its notebook server.
        ports: Vec<u16> = process
            .network_role
            .last_known()
            .map_or_else(Vec::new, |role| role.ports().to_vec()),
        /// Connections of others to these ports, open or closed within the last minute.
        connections: Option<u32> = process.connections.clone(),
        /// The person to ask.
        owner: Option<String> = map_ref(&process.owner, |owner| owner.name.clone()),
        owner_uid: Option<u32> = map_ref(&process.owner, |owner| owner.uid),
        /// `user`, `namespace`, `label`, `container`.
        owner_kind: Option<&'static str> as Option<OwnerKind> = map_ref(&process.owner, |owner| owner.kind.name()),
        login_uid: Option<u32> = process.login_uid.clone(),
        login_user: Option<String> = process.login_user.clone(),
        namespace_owner_uid: Option<u32> = process.namespace_owner.clone(),
        /// The pid in its own container.
        inner_pid: Option<u32> = process.inner_pid.clone(),
        /// `docker/0123456789ab`; `null` without a reason if there is none.
        container: Option<String> = container_value(process, |container| container.id.to_string()),
        /// The complete id.
        container_id: Option<String> = container_value(process, |container| container.id.id.clone()),
        container_name: Option<String> = container_reading(process, |container| map_some(&container.name)),
        container_image: Option<String> = container_reading(process, |container| map_some(&container.image)),
        container_runtime: Option<String> =
            container_value(process, |container| container.id.runtime.clone()),
        /// The user that runs the container by a systemd of their own, and chooses its names.
        container_manager_uid: Option<u32> =
            container_reading(process, |container| Reading::Value(container.manager)),
        pod: Option<String> = pod_reading(process, |pod| map_some(&pod.name)),
        pod_namespace: Option<String> = pod_reading(process, |pod| map_some(&pod.namespace)),
        pod_uid: Option<String> = pod_reading(process, |pod| Reading::Value(Some(pod.uid.clone()))),
        unit: Option<String> = unit_value(process, |unit| Some(unit.name.clone())),
        /// The user that runs the unit by a systemd of their own.
        unit_manager_uid: Option<u32> = unit_value(process, |unit| unit.manager),
        session: Option<String> = process.location.session.clone(),
        terminal: Option<String> = process.location.terminal.clone(),
        /// `slurm`, `pbs`, `lsf`, `htcondor`.
        scheduler: Option<&'static str> as Option<Scheduler> = scheduler_value(process, |job| Some(job.scheduler.name())),
        scheduler_job: Option<String> = scheduler_value(process, |job| Some(job.job.clone())),
        scheduler_step: Option<String> = scheduler_value(process, |job| job.step.clone()),
        /// `slurm 1234.0`, `docker/0123456789ab`, `train.service`, `tree 4711`.
        job: Option<String> = map_ref(&process.job, ToString::to_string),
        /// The unique name: no two jobs of one moment have the same.
        job_id: Option<String> = map_ref(&process.job, Job::id),
        /// `scheduler`, `container`, `unit`, `tree`.
        job_kind: Option<&'static str> as Option<Job> = map_ref(&process.job, Job::kind),
        /// The nearest first, without pid 1.
        parents: Vec<AncestorDocument> = documents(&process.parents),
        /// The rules that it violates, alone or with others; the rule that ends a job first
        /// comes first.
        rules: Vec<ViolationMarkDocument> = find_marks(process, marks.rules)
            .into_iter()
            .map(ViolationMarkDocument::from)
            .collect::<Vec<_>>(),
        /// The worst verdict; `null` without a reason if there is none.
        rogue: Option<VerdictSummaryDocument> = map_ref(&start_ticks(process), |_| {
            VerdictSummary::find(process, marks.suspected).map(VerdictSummaryDocument::from)
        }),
    }
}

document! {
    /// An ancestor of a process.
    plain AncestorDocument(parent: &Ancestor) {
        pid: u32 = parent.key.pid,
        start_ticks: u64 = parent.key.start_ticks,
        name: String = parent.name.clone(),
    }
}

/// The process that holds the most known memory; among processes with unknown memory, the one
/// with the highest utilization.
#[must_use]
pub fn top_process<'a>(
    processes: impl IntoIterator<Item = &'a GpuProcess>,
) -> Option<&'a GpuProcess> {
    // Among equal entries a process of this host comes first, and then the lowest pid, so that two
    // runs print the same.
    processes.into_iter().max_by_key(|process| {
        let memory = process.memory.last_known().copied();
        let used = process.utilization.last_known().copied();
        let used = used.filter(|_| memory.is_none());
        let is_here = process.key().is_some();
        (memory, used, is_here, Reverse(process.pid))
    })
}

impl ProcessDocument {
    /// The document of one process of a snapshot.
    pub(super) fn from_snapshot(
        snapshot: &Snapshot,
        process: &GpuProcess,
        marks: ProcessAnnotations<'_>,
    ) -> Self {
        let index = gpu_index(snapshot, process);
        Self::new(index, snapshot.taken_at, process, marks)
    }
}

/// The start time, also of a process that has ended: `ended_at` shows the end.
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

pub(super) fn use_names(used_for: GpuUse) -> Vec<&'static str> {
    let does = [used_for.compute, used_for.graphics, used_for.mps];
    let named = GpuUse::WORDS.iter().copied().zip(does);
    let named = named.filter(|(_, does)| *does);
    named.map(|(name, _)| name).collect()
}

fn optional_timestamp(reading: &Reading<Option<Timestamp>>) -> Reading<Option<String>> {
    map_ref(reading, |at| at.map(Timestamp::to_rfc3339))
}

fn map_some<T: Clone>(reading: &Reading<T>) -> Reading<Option<T>> {
    map_ref(reading, |value| Some(value.clone()))
}

// A process outside of any container, pod, unit or scheduler job has a known "none" for their
// fields.

fn container_reading<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&Container) -> Reading<Option<T>>,
) -> Reading<Option<T>> {
    and_then_ref(&process.location.container, |container| match container {
        Some(container) => ask(container),
        None => Reading::Value(None),
    })
}

fn container_value<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&Container) -> T,
) -> Reading<Option<T>> {
    container_reading(process, |container| Reading::Value(Some(ask(container))))
}

fn pod_reading<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&Pod) -> Reading<Option<T>>,
) -> Reading<Option<T>> {
    container_reading(process, |container| match &container.pod {
        Some(pod) => ask(pod),
        None => Reading::Value(None),
    })
}

fn unit_value<T>(process: &GpuProcess, ask: impl FnOnce(&Unit) -> Option<T>) -> Reading<Option<T>> {
    map_ref(&process.location.unit, |unit| unit.as_ref().and_then(ask))
}

fn scheduler_value<T>(
    process: &GpuProcess,
    ask: impl FnOnce(&SchedulerJob) -> Option<T>,
) -> Reading<Option<T>> {
    map_ref(&process.location.scheduler, |job| {
        job.as_ref().and_then(ask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DeviceId;
    use crate::reading::Reading::{Failed, Unsupported, Value};
    use crate::units::{Bytes, Percent};

    #[test]
    fn top_process_prefers_memory_then_utilization() {
        let process = |pid, memory, utilization, start_ticks| GpuProcess {
            memory,
            utilization,
            start_ticks,
            ..GpuProcess::unknown(DeviceId("GPU-0".into()), pid, Timestamp(0), &Unsupported)
        };
        let used = |percent| Value(Percent(percent));
        let here = || Value(7);
        let nowhere = || Failed("no such process on this host".to_owned());
        for (processes, expected) in [
            (
                [
                    process(1, Unsupported, used(90), here()),
                    process(2, Value(Bytes(5)), used(1), nowhere()),
                ],
                2,
            ),
            // With equal memory the utilization is ignored, because it may change at each poll.
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
