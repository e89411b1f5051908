//! Samples of rogue detection.

use gpukill_proto::guard::{Person, RulesRevision};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::rogue::{
    AllowKind, Family, Indicator, Risk, RogueAssessment, RogueEdit, RogueFinding, RogueReport,
    ScanReport, Share, Threat, Verdict, VerdictSummary,
};
use gpukill_proto::units::Timestamp;

const AT: Timestamp = Timestamp(1_763_700_000_000);

pub(super) const THREATS: [(Threat, Risk, Family); 4] = [
    (Threat::CryptoMiner, Risk::Low, Family::A),
    (Threat::SuspiciousProcess, Risk::Medium, Family::B),
    (Threat::ResourceAbuser, Risk::High, Family::C),
    (Threat::DataExfiltrator, Risk::Critical, Family::C),
];

const PROCESS: ProcessKey = ProcessKey {
    pid: 60_990,
    start_ticks: 300,
};

fn indicator() -> Indicator {
    Indicator {
        kind: "pool_on_command_line".into(),
        family: Family::A,
        weight: Share::from_thousandths(800),
        evidence: "stratum+tcp://x:4444".into(),
    }
}

fn verdict() -> Verdict {
    Verdict {
        threat: Threat::CryptoMiner,
        confidence: Share::from_thousandths(970),
        score: Share::from_thousandths(970),
        risk: Risk::Critical,
        indicators: vec![indicator()],
    }
}

pub(super) fn verdict_summaries() -> Vec<(ProcessKey, VerdictSummary)> {
    VerdictSummary::worst(&[verdict()])
        .into_iter()
        .map(|it| (PROCESS, it))
        .collect()
}

pub(super) fn assessment() -> RogueAssessment {
    RogueAssessment {
        at: AT,
        verdicts: vec![verdict()],
        score: Share::from_thousandths(970),
        indicators: vec![indicator()],
        allowed: vec!["user eve".into()],
        unread: vec!["x".into()],
    }
}

pub(super) fn scan_report() -> ScanReport {
    ScanReport {
        since: Timestamp(AT.0 - 1),
        until: AT,
        evaluated: 300,
        findings: vec![RogueFinding {
            process: PROCESS,
            owner: Some(Person {
                name: "eve".into(),
                uid: Some(1004),
            }),
            uid: Some(1004),
            name: Some("x".into()),
            executable: Some("/x".into()),
            gpus: vec![2],
            since: AT,
            last_seen: AT,
            is_present: true,
            verdicts: vec![verdict()],
        }],
        more: 1,
    }
}

pub(super) fn report() -> RogueReport {
    RogueReport {
        file: "/etc/gpukill/rogue.toml".into(),
        revision: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
        mistakes: vec!["x".into()],
        watched: 300,
        unwatched: 1,
        findings: 2,
        worst: Some(Risk::High),
    }
}

pub(super) fn edits() -> Vec<RogueEdit> {
    let mut all = vec![
        RogueEdit::SetKey {
            path: "detection.max_memory_usage_gb".into(),
            value: "8".into(),
        },
        RogueEdit::Replace("x".into()),
    ];
    for by in AllowKind::ALL {
        all.push(RogueEdit::Allow(by, "a".into()));
        all.push(RogueEdit::Disallow(by, "a".into()));
    }
    // No wildcard: a new variant does not compile until it has a sample here.
    for edit in &all {
        match edit {
            RogueEdit::SetKey { .. }
            | RogueEdit::Replace(_)
            | RogueEdit::Allow(..)
            | RogueEdit::Disallow(..) => {}
        }
    }
    all
}
