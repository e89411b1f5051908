//! The verdict on a process.

use super::*;
use gpukill_proto::rogue::{Risk, Threat, VerdictSummary};

#[test]
fn verdict_is_stored_as_evaluated() {
    let miner = VerdictSummary {
        risk: Risk::Critical,
        threat: Threat::CryptoMiner,
        is_actionable: true,
    };
    let less = VerdictSummary {
        is_actionable: false,
        ..miner
    };
    let said = |mut sample: Sample, verdicts: &[(u32, Option<VerdictSummary>)]| {
        let of = |(pid, verdict): &(u32, Option<VerdictSummary>)| {
            let key = ProcessKey {
                pid: *pid,
                start_ticks: u64::from(*pid) * 10,
            };
            (key, *verdict)
        };
        sample.suspected = Arc::new(verdicts.iter().map(of).collect());
        sample
    };
    let two = |at| sample(at, vec![known_process(7), process(8)], Vec::new(), 1_000);
    let samples = [
        two(20_000),
        said(two(30_000), &[(7, None)]),
        said(two(40_000), &[(7, Some(miner)), (8, None)]),
        said(two(50_000), &[(7, Some(less)), (8, None)]),
        // The verdict is no longer known, and then the process is gone.
        two(60_000),
        said(
            sample(70_000, vec![process(8)], vec![known_process(7)], 1_000),
            &[(7, Some(miner))],
        ),
    ];
    let (live, stored) = live_and_stored(&samples);
    assert_eq!(stored, live);
    let suspected = live.iter().map(|sample| {
        let runs = sample.runs.values();
        runs.map(|run| run.facts.suspected).collect()
    });
    assert_eq!(
        suspected.collect::<Vec<Vec<_>>>(),
        [
            vec![None, None],
            vec![Some(None), None],
            vec![Some(Some(miner)), Some(None)],
            vec![Some(Some(less)), Some(None)],
            vec![None, None],
            vec![Some(Some(miner)), None],
        ]
    );
}
