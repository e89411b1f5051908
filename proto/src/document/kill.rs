//! The JSON of `gpukillctl kill`, which the record of acts has too.

use super::SCHEMA;
use super::fields::{bytes, document, part};
use crate::kill::{
    Ending, Fate, FuseMount, FuseServer, KillHold, KillOutcome, KillPlan, KillReport, KillRest,
    KillSignal, KillTarget, MemoryReturn, Reaper, Respawn, Stage,
};
use crate::reading::Reading;
use crate::snapshot::Job;
use serde::Serialize;

document! {
    /// What `gpukillctl kill --dry-run -o json` prints.
    KillPlanDocument(plan: &KillPlan) {
        schema: u32 = SCHEMA,
        ts: String = plan.at.to_rfc3339(),
        /// As options of the command.
        selector: String = plan.request.selector.to_string(),
        scope: String = plan.request.scope.name().to_owned(),
        /// `SIGINT`, `SIGTERM`, `SIGKILL`; `null` for what suits the device.
        signal: Option<String> = plan.request.signal.map(|signal| signal.to_string()),
        force: bool = plan.request.force,
        any_process: bool = plan.request.any_process,
        override_protected: bool = plan.request.override_protected,
        patience_ms: u64 = plan.request.patience_ms,
        targets: Vec<KillTargetDocument> = plan
            .targets
            .iter()
            .map(KillTargetDocument::new)
            .collect::<Vec<_>>(),
        /// Others that may be meant too: too little is known of them.
        unjudged: u32 = plan.unjudged,
        /// Jobs of which more goes on.
        rest: Vec<KillRestDocument> = plan.rest.iter().map(KillRestDocument::from).collect::<Vec<_>>(),
    }
}

impl From<&KillPlan> for KillPlanDocument {
    fn from(plan: &KillPlan) -> Self {
        Self::new(plan)
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
        holds: Vec<KillHoldDocument> = target.holds.iter().map(KillHoldDocument::new).collect::<Vec<_>>(),
        /// False for one that only its scope reaches.
        named: bool = target.named,
        job: Option<String> = part(&target.job, ToString::to_string),
        job_id: Option<String> = part(&target.job, Job::id),
        /// `end`, `protected`, `denied`, `unclear` or `zombie`.
        fate: &'static str = fate(&target.fate),
        signals: Vec<String> = match &target.fate {
            Fate::End(signals) => signals.iter().map(ToString::to_string).collect::<Vec<_>>(),
            Fate::Protected(_) | Fate::Denied(_) | Fate::Unclear(_) | Fate::Zombie(_) => Vec::new(),
        },
        why: Option<String> = match &target.fate {
            Fate::End(_) => None,
            Fate::Protected(protected) => Some(protected.why.clone()),
            Fate::Denied(why) | Fate::Unclear(why) => Some(why.clone()),
            Fate::Zombie(parent) => Some(waits_for(parent)),
        },
        /// Whether root may end a protected process with `--override-protected`.
        root_may_override: bool = matches!(
            &target.fate,
            Fate::Protected(protected) if protected.root_may_override
        ),
        /// Why it is protected, where root overrides that.
        overridden: Option<String> = target.overridden.clone(),
        /// Who has to ask how a zombie ended.
        parent_pid: Option<u32> = match &target.fate {
            Fate::Zombie(parent) => Some(parent.pid),
            Fate::End(_) | Fate::Protected(_) | Fate::Denied(_) | Fate::Unclear(_) => None,
        },
    }
}

const fn fate(fate: &Fate) -> &'static str {
    match fate {
        Fate::End(_) => "end",
        Fate::Protected(_) => "protected",
        Fate::Denied(_) => "denied",
        Fate::Unclear(_) => "unclear",
        Fate::Zombie(_) => "zombie",
    }
}

document! {
    /// What a process holds of one GPU.
    KillHoldDocument(hold: &KillHold) {
        gpu_index: u32 = hold.index,
        gpu_id: String = hold.device.0.clone(),
        memory_bytes: Option<u64> = bytes(&hold.memory),
    }
}

/// A job of which a plan ends a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct KillRestDocument {
    pub pid: u32,
    pub job: String,
    pub job_id: String,
    pub others: u32,
}

impl From<&KillRest> for KillRestDocument {
    fn from(rest: &KillRest) -> Self {
        Self {
            pid: rest.pid,
            job: rest.job.to_string(),
            job_id: rest.job.id(),
            others: rest.others,
        }
    }
}

document! {
    /// What `gpukillctl kill -o json` prints at its end.
    KillReportDocument(report: &KillReport) {
        schema: u32 = SCHEMA,
        /// `ending`, `releasing`, `done` or `interrupted`.
        stage: &'static str = stage(report.stage),
        outcomes: Vec<KillOutcomeDocument> = report
            .outcomes
            .iter()
            .map(KillOutcomeDocument::new)
            .collect::<Vec<_>>(),
        memory: Vec<MemoryReturnDocument> = report
            .memory
            .iter()
            .map(MemoryReturnDocument::new)
            .collect::<Vec<_>>(),
        respawned: Vec<RespawnDocument> = report
            .respawned
            .iter()
            .map(RespawnDocument::new)
            .collect::<Vec<_>>(),
        recorded: bool = report.unrecorded.is_none(),
        /// Why it is not in the store.
        unrecorded: Option<String> = report.unrecorded.clone(),
    }
}

impl From<&KillReport> for KillReportDocument {
    fn from(report: &KillReport) -> Self {
        Self::new(report)
    }
}

/// As JSON has it.
#[must_use]
pub(super) const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Ending => "ending",
        Stage::Releasing => "releasing",
        Stage::Done => "done",
        Stage::Interrupted => "interrupted",
    }
}

document! {
    /// What became of one process.
    KillOutcomeDocument(outcome: &KillOutcome) {
        pid: u32 = outcome.key.pid,
        start_ticks: u64 = outcome.key.start_ticks,
        name: String = outcome.name.clone(),
        command: Option<String> = outcome.command.clone(),
        /// `ended`, `survived`, `gone`, `changed`, `protected`, `denied`, `unclear`,
        /// `uninterruptible`, `zombie` or `failed`.
        ending: &'static str = ending(&outcome.ending),
        /// The last one that it got.
        signal: Option<String> = last(&outcome.ending).map(|(signal, _)| signal.to_string()),
        after_ms: Option<u64> = last(&outcome.ending).map(|(_, after)| after),
        why: Option<String> = why(&outcome.ending),
        /// Who has to ask how a zombie ended.
        parent_pid: Option<u32> = parent(&outcome.ending),
        /// Where the FUSE filesystem is that an uninterruptible one waits on.
        fuse_mount: Option<String> = fuse(&outcome.ending).map(|mount| mount.path.clone()),
        /// Who serves that.
        fuse_servers: Vec<FuseServerDocument> = fuse(&outcome.ending)
            .iter()
            .flat_map(|mount| &mount.servers)
            .map(FuseServerDocument::new)
            .collect::<Vec<_>>(),
    }
}

document! {
    /// A process that serves a FUSE filesystem.
    FuseServerDocument(server: &FuseServer) {
        pid: u32 = server.pid,
        owner: Option<String> = server.owner.clone(),
    }
}

const fn fuse(ending: &Ending) -> Option<&FuseMount> {
    match ending {
        Ending::Uninterruptible(stuck) => stuck.fuse.as_ref(),
        Ending::Ended(..)
        | Ending::Survived(..)
        | Ending::Gone
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_)
        | Ending::Zombie(_)
        | Ending::Failed(_) => None,
    }
}

/// The last signal that was sent, and how long after the first it ended, or was
/// given up.
const fn last(ending: &Ending) -> Option<(KillSignal, u64)> {
    match ending {
        Ending::Ended(signal, after) | Ending::Survived(signal, after) => Some((*signal, *after)),
        Ending::Gone
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_)
        | Ending::Uninterruptible(_)
        | Ending::Zombie(_)
        | Ending::Failed(_) => None,
    }
}

const fn ending(ending: &Ending) -> &'static str {
    match ending {
        Ending::Ended(..) => "ended",
        Ending::Survived(..) => "survived",
        Ending::Gone => "gone",
        Ending::Changed(_) => "changed",
        Ending::Protected(_) => "protected",
        Ending::Denied(_) => "denied",
        Ending::Unclear(_) => "unclear",
        Ending::Uninterruptible(_) => "uninterruptible",
        Ending::Zombie(_) => "zombie",
        Ending::Failed(_) => "failed",
    }
}

fn why(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Ended(..) | Ending::Survived(..) | Ending::Gone => None,
        Ending::Changed(why)
        | Ending::Protected(why)
        | Ending::Denied(why)
        | Ending::Unclear(why)
        | Ending::Failed(why) => Some(why.clone()),
        Ending::Uninterruptible(stuck) => stuck.waits_on.clone(),
        Ending::Zombie(parent) => Some(waits_for(parent)),
    }
}

const fn parent(ending: &Ending) -> Option<u32> {
    match ending {
        Ending::Zombie(parent) => Some(parent.pid),
        Ending::Ended(..)
        | Ending::Survived(..)
        | Ending::Gone
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_)
        | Ending::Uninterruptible(_)
        | Ending::Failed(_) => None,
    }
}

fn waits_for(parent: &Reaper) -> String {
    match parent.name.last_known() {
        Some(name) => format!("waits for its parent {} ({name})", parent.pid),
        None => format!("waits for its parent {}", parent.pid),
    }
}

document! {
    /// What came back of one GPU's memory.
    MemoryReturnDocument(memory: &MemoryReturn) {
        gpu_index: u32 = memory.index,
        gpu_id: String = memory.device.0.clone(),
        held_bytes: Option<u64> = bytes(&memory.held),
        returned_bytes: Option<u64> = bytes(&memory.returned),
        after_ms: Option<u64> = memory.after_ms,
        still_held_by: Vec<u32> = memory.still_held_by.clone(),
    }
}

document! {
    /// Who came in the place of one that ended.
    RespawnDocument(respawn: &Respawn) {
        pid: u32 = respawn.key.pid,
        start_ticks: u64 = respawn.key.start_ticks,
        name: String = respawn.name.clone(),
        unit: Option<String> = respawn.unit.as_ref().map(|unit| unit.name.clone()),
        /// The user whose own systemd runs the unit.
        unit_manager_uid: Option<u32> = respawn.unit.as_ref().and_then(|unit| unit.manager),
        parent_pid: Option<u32> = respawn.parent.as_ref().map(|parent| parent.pid),
        parent_name: Option<String> = match &respawn.parent {
            Some(parent) => part(&parent.name, |name| Some(name.clone())),
            None => Reading::Value(None),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kill::{KillRequest, KillSelector, Protected, Stuck};
    use crate::snapshot::{DeviceId, ProcessKey, Unit, Vendor};
    use crate::units::Bytes;
    use serde_json::json;

    fn key() -> ProcessKey {
        ProcessKey {
            pid: 48_213,
            start_ticks: 42,
        }
    }

    fn target(fate: Fate) -> KillTarget {
        KillTarget {
            key: key(),
            name: "python".into(),
            command: Reading::Withheld,
            uid: Reading::Value(1000),
            owner: Reading::Value("alice".into()),
            holds: vec![KillHold {
                device: DeviceId("GPU-8f3c".into()),
                index: 0,
                memory: Reading::Value(Bytes::mib(1)),
            }],
            named: true,
            job: Reading::Value(Job::Tree(key())),
            fate,
            overridden: None,
        }
    }

    fn reaper() -> Reaper {
        Reaper {
            pid: 4_711,
            name: Reading::Value("launcher".into()),
        }
    }

    pub(in crate::document) fn plan() -> KillPlan {
        KillPlan {
            request: KillRequest {
                selector: KillSelector {
                    pids: vec![48_213],
                    min_memory: Some(Bytes::mib(1)),
                    vendors: [Vendor::Intel, Vendor::Amd].into(),
                    ..KillSelector::default()
                },
                signal: Some(KillSignal::Interrupt),
                patience_ms: 5_000,
                ..KillRequest::default()
            },
            targets: vec![target(Fate::End(vec![
                KillSignal::Interrupt,
                KillSignal::Kill,
            ]))],
            unjudged: 2,
            rest: vec![KillRest {
                pid: 48_213,
                job: Job::Tree(key()),
                others: 7,
            }],
            ..KillPlan::default()
        }
    }

    pub(in crate::document) fn report() -> KillReport {
        KillReport {
            version: 3,
            stage: Stage::Done,
            outcomes: vec![KillOutcome {
                key: key(),
                name: "python".into(),
                command: Reading::Withheld,
                ending: Ending::Gone,
            }],
            memory: vec![MemoryReturn {
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
            unrecorded: Some("the disk is full".into()),
        }
    }

    #[test]
    fn a_plan_names_each_target_with_its_fate() {
        let expected = json!({
            "schema": 1,
            "ts": "1970-01-01T00:00:00.000Z",
            "selector": "48213 --min-memory 1048576B --vendor amd,intel",
            "scope": "process",
            "signal": "SIGINT",
            "force": false,
            "any_process": false,
            "override_protected": false,
            "patience_ms": 5000,
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
                "fate": "end",
                "signals": ["SIGINT", "SIGKILL"],
                "why": null,
                "root_may_override": false,
                "overridden": null,
                "parent_pid": null,
                "reasons": {"command": "withheld: it belongs to another user"},
            }],
            "unjudged": 2,
            "rest": [{
                "pid": 48_213,
                "job": "tree 48213",
                "job_id": "tree 48213 42",
                "others": 7,
            }],
            "reasons": {},
        });
        let document = serde_json::to_value(KillPlanDocument::from(&plan()));
        assert_eq!(document.expect("it is JSON"), expected);
    }

    #[test]
    fn whoever_is_not_ended_has_a_why() {
        let waits = "waits for its parent 4711 (launcher)";
        for (fate, expected) in [
            (
                Fate::Protected(Protected::always("x")),
                json!(["protected", "x", null]),
            ),
            (Fate::Denied("bob".into()), json!(["denied", "bob", null])),
            (Fate::Unclear("x".into()), json!(["unclear", "x", null])),
            (Fate::Zombie(reaper()), json!(["zombie", waits, 4711])),
        ] {
            let document = KillTargetDocument::new(&target(fate));
            let said = json!([document.fate, document.why, document.parent_pid]);
            assert_eq!(said, expected);
            assert_eq!(document.signals, Vec::<String>::new());
        }
    }

    #[test]
    fn a_report_tells_what_became_of_each() {
        let endings = [
            (
                Ending::Ended(KillSignal::Terminate, 800),
                json!(["ended", "SIGTERM", 800, null, null]),
            ),
            (
                Ending::Survived(KillSignal::Kill, 9),
                json!(["survived", "SIGKILL", 9, null, null]),
            ),
            (Ending::Gone, json!(["gone", null, null, null, null])),
            (
                Ending::Changed("x".into()),
                json!(["changed", null, null, "x", null]),
            ),
            (
                Ending::Protected("x".into()),
                json!(["protected", null, null, "x", null]),
            ),
            (
                Ending::Denied("bob".into()),
                json!(["denied", null, null, "bob", null]),
            ),
            (
                Ending::Unclear("x".into()),
                json!(["unclear", null, null, "x", null]),
            ),
            (
                Ending::Uninterruptible(Stuck {
                    waits_on: Some("nv_wait".into()),
                    fuse: None,
                }),
                json!(["uninterruptible", null, null, "nv_wait", null]),
            ),
            (
                Ending::Zombie(reaper()),
                json!([
                    "zombie",
                    null,
                    null,
                    "waits for its parent 4711 (launcher)",
                    4711
                ]),
            ),
            (
                Ending::Failed("EPERM".into()),
                json!(["failed", null, null, "EPERM", null]),
            ),
        ];
        for (ending, expected) in endings {
            let it = KillOutcomeDocument::new(&KillOutcome {
                key: key(),
                name: "python".into(),
                command: Reading::Value("python train.py".into()),
                ending,
            });
            let said = json!([it.ending, it.signal, it.after_ms, it.why, it.parent_pid]);
            assert_eq!(said, expected);
        }
        let expected = json!({
            "schema": 1,
            "stage": "done",
            "outcomes": [{
                "pid": 48_213,
                "start_ticks": 42,
                "name": "python",
                "command": null,
                "ending": "gone",
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
            "unrecorded": "the disk is full",
            "reasons": {},
        });
        let document = serde_json::to_value(KillReportDocument::from(&report()));
        assert_eq!(document.expect("it is JSON"), expected);
    }
}
