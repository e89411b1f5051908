//! The JSON of `gpukillctl kill`, which recorded actions contain too.

use super::SCHEMA;
use super::fields::{bytes, document, documents, map_ref};
use crate::kill::{
    FuseMount, FuseServer, KillPlan, KillReport, KillScope, KillSignal, KillTarget, MemoryReclaim,
    Outcome, PlannedAction, ProcessOutcome, Reaper, RemainingJob, Respawn, Stage, TargetMemory,
};
use crate::model::Job;
use crate::reading::Reading;
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl kill --dry-run -o json` prints.
    KillPlanDocument(plan: &KillPlan) {
        schema: u32 = SCHEMA,
        ts: String as Timestamp = plan.at.to_rfc3339(),
        /// The options of the command.
        selector: String = plan.request.selector.to_string(),
        scope: String as KillScope = plan.request.scope.name().to_owned(),
        /// `SIGINT`, `SIGTERM`, `SIGKILL`; `null` for the sequence that suits the device.
        signal: Option<String> = plan.request.signal.map(|signal| signal.to_string()),
        force: bool = plan.request.force,
        any_process: bool = plan.request.any_process,
        override_protected: bool = plan.request.override_protected,
        signal_timeout_ms: u64 = plan.request.signal_timeout_ms,
        targets: Vec<KillTargetDocument> = documents(&plan.targets),
        /// Processes that may be selected too: too little is known of them.
        undetermined: u32 = plan.undetermined,
        /// Jobs that the plan ends only in part.
        remaining_jobs: Vec<RemainingJobDocument> = documents(&plan.remaining_jobs),
    }
}

document! {
    /// One process of a plan.
    KillTargetDocument(target: &KillTarget) {
        pid: u32 = target.key.pid,
        start_ticks: u64 = target.key.start_ticks,
        name: String = target.name.clone(),
        command: Option<String> = target.command.clone(),
        uid: Option<u32> = target.uid.clone(),
        owner: Option<String> = target.owner.clone(),
        holds: Vec<TargetMemoryDocument> = documents(&target.holds),
        /// False for a process that only the scope reaches.
        named: bool = target.named,
        job: Option<String> = map_ref(&target.job, ToString::to_string),
        job_id: Option<String> = map_ref(&target.job, Job::id),
        /// `end`, `protected`, `denied`, `unclear` or `zombie`.
        planned_action: &'static str as PlannedAction = target.action.name(),
        signals: Vec<String> = match &target.action {
            PlannedAction::End(signals) => signals.iter().map(ToString::to_string).collect::<Vec<_>>(),
            PlannedAction::Protected(_) | PlannedAction::Denied(_) | PlannedAction::Unclear(_) | PlannedAction::Zombie(_) => Vec::new(),
        },
        why: Option<String> = match &target.action {
            PlannedAction::End(_) => None,
            PlannedAction::Protected(protected) => Some(protected.why.clone()),
            PlannedAction::Denied(why) | PlannedAction::Unclear(why) => Some(why.clone()),
            PlannedAction::Zombie(parent) => Some(zombie_reason(parent)),
        },
        /// Whether root may end a protected process with `--override-protected`.
        root_may_override: bool = matches!(
            &target.action,
            PlannedAction::Protected(protected) if protected.root_may_override
        ),
        /// Why it is protected, if root overrides the protection.
        overridden: Option<String> = target.overridden.clone(),
        /// The parent that has to reap a zombie.
        parent_pid: Option<u32> = match &target.action {
            PlannedAction::Zombie(parent) => Some(parent.pid),
            PlannedAction::End(_) | PlannedAction::Protected(_) | PlannedAction::Denied(_) | PlannedAction::Unclear(_) => None,
        },
    }
}

document! {
    /// The memory that a process holds on one GPU.
    TargetMemoryDocument(hold: &TargetMemory) {
        gpu_index: u32 = hold.index,
        gpu_id: String = hold.device.0.clone(),
        memory_bytes: Option<u64> = bytes(&hold.memory),
    }
}

document! {
    /// A job that a plan ends only in part.
    plain RemainingJobDocument(rest: &RemainingJob) {
        pid: u32 = rest.pid,
        job: String = rest.job.to_string(),
        job_id: String = rest.job.id(),
        remaining_processes: u32 = rest.remaining_processes,
    }
}

document! {
    /// The document that `gpukillctl kill -o json` prints at its end.
    KillReportDocument(report: &KillReport) {
        schema: u32 = SCHEMA,
        /// `ending`, `reclaiming`, `done` or `interrupted`.
        stage: &'static str as Stage = report.stage.name(),
        outcomes: Vec<ProcessOutcomeDocument> = documents(&report.outcomes),
        memory: Vec<MemoryReclaimDocument> = documents(&report.memory),
        respawned: Vec<RespawnDocument> = documents(&report.respawned),
        /// Why processes of the job may be left that `outcomes` does not name.
        unchecked: Option<String> = report.unchecked.clone(),
        recorded: bool = report.unrecorded.is_none(),
        /// Why the action is not in the store.
        unrecorded: Option<String> = report.unrecorded.clone(),
    }
}

document! {
    /// The outcome of one process.
    ProcessOutcomeDocument(outcome: &ProcessOutcome, details: OutcomeDetails<'_>) {
        pid: u32 = outcome.key.pid,
        start_ticks: u64 = outcome.key.start_ticks,
        name: String = outcome.name.clone(),
        command: Option<String> = outcome.command.clone(),
        /// `ended`, `survived`, `gone`, `changed`, `protected`, `denied`, `unclear`,
        /// `uninterruptible`, `zombie` or `failed`.
        outcome: &'static str as Outcome = outcome.outcome.name(),
        /// The last signal sent.
        signal: Option<String> = details.signal.map(|(signal, _)| signal.to_string()),
        after_ms: Option<u64> = details.signal.map(|(_, after)| after),
        why: Option<String> = details.why,
        /// The parent that has to reap a zombie.
        parent_pid: Option<u32> = details.parent_pid,
        /// The mount point of the FUSE filesystem that an uninterruptible process waits on.
        fuse_mount: Option<String> = details.fuse.map(|mount| mount.path.clone()),
        /// The processes that serve that filesystem.
        fuse_servers: Vec<FuseServerDocument> =
            details.fuse.map_or_else(Vec::new, |mount| documents(&mount.servers)),
    }
}

impl From<&ProcessOutcome> for ProcessOutcomeDocument {
    fn from(outcome: &ProcessOutcome) -> Self {
        Self::new(outcome, OutcomeDetails::from(&outcome.outcome))
    }
}

/// The fields that only some outcomes have.
#[derive(Default)]
pub(super) struct OutcomeDetails<'a> {
    /// The last signal, and the milliseconds from the first signal until the process ended or
    /// the kill gave up.
    signal: Option<(KillSignal, u64)>,
    why: Option<String>,
    parent_pid: Option<u32>,
    fuse: Option<&'a FuseMount>,
}

impl<'a> From<&'a Outcome> for OutcomeDetails<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        let mut details = Self::default();
        match outcome {
            Outcome::Ended(signal, after) | Outcome::Survived(signal, after) => {
                details.signal = Some((*signal, *after));
            }
            Outcome::Gone => {}
            Outcome::Changed(why)
            | Outcome::Protected(why)
            | Outcome::Denied(why)
            | Outcome::Unclear(why)
            | Outcome::Failed(why) => details.why = Some(why.clone()),
            Outcome::Uninterruptible(wait) => {
                details.why.clone_from(&wait.waits_on);
                details.fuse = wait.fuse.as_ref();
            }
            Outcome::Zombie(parent) => {
                details.why = Some(zombie_reason(parent));
                details.parent_pid = Some(parent.pid);
            }
        }
        details
    }
}

document! {
    /// A process that serves a FUSE filesystem.
    FuseServerDocument(server: &FuseServer) {
        pid: u32 = server.pid,
        owner: Option<String> = server.owner.clone(),
    }
}

fn zombie_reason(parent: &Reaper) -> String {
    match parent.name.last_known() {
        Some(name) => format!("waits for its parent {} ({name})", parent.pid),
        None => format!("waits for its parent {}", parent.pid),
    }
}

document! {
    /// The reclaimed memory of one GPU.
    MemoryReclaimDocument(memory: &MemoryReclaim) {
        gpu_index: u32 = memory.index,
        gpu_id: String = memory.device.0.clone(),
        held_bytes: Option<u64> = bytes(&memory.held),
        returned_bytes: Option<u64> = bytes(&memory.returned),
        after_ms: Option<u64> = memory.after_ms,
        still_held_by: Vec<u32> = memory.still_held_by.clone(),
    }
}

document! {
    /// A process that replaces an ended one.
    RespawnDocument(respawn: &Respawn) {
        pid: u32 = respawn.key.pid,
        start_ticks: u64 = respawn.key.start_ticks,
        name: String = respawn.name.clone(),
        unit: Option<String> = respawn.unit.as_ref().map(|unit| unit.name.clone()),
        /// The user that runs the unit by a systemd of their own.
        unit_manager_uid: Option<u32> = respawn.unit.as_ref().and_then(|unit| unit.manager),
        parent_pid: Option<u32> = respawn.parent.as_ref().map(|parent| parent.pid),
        parent_name: Option<String> = match &respawn.parent {
            Some(parent) => map_ref(&parent.name, |name| Some(name.clone())),
            None => Reading::Value(None),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kill::{KillRequest, KillSelector, ProtectionReason, UninterruptibleWait};
    use crate::model::{DeviceId, ProcessKey, Unit, Vendor};
    use crate::units::Bytes;
    use serde_json::json;

    fn key() -> ProcessKey {
        ProcessKey {
            pid: 48_213,
            start_ticks: 42,
        }
    }

    fn target(action: PlannedAction) -> KillTarget {
        KillTarget {
            key: key(),
            name: "python".into(),
            command: Reading::Withheld,
            uid: Reading::Value(1000),
            owner: Reading::Value("alice".into()),
            holds: vec![TargetMemory {
                device: DeviceId("GPU-8f3c".into()),
                index: 0,
                memory: Reading::Value(Bytes::mib(1)),
            }],
            named: true,
            job: Reading::Value(Job::Tree(key())),
            action,
            overridden: None,
        }
    }

    fn reaper() -> Reaper {
        Reaper {
            pid: 4_711,
            name: Reading::Value("launcher".into()),
        }
    }

    pub(in crate::json) fn plan() -> KillPlan {
        KillPlan {
            request: KillRequest {
                selector: KillSelector {
                    pids: vec![48_213],
                    min_memory: Some(Bytes::mib(1)),
                    vendors: [Vendor::Intel, Vendor::Amd].into(),
                    ..KillSelector::default()
                },
                signal: Some(KillSignal::Interrupt),
                signal_timeout_ms: 5_000,
                ..KillRequest::default()
            },
            targets: vec![target(PlannedAction::End(vec![
                KillSignal::Interrupt,
                KillSignal::Kill,
            ]))],
            undetermined: 2,
            remaining_jobs: vec![RemainingJob {
                pid: 48_213,
                job: Job::Tree(key()),
                remaining_processes: 7,
            }],
            ..KillPlan::default()
        }
    }

    pub(in crate::json) fn report() -> KillReport {
        KillReport {
            version: 3,
            stage: Stage::Done,
            outcomes: vec![ProcessOutcome {
                key: key(),
                name: "python".into(),
                command: Reading::Withheld,
                outcome: Outcome::Gone,
            }],
            memory: vec![MemoryReclaim {
                device: DeviceId("GPU-8f3c".into()),
                index: 0,
                held: Reading::Value(Bytes(7)),
                returned: Reading::Failed("timeout".into()),
                after_ms: None,
                still_held_by: vec![9],
            }],
            respawned: vec![Respawn {
                key: key(),
                name: "python".into(),
                unit: Some(Unit {
                    name: "vllm.service".into(),
                    manager: Some(1000),
                }),
                parent: Some(Reaper {
                    pid: 4_711,
                    name: Reading::Unsupported,
                }),
            }],
            unchecked: Some("the process table cannot be read".into()),
            unrecorded: Some("the disk is full".into()),
        }
    }

    #[test]
    fn plan_has_every_target() {
        let expected = json!({
            "schema": 1,
            "ts": "1970-01-01T00:00:00.000Z",
            "selector": "48213 --min-memory 1048576B --vendor amd,intel",
            "scope": "process",
            "signal": "SIGINT",
            "force": false,
            "any_process": false,
            "override_protected": false,
            "signal_timeout_ms": 5000,
            "targets": [{
                "pid": 48_213,
                "start_ticks": 42,
                "name": "python",
                "command": null,
                "uid": 1000,
                "owner": "alice",
                "holds": [{
                    "gpu_index": 0,
                    "gpu_id": "GPU-8f3c",
                    "memory_bytes": 1_048_576,
                    "reasons": {},
                }],
                "named": true,
                "job": "tree 48213",
                "job_id": "tree 48213 42",
                "planned_action": "end",
                "signals": ["SIGINT", "SIGKILL"],
                "why": null,
                "root_may_override": false,
                "overridden": null,
                "parent_pid": null,
                "reasons": {"command": "withheld: it belongs to another user"},
            }],
            "undetermined": 2,
            "remaining_jobs": [{
                "pid": 48_213,
                "job": "tree 48213",
                "job_id": "tree 48213 42",
                "remaining_processes": 7,
            }],
            "reasons": {},
        });
        let document = serde_json::to_value(KillPlanDocument::from(&plan()));
        assert_eq!(document.expect("it is JSON"), expected);
    }

    #[test]
    fn targets_without_end_have_a_reason() {
        let waits = "waits for its parent 4711 (launcher)";
        for (action, expected) in [
            (
                PlannedAction::Protected(ProtectionReason::always("x")),
                json!(["protected", "x", null]),
            ),
            (
                PlannedAction::Denied("bob".into()),
                json!(["denied", "bob", null]),
            ),
            (
                PlannedAction::Unclear("x".into()),
                json!(["unclear", "x", null]),
            ),
            (
                PlannedAction::Zombie(reaper()),
                json!(["zombie", waits, 4711]),
            ),
        ] {
            let document = KillTargetDocument::new(&target(action));
            let actual = json!([document.planned_action, document.why, document.parent_pid]);
            assert_eq!(actual, expected);
            assert_eq!(document.signals, Vec::<String>::new());
        }
    }

    #[test]
    fn report_has_every_outcome() {
        let endings = [
            (
                Outcome::Ended(KillSignal::Terminate, 800),
                json!(["ended", "SIGTERM", 800, null, null]),
            ),
            (
                Outcome::Survived(KillSignal::Kill, 9),
                json!(["survived", "SIGKILL", 9, null, null]),
            ),
            (Outcome::Gone, json!(["gone", null, null, null, null])),
            (
                Outcome::Changed("x".into()),
                json!(["changed", null, null, "x", null]),
            ),
            (
                Outcome::Protected("x".into()),
                json!(["protected", null, null, "x", null]),
            ),
            (
                Outcome::Denied("bob".into()),
                json!(["denied", null, null, "bob", null]),
            ),
            (
                Outcome::Unclear("x".into()),
                json!(["unclear", null, null, "x", null]),
            ),
            (
                Outcome::Uninterruptible(UninterruptibleWait {
                    waits_on: Some("nv_wait".into()),
                    fuse: None,
                }),
                json!(["uninterruptible", null, null, "nv_wait", null]),
            ),
            (
                Outcome::Zombie(reaper()),
                json!([
                    "zombie",
                    null,
                    null,
                    "waits for its parent 4711 (launcher)",
                    4711
                ]),
            ),
            (
                Outcome::Failed("EPERM".into()),
                json!(["failed", null, null, "EPERM", null]),
            ),
        ];
        for (ending, expected) in endings {
            let it = ProcessOutcomeDocument::from(&ProcessOutcome {
                key: key(),
                name: "python".into(),
                command: Reading::Value("python train.py".into()),
                outcome: ending,
            });
            let actual = json!([it.outcome, it.signal, it.after_ms, it.why, it.parent_pid]);
            assert_eq!(actual, expected);
        }
        let expected = json!({
            "schema": 1,
            "stage": "done",
            "outcomes": [{
                "pid": 48_213,
                "start_ticks": 42,
                "name": "python",
                "command": null,
                "outcome": "gone",
                "signal": null,
                "after_ms": null,
                "why": null,
                "parent_pid": null,
                "fuse_mount": null,
                "fuse_servers": [],
                "reasons": {"command": "withheld: it belongs to another user"},
            }],
            "memory": [{
                "gpu_index": 0,
                "gpu_id": "GPU-8f3c",
                "held_bytes": 7,
                "returned_bytes": null,
                "after_ms": null,
                "still_held_by": [9],
                "reasons": {"returned_bytes": "failed: timeout"},
            }],
            "respawned": [{
                "pid": 48_213,
                "start_ticks": 42,
                "name": "python",
                "unit": "vllm.service",
                "unit_manager_uid": 1000,
                "parent_pid": 4_711,
                "parent_name": null,
                "reasons": {"parent_name": "unsupported"},
            }],
            "recorded": false,
            "unchecked": "the process table cannot be read",
            "unrecorded": "the disk is full",
            "reasons": {},
        });
        let document = serde_json::to_value(KillReportDocument::from(&report()));
        assert_eq!(document.expect("it is JSON"), expected);
    }
}
