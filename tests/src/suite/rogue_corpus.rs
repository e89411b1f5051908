//! Verdicts on a corpus of disguised miners and honest workloads.

#[path = "../../corpus/rogue.rs"]
mod corpus;

use corpus::{Matrix, cases};
use gpukill_proto::rogue::Risk;

#[test]
fn corpus_is_complete_with_unique_names() {
    let cases = cases();
    let miners = cases.iter().filter(|case| case.is_miner).count();
    assert!(miners >= 60 && cases.len() - miners >= 120, "{miners}");
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn honest_work_is_never_high_risk() {
    let cases = cases();
    let honest = cases.iter().filter(|case| !case.is_miner);
    for case in honest {
        for verdict in case.verdicts() {
            assert!(verdict.risk < Risk::High, "{}: {verdict:#?}", case.name);
            assert!(!verdict.is_actionable(), "{}: {verdict:#?}", case.name);
        }
    }
}

#[test]
fn detection_rates_do_not_decline() {
    let matrix = Matrix::from_cases(&cases());
    let (known, unseen) = (true, false);
    let from = |is_seen, is_miner| matrix.count_from((is_seen, is_miner), Risk::Medium);
    let [(miners, _), (other_miners, _)] = [from(known, true), from(unseen, true)];
    let [(honest, _), (other_honest, _)] = [from(known, false), from(unseen, false)];
    assert!(miners >= 33 && other_miners >= 12, "{matrix}");
    assert!(honest <= 3 && other_honest == 0, "{matrix}");
}
