//! The JSON of a run of the history.

use super::fields::document;
use super::summary::hours;
use crate::audit::{RunEnd, RunRecord};
use crate::model::OwnerKind;
use crate::units::{Bytes, Timestamp};

document! {
    /// One run of `gpukillctl audit -o json`.
    RunDocument(run: &RunRecord) {
        id: u64 = run.id,
        started_at: String as Timestamp = run.from.to_rfc3339(),
        /// `null` while it continues.
        ended_at: Option<String> as Option<Timestamp> = (run.end != RunEnd::Running).then(|| run.until.to_rfc3339()),
        duration_secs: f64 = run.until.since(run.from).as_secs_f64(),
        gpu_indices: Vec<u32> = run.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(),
        gpu_ids: Vec<String> = run.gpus.iter().map(|gpu| gpu.device.0.clone()).collect::<Vec<_>>(),
        uid: Option<u32> = run.uid,
        user: Option<String> = run.user.clone(),
        /// The person to ask.
        owner: Option<String> = run.owner.as_ref().map(|owner| owner.name.clone()),
        owner_uid: Option<u32> = run.owner.as_ref().and_then(|owner| owner.uid),
        owner_kind: Option<&'static str> as Option<OwnerKind> = run.owner.as_ref().map(|owner| owner.kind.name()),
        /// The program and script, as in the summary.
        label: String = run.label.clone(),
        process_name: Option<String> = run.name.clone(),
        command: Option<String> = run.command.clone(),
        /// The lowest pids.
        pids: Vec<u32> = run.pids.clone(),
        /// The number of processes.
        processes: u32 = run.processes,
        container: Option<String> = run.container.clone(),
        job: Option<String> = run.job.clone(),
        /// The sum of the following three.
        gpu_hours: f64 = hours(run.used.total_ms()),
        busy_hours: f64 = hours(run.used.busy_ms),
        idle_hours: f64 = hours(run.used.idle_ms),
        unknown_hours: f64 = hours(run.used.unknown_ms),
        /// The mean of its processes while they held a GPU.
        utilization_pct: Option<u32> = run.utilization.map(|it| it.0),
        memory_gib_hours: f64 = run.used.memory_gib_hours(),
        /// The largest amount that one process held on one GPU.
        memory_max_mb: Option<u64> = run.used.memory_max.map(Bytes::as_mib),
        memory_max_bytes: Option<u64> = run.used.memory_max.map(|bytes| bytes.0),
        end: &'static str as RunEnd = run.end.name(),
        /// The action that ended it: its id in `audit actions`.
        action_id: Option<u64> = run.end.action(),
        /// The user who ended it.
        ended_by_uid: Option<u32> = run.end.ended_by().0,
        ended_by: Option<String> = run.end.ended_by().1.map(ToOwned::to_owned),
        /// The rule for which the guard ended it, if the caller may see it.
        rule: Option<String> = run.end.rule().map(ToOwned::to_owned),
    }
}
