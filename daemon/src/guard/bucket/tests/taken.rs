//! What a process is taken for.

use super::*;
use gpukill_proto::rogue::{Risk, Suspected, Threat};

#[test]
fn what_a_process_was_taken_for_is_stored_as_it_was_judged() {
    let miner = Suspected {
        risk: Risk::Critical,
        threat: Threat::CryptoMiner,
        may_be_acted_on: true,
    };
    let less = Suspected {
        may_be_acted_on: false,
        ..miner
    };
    let said = |mut sample: Sample, verdicts: &[(u32, Option<Suspected>)]| {
        let of = |(pid, verdict): &(u32, Option<Suspected>)| {
            let key = ProcessKey {
                pid: *pid,
                start_ticks: u64::from(*pid) * 10,
            };
            (key, *verdict)
        };
        sample.suspected = Arc::new(verdicts.iter().map(of).collect());
        sample
    };
    let two = |at| sample(at, vec![known(7), process(8)], Vec::new(), 1_000);
    let samples = [
        two(20_000),
        said(two(30_000), &[(7, None)]),
        said(two(40_000), &[(7, Some(miner)), (8, None)]),
        said(two(50_000), &[(7, Some(less)), (8, None)]),
        // It is not known any more, and then it is gone.
        two(60_000),
        said(
            sample(70_000, vec![process(8)], vec![known(7)], 1_000),
            &[(7, Some(miner))],
        ),
    ];
    let (live, stored) = both(&samples);
    assert_eq!(stored, live);
    let told = live.iter().map(|bucket| {
        let runs = bucket.runs.values();
        runs.map(|run| run.about.suspected).collect()
    });
    assert_eq!(
        told.collect::<Vec<Vec<_>>>(),
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
