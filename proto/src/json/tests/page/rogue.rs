//! The documents of a scan and of an assessment.

use crate::guard::Person;
use crate::json::{RecommendationDocument, ScanDocument};
use crate::model::ProcessKey;
use crate::rogue::{
    Family, Indicator, Risk, RogueAssessment, RogueFinding, ScanReport, Share, Threat, Verdict,
    VerdictSummary,
};
use crate::units::Timestamp;
use serde_json::{Value as Json, json};

/// An escape sequence that a faulty daemon might send unescaped.
const ESCAPE_SEQUENCE: &str = "x\x1b[2J";

fn indicator() -> Indicator {
    Indicator {
        kind: "pool_on_command_line".into(),
        family: Family::A,
        weight: Share::from_thousandths(650),
        evidence: ESCAPE_SEQUENCE.into(),
    }
}

fn verdict() -> Verdict {
    Verdict {
        threat: Threat::CryptoMiner,
        confidence: Share::from_thousandths(973),
        score: Share::from_thousandths(970),
        risk: Risk::Critical,
        indicators: vec![indicator()],
    }
}

/// The verdict for the sample process.
pub(in crate::json::tests) fn verdict_summaries() -> Vec<(ProcessKey, VerdictSummary)> {
    let process = super::process();
    let key = ProcessKey {
        pid: process.pid,
        start_ticks: *process.start_ticks.known().unwrap(),
    };
    vec![(key, VerdictSummary::worst(&[verdict()]).unwrap())]
}

pub(in crate::json::tests) fn assessment() -> RogueAssessment {
    RogueAssessment {
        at: Timestamp(0),
        verdicts: vec![verdict()],
        score: Share::from_thousandths(970),
        indicators: vec![indicator()],
        allowed: vec![ESCAPE_SEQUENCE.into()],
        unread: vec![ESCAPE_SEQUENCE.into()],
    }
}

fn finding() -> RogueFinding {
    RogueFinding {
        process: ProcessKey {
            pid: 60_990,
            start_ticks: 300,
        },
        owner: Some(Person {
            name: ESCAPE_SEQUENCE.into(),
            uid: Some(1004),
        }),
        uid: Some(1005),
        name: Some(ESCAPE_SEQUENCE.into()),
        executable: Some(ESCAPE_SEQUENCE.into()),
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
        evaluated: 300,
        findings: vec![finding()],
        more: 1,
    };
    let recommended = |finding: &RogueFinding| {
        let command = format!("gpukillctl kill {}", finding.process.pid);
        vec![RecommendationDocument::new(
            "end",
            ESCAPE_SEQUENCE,
            Some(&command),
        )]
    };
    serde_json::to_value(ScanDocument::new(&report, recommended)).unwrap()
}

#[test]
fn scan_has_all_fields_and_is_sanitized() {
    let verdicts = json!([{
        "threat": "crypto_miner", "confidence": 0.973, "score": 0.97, "risk": "critical",
        "indicators": [{
            "kind": "pool_on_command_line", "family": "A", "weight": 0.65,
            "read": "x\\x1b[2J"
        }]
    }]);
    let expected = json!({
        "schema": 1, "since": "1970-01-01T00:00:00.000Z", "until": "1970-01-02T00:00:00.000Z",
        "evaluated": 300, "more": 1,
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
    let explained = super::explain_document();
    let expected = json!({
        "at": "1970-01-01T00:00:00.000Z", "score": 0.97, "verdicts": verdicts,
        "indicators": verdicts[0]["indicators"], "allowed": ["x\\x1b[2J"], "unread": ["x\\x1b[2J"]
    });
    assert_eq!(explained["rogue"], expected);
    let mark = json!({"risk": "critical", "threat": "crypto_miner"});
    assert_eq!(explained["procs"][0]["rogue"], mark);
}
