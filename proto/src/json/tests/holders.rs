//! The documents of holders and explanations, with values and without.

use super::{NOW, device, null_fields, parse_json, process};
use crate::holders::{
    Cause, DeviceHolders, EndPermission, EndedHolder, Explanation, Holder, HolderFinding,
    HoldersReport, ProcessState, Remedy, Role,
};
use crate::json::{ExplainDocument, HolderFindingDocument, HoldersDocument};
use crate::model::{Container, ContainerId, DeviceId, GpuUse, Owner, OwnerKind, ProcessKey};
use crate::reading::Reading::{Failed, Stale, Unsupported, Value};
use crate::units::{Bytes, Percent};
use serde_json::Value as Json;
use std::collections::BTreeMap;

pub(super) fn holder() -> Holder {
    Holder {
        pid: 60_211,
        start_ticks: Value(11),
        uid: Value(1003),
        user: Value("carol".into()),
        owner: Value(Owner {
            name: "frank".into(),
            uid: Some(1004),
            kind: OwnerKind::Namespace,
        }),
        namespace_owner: Value(Some(1005)),
        name: Value("python".into()),
        command: Value("python train.py".into()),
        state: Value(ProcessState::Uninterruptible(Some("nvidia_close".into()))),
        parent: Value(1),
        parent_name: Value("systemd".into()),
        group: Value(60_190),
        group_leader_is_here: Value(false),
        inner_pid: Value(Some(7)),
        container: Value(Some(Container {
            id: ContainerId {
                runtime: "docker".into(),
                id: "ab".into(),
            },
            manager: None,
            name: Value("train".into()),
            image: Unsupported,
            pod: None,
        })),
        holds: vec!["nvidia6".into(), "nvidia-uvm".into()],
        holds_this_device: true,
        listed: true,
        shares_with: Some(60_212),
        passed_from: None,
        used_for: GpuUse {
            compute: true,
            graphics: false,
            mps: true,
        },
        memory: Value(Bytes::mib(12)),
    }
}

fn device_holders() -> DeviceHolders {
    DeviceHolders {
        id: DeviceId("GPU-6".into()),
        index: 6,
        name: Value("H100".into()),
        memory_total: Value(Bytes::mib(80)),
        memory_used: Value(Bytes::mib(35)),
        memory_unattributed: Stale(Bytes::mib(34), 12),
        utilization: Value(Percent(98)),
        busy_without_holder_since: Some(NOW),
        holders: vec![holder()],
        ended: vec![EndedHolder {
            key: ProcessKey {
                pid: 60_190,
                start_ticks: 13,
            },
            name: Value("python".into()),
            user: Value("carol".into()),
            memory: Value(Bytes::mib(33)),
            unattributed_before: Value(Bytes(0)),
            at: NOW,
        }],
        incomplete_reason: Some("2 processes may not be looked at".into()),
    }
}

fn finding(remedy: Option<Remedy>) -> HolderFinding {
    HolderFinding {
        cause: Cause::Orphans,
        pids: vec![60_211],
        evidence: vec!["its leader is gone".into()],
        remedy,
    }
}

const ORPHAN: Role = Role::Orphan {
    parent: Some(60_190),
    ended: Some(NOW),
};

pub(super) fn holders_document() -> Json {
    let report = HoldersReport {
        device: device_holders(),
        roles: vec![ORPHAN],
        findings: vec![finding(Some(Remedy::End(vec![60_211])))],
        may_end: vec![],
    };
    serde_json::to_value(HoldersDocument::new(NOW, &[report])).unwrap()
}

pub(super) fn explain_document() -> Json {
    let label = device_holders().label();
    let explanation = Explanation {
        at: NOW,
        pid: 60_211,
        uses: vec![(label.clone(), process())],
        holds: vec![(label, holder(), ORPHAN)],
        files_read_at: Value(NOW),
        findings: vec![(6, finding(None))],
        frees: Value(Bytes(5)),
        shared_with: vec![60_212],
        may_end: EndPermission {
            people: vec!["carol".into(), "root".into()],
            includes_caller: true,
            never_reason: None,
        },
        guard: Value(super::page::process_guard_status()),
        rogue: Value(super::page::assessment()),
    };
    serde_json::to_value(ExplainDocument::from(&explanation)).unwrap()
}

#[test]
fn holder_has_all_fields() {
    assert_eq!(
        holders_document(),
        parse_json(
            r#"{
    "schema": 1, "ts": "2026-11-21T14:02:31.250Z",
    "held_gpus": [{
        "gpu_index": 6, "gpu_id": "GPU-6", "name": "H100",
        "mem_total_bytes": 83886080, "mem_used_mb": 35, "mem_used_bytes": 36700160,
        "mem_unattributed_bytes": null, "util_pct": 98,
        "busy_without_holder_since": "2026-11-21T14:02:31.250Z",
        "incomplete_reason": "2 processes may not be looked at",
        "holders": [{
            "pid": 60211, "start_ticks": 11, "uid": 1003, "user": "carol",
            "owner": "frank", "owner_uid": 1004, "owner_kind": "namespace",
            "namespace_owner_uid": 1005,
            "proc_name": "python", "command": "python train.py",
            "state": "uninterruptible", "waits_on": "nvidia_close",
            "parent_pid": 1, "parent_name": "systemd",
            "process_group": 60190, "group_leader_is_here": false,
            "inner_pid": 7, "container": "docker/ab", "container_name": "train",
            "holds": ["nvidia6", "nvidia-uvm"], "holds_this_gpu": true, "listed": true,
            "shares_with": 60212,
            "passed_from_pid": null,
            "passed_from_uid": null,
            "used_for": ["compute", "mps"], "used_mem_mb": 12, "used_mem_bytes": 12582912,
            "role": "orphan", "orphan_of": 60190, "orphaned_at": "2026-11-21T14:02:31.250Z",
            "reasons": {}
        }],
        "ended": [{
            "pid": 60190, "start_ticks": 13, "proc_name": "python", "user": "carol",
            "used_mem_mb": 33, "used_mem_bytes": 34603008,
            "ended_at": "2026-11-21T14:02:31.250Z", "reasons": {}
        }],
        "findings": [{
            "cause": "orphans", "pids": [60211], "evidence": ["its leader is gone"],
            "remedy": "end", "remedy_pids": [60211]
        }],
        "reasons": { "mem_unattributed_bytes": "stale: 12 s" }
    }]
}"#
        )
    );
}

#[test]
fn unknown_holder_facts_are_null() {
    let unknown = Holder {
        start_ticks: Failed("x".into()),
        uid: Failed("x".into()),
        user: Failed("x".into()),
        owner: Failed("x".into()),
        namespace_owner: Failed("x".into()),
        name: Failed("x".into()),
        command: Failed("x".into()),
        state: Failed("x".into()),
        parent: Failed("x".into()),
        parent_name: Failed("x".into()),
        group: Failed("x".into()),
        group_leader_is_here: Failed("x".into()),
        inner_pid: Failed("x".into()),
        container: Failed("x".into()),
        memory: Failed("x".into()),
        ..holder()
    };
    let report = HoldersReport {
        device: DeviceHolders {
            holders: vec![unknown],
            ..device_holders()
        },
        roles: vec![Role::Unlisted],
        findings: vec![],
        may_end: vec![],
    };
    let document = serde_json::to_value(HoldersDocument::new(NOW, &[report])).unwrap();
    let (mut nulls, reasons) = null_fields(&document["held_gpus"][0]["holders"][0]);
    // A missing orphan origin or first holder is a known "none".
    let known = [
        "orphan_of",
        "orphaned_at",
        "passed_from_pid",
        "passed_from_uid",
    ];
    nulls.retain(|field| !known.contains(&field.as_str()));
    assert_eq!(nulls, reasons.keys().copied().collect());
    assert_eq!(nulls.len(), 20);
    assert!(reasons.values().all(|why| *why == "failed: x"));
}

#[test]
fn remedy_has_a_name_and_pids() {
    let remedy = |remedy| {
        let document = HolderFindingDocument::from(&finding(remedy));
        (document.remedy, document.remedy_pids)
    };
    let cases = [
        (Some(Remedy::End(vec![7, 9])), Some("end"), vec![7, 9]),
        (Some(Remedy::Reap(60)), Some("reap"), vec![60]),
        (Some(Remedy::Reset), Some("reset"), vec![]),
        (Some(Remedy::Wait), Some("wait"), vec![]),
        (None, None, vec![]),
    ];
    for (found, name, pids) in cases {
        assert_eq!(remedy(found), (name, pids));
    }
}

#[test]
fn explanation_repeats_list_and_holders() {
    let document = explain_document();
    let rest: BTreeMap<&str, &Json> = document
        .as_object()
        .unwrap()
        .iter()
        .filter(|(field, _)| !["procs", "holds", "guard", "rogue"].contains(&field.as_str()))
        .map(|(field, value)| (field.as_str(), value))
        .collect();
    let expected = parse_json(
        r#"{
    "schema": 1, "ts": "2026-11-21T14:02:31.250Z", "pid": 60211,
    "files_read_at": "2026-11-21T14:02:31.250Z",
    "findings": [{
        "gpu_index": 6, "cause": "orphans", "pids": [60211],
        "evidence": ["its leader is gone"], "remedy": null, "remedy_pids": []
    }],
    "frees_bytes": 5, "shared_with": [60212], "may_end": ["carol", "root"], "you_may_end": true, "never_ended": null,
    "reasons": {}
}"#,
    );
    let guard = &document["guard"];
    let violations = super::page::violations();
    assert_eq!(guard["open"], violations["open"]);
    assert_eq!(
        (&guard["mode"], &guard["limits"]),
        (
            &"dry-run".into(),
            &parse_json(
                r#"[{
        "rule": "user alice: memory", "source": "user alice", "kind": "memory",
        "limit": 42949672960,
        "replaces": [{"rule": "default: memory", "source": "default", "limit": 8589934592}]
    }]"#
            )
        )
    );
    let expected = expected.as_object().unwrap().iter();
    assert_eq!(
        rest,
        expected
            .map(|(field, value)| (field.as_str(), value))
            .collect()
    );
    let listed = super::list_document(device(), process());
    let mut as_listed = listed["procs"][0].clone();
    as_listed["gpu_index"] = 6.into();
    // The sample also has a simulated end.
    let mut simulated = as_listed["rules"][0].clone();
    simulated["deadline"] = Json::Null;
    as_listed["rules"].as_array_mut().unwrap().push(simulated);
    assert_eq!(document["procs"][0], as_listed);
    let holds = &document["holds"][0];
    assert_eq!(
        holds["holder"],
        holders_document()["held_gpus"][0]["holders"][0]
    );
    assert_eq!(
        (&holds["gpu_index"], &holds["gpu_id"]),
        (&6.into(), &"GPU-6".into())
    );
}
