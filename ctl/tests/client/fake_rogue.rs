//! The findings of the fake daemon's rogue watch: within a day a process with control
//! characters in its name, within an hour none.

use crate::fake_daemon::NOW;
use crate::fake_snapshot::process;
use gpukill_proto::guard::Person;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::rogue::{
    Family, Indicator, Risk, RogueFinding, ScanReport, Share, Threat, Verdict, VerdictSummary,
};

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
        confidence: Share::from_thousandths(973),
        score: Share::from_thousandths(973),
        risk: Risk::Critical,
        indicators: vec![Indicator {
            kind: "pool_on_command_line".into(),
            family: Family::A,
            weight: Share::from_thousandths(650),
            evidence: "command line names a pool: \x1b[2Jpool:4444".into(),
        }],
    }
}

/// The verdict on the third process of the snapshot, which is not on its first page.
pub(crate) fn marked_processes() -> Vec<(ProcessKey, VerdictSummary)> {
    let worst = VerdictSummary::worst(&[verdict()]);
    worst.map(|worst| (key(2), worst)).into_iter().collect()
}

/// The answer to a scan of this number of hours.
pub(crate) fn scan(hours: u32) -> ScanReport {
    let finding = RogueFinding {
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
        evaluated: 3,
        findings: (hours > 1).then_some(finding).into_iter().collect(),
        more: 0,
    }
}
