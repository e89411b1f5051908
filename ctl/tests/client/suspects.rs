//! What the watch of the stand-in found: in a day one that calls itself what would steer a
//! terminal, and in an hour nobody.

use crate::daemon::NOW;
use crate::sample::process;
use gpukill_proto::guard::Person;
use gpukill_proto::rogue::{
    Family, Finding, Risk, ScanReport, Share, Sign, Suspected, Threat, Verdict,
};
use gpukill_proto::snapshot::ProcessKey;

fn key(number: u32) -> ProcessKey {
    let process = process(number);
    ProcessKey {
        pid: process.pid,
        start_ticks: process.start_ticks.known().copied().unwrap_or_default(),
    }
}

fn verdict() -> Verdict {
    Verdict {
        threat: Threat::CryptoMiner,
        confidence: Share::thousandths(973),
        score: Share::thousandths(973),
        risk: Risk::Critical,
        signs: vec![Sign {
            kind: "pool_on_command_line".into(),
            family: Family::A,
            weight: Share::thousandths(650),
            read: "command line names a pool: \x1b[2Jpool:4444".into(),
        }],
    }
}

/// Of the third process of the snapshot, which is not on its first page.
pub(crate) fn listed() -> Vec<(ProcessKey, Suspected)> {
    let worst = Suspected::worst(&[verdict()]);
    worst.map(|worst| (key(2), worst)).into_iter().collect()
}

/// The answer to a scan of so many hours.
pub(crate) fn scan(hours: u32) -> ScanReport {
    let finding = Finding {
        process: key(2),
        owner: Some(Person {
            name: "eve".into(),
            uid: Some(1004),
        }),
        uid: Some(1004),
        name: Some("\x1b]0;x\x07".into()),
        executable: Some("/\x1b]0;x\x07".into()),
        gpus: vec![0],
        since: NOW,
        last_seen: NOW,
        is_present: true,
        verdicts: vec![verdict()],
    };
    ScanReport {
        since: NOW.plus_seconds(-3_600 * i64::from(hours)),
        until: NOW,
        judged: 3,
        findings: (hours > 1).then_some(finding).into_iter().collect(),
        more: 0,
    }
}
