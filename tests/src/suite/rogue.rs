//! Verdicts on processes, over a corpus of miners in disguises and honest work.

#[path = "../../corpus/rogue.rs"]
mod corpus;

use corpus::{Matrix, cases};
use gpukill_proto::rogue::Risk;

#[test]
fn every_case_is_whole_and_has_a_name_of_its_own() {
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
fn no_honest_work_is_of_high_risk_nor_may_it_be_acted_on() {
    let cases = cases();
    let honest = cases.iter().filter(|case| !case.is_miner);
    for case in honest {
        for verdict in case.verdicts() {
            assert!(verdict.risk < Risk::High, "{}: {verdict:#?}", case.name);
            assert!(!verdict.may_be_acted_on(), "{}: {verdict:#?}", case.name);
        }
    }
}

#[test]
fn as_many_miners_are_found_as_were_and_no_more_honest_work_is_wronged() {
    let matrix = Matrix::of(&cases());
    let (known, unseen) = (true, false);
    let from = |is_seen, is_miner| matrix.from((is_seen, is_miner), Risk::Medium);
    let [(miners, _), (other_miners, _)] = [from(known, true), from(unseen, true)];
    let [(honest, _), (other_honest, _)] = [from(known, false), from(unseen, false)];
    assert!(miners >= 33 && other_miners >= 12, "{matrix}");
    assert!(honest <= 3 && other_honest == 0, "{matrix}");
}
