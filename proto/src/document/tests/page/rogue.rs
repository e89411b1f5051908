//! A scan, and what is said of one process, as documents.

use crate::document::{RecommendationDocument, ScanDocument};
use crate::guard::Person;
use crate::rogue::{
    Family, Finding, Looked, Risk, ScanReport, Share, Sign, Suspected, Threat, Verdict,
};
use crate::snapshot::ProcessKey;
use crate::units::Timestamp;
use serde_json::{Value as Json, json};

/// What would steer a terminal, of a daemon that forgot to make it visible.
const STEERING: &str = "x\x1b[2J";

fn sign() -> Sign {
    Sign {
        kind: "pool_on_command_line".into(),
        family: Family::A,
        weight: Share::thousandths(650),
        read: STEERING.into(),
    }
}

fn verdict() -> Verdict {
    Verdict {
        threat: Threat::CryptoMiner,
        confidence: Share::thousandths(973),
        score: Share::thousandths(970),
        risk: Risk::Critical,
        signs: vec![sign()],
    }
}

/// Of the process of the tests.
pub(in crate::document::tests) fn suspected() -> Vec<(ProcessKey, Suspected)> {
    let process = super::process();
    let key = ProcessKey {
        pid: process.pid,
        start_ticks: *process.start_ticks.known().unwrap(),
    };
    vec![(key, Suspected::worst(&[verdict()]).unwrap())]
}

pub(in crate::document::tests) fn looked() -> Looked {
    Looked {
        at: Timestamp(0),
        verdicts: vec![verdict()],
        score: Share::thousandths(970),
        signs: vec![sign()],
        allowed: vec![STEERING.into()],
        unseen: vec![STEERING.into()],
    }
}

fn finding() -> Finding {
    Finding {
        process: ProcessKey {
            pid: 60_990,
            start_ticks: 300,
        },
        owner: Some(Person {
            name: STEERING.into(),
            uid: Some(1004),
        }),
        uid: Some(1005),
        name: Some(STEERING.into()),
        executable: Some(STEERING.into()),
        gpus: vec![2, 3],
        since: Timestamp(0),
        last_seen: Timestamp(60_000),
        is_present: true,
        verdicts: vec![verdict()],
    }
}

pub(super) fn scan() -> Json {
    let report = ScanReport {
        since: Timestamp(0),
        until: Timestamp(86_400_000),
        judged: 300,
        findings: vec![finding()],
        more: 1,
    };
    let recommended = |finding: &Finding| {
        let command = format!("gpukillctl kill {}", finding.process.pid);
        vec![RecommendationDocument::new("end", STEERING, Some(&command))]
    };
    serde_json::to_value(ScanDocument::new(&report, recommended)).unwrap()
}

#[test]
fn every_value_of_a_scan_has_its_field_and_steers_nothing() {
    let verdicts = json!([{
        "threat": "crypto_miner", "confidence": 0.973, "score": 0.97, "risk": "critical",
        "signs": [{
            "kind": "pool_on_command_line", "family": "A", "weight": 0.65,
            "read": "x\\x1b[2J"
        }]
    }]);
    let expected = json!({
        "schema": 1, "since": "1970-01-01T00:00:00.000Z", "until": "1970-01-02T00:00:00.000Z",
        "judged": 300, "more": 1,
        "findings": [{
            "pid": 60990, "start_ticks": 300, "owner": "x\\x1b[2J", "owner_uid": 1004,
            "uid": 1005, "proc_name": "x\\x1b[2J", "executable": "x\\x1b[2J", "gpu_indices": [2, 3],
            "since": "1970-01-01T00:00:00.000Z", "last_seen": "1970-01-01T00:01:00.000Z",
            "present": true, "verdicts": verdicts,
            "recommendations": [{
                "what": "end", "text": "x\\x1b[2J", "command": "gpukillctl kill 60990"
            }]
        }]
    });
    assert_eq!(scan(), expected);
    let explained = super::explained();
    let expected = json!({
        "at": "1970-01-01T00:00:00.000Z", "score": 0.97, "verdicts": verdicts,
        "signs": verdicts[0]["signs"], "allowed": ["x\\x1b[2J"], "unseen": ["x\\x1b[2J"]
    });
    assert_eq!(explained["rogue"], expected);
    let mark = json!({"risk": "critical", "threat": "crypto_miner"});
    assert_eq!(explained["procs"][0]["rogue"], mark);
}
