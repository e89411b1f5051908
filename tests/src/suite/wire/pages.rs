//! Answers that do not fit one frame.

use super::super::raw::Raw;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_tests::harness::Stage;
use serde_json::json;

/// Above every pid that Linux gives: they do not exist.
const FIRST: u32 = 5_000_000;

const MANY: u32 = 5_000;

fn stage_with_many() -> Stage {
    let stage = Stage::new();
    let processes = |gpu: u32| -> Vec<_> {
        (0..MANY / 2)
            .map(|n| json!({"pid": FIRST + 2 * n + gpu, "memory": u64::from(n)}))
            .collect()
    };
    stage.play(&json!({"gpus": [{"processes": processes(0)}, {"processes": processes(1)}]}));
    stage
}

#[test]
fn five_thousand_processes_arrive_whole() {
    let stage = stage_with_many();
    let daemon = stage.start();
    let list = stage.json(&["list", "-o", "json", "--request-timeout", "30"]);
    let mut pids: Vec<u64> = list["procs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["pid"].as_u64().unwrap())
        .collect();
    pids.sort_unstable();
    let expected: Vec<u64> = (FIRST..FIRST + MANY).map(u64::from).collect();
    assert_eq!(pids, expected);
    daemon.stop();
}

fn page(answer: GpukillResponse) -> Result<SnapshotPage, Refusal> {
    match answer {
        GpukillResponse::Snapshot(answer) | GpukillResponse::MoreProcesses(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_rest_of_a_snapshot_is_had_only_from_the_one_that_was_asked_for() {
    let stage = stage_with_many();
    let daemon = stage.start();
    let mut raw = Raw::welcomed(&stage.socket());
    let mut more = |tick, start| page(raw.call(&GpukillRequest::MoreProcesses { tick, start }));
    assert_eq!(more(0, 0), Err(Refusal::Expired));
    assert_eq!(more(u64::MAX, u32::MAX), Err(Refusal::Expired));

    let first = page(raw.call(&GpukillRequest::Snapshot { after: None })).unwrap();
    let tick = first.snapshot.tick;
    let next = first.next.expect("more than one page");
    let mut more = |tick, start| page(raw.call(&GpukillRequest::MoreProcesses { tick, start }));
    assert_eq!(more(tick + 1, next), Err(Refusal::Expired));
    assert_eq!(more(tick - 1, next), Err(Refusal::Expired));
    let second = more(tick, next).unwrap();
    assert_eq!(second.snapshot.tick, tick);
    assert_eq!(second.snapshot.taken_at, first.snapshot.taken_at);
    // Whatever the start, and however often.
    assert_eq!(more(tick, next).unwrap(), second);
    for behind in [MANY, u32::MAX] {
        let page = more(tick, behind).unwrap();
        assert_eq!((page.snapshot.processes.len(), page.next), (0, None));
    }
    // Another connection has asked for nothing.
    let mut other = Raw::welcomed(&stage.socket());
    let answer = page(other.call(&GpukillRequest::MoreProcesses { tick, start: next }));
    assert_eq!(answer, Err(Refusal::Expired));
    daemon.stop();
}
