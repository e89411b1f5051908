//! Answers that do not fit one frame.

use super::super::raw::RawConnection;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_tests::harness::TestBox;
use serde_json::json;

/// Higher than any pid that Linux assigns, so these processes do not exist.
const FIRST_PID: u32 = 5_000_000;

const PROCESSES: u32 = 5_000;

fn box_with_many_processes() -> TestBox {
    let test_box = TestBox::new();
    let processes = |gpu: u32| -> Vec<_> {
        (0..PROCESSES / 2)
            .map(|n| json!({"pid": FIRST_PID + 2 * n + gpu, "memory": u64::from(n)}))
            .collect()
    };
    test_box.set_driver_state(
        &json!({"gpus": [{"processes": processes(0)}, {"processes": processes(1)}]}),
    );
    test_box
}

#[test]
fn five_thousand_processes_are_complete() {
    let test_box = box_with_many_processes();
    let daemon = test_box.start();
    let list = test_box.json(&["list", "-o", "json", "--request-timeout", "30"]);
    let mut pids: Vec<u64> = list["procs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["pid"].as_u64().unwrap())
        .collect();
    pids.sort_unstable();
    let expected: Vec<u64> = (FIRST_PID..FIRST_PID + PROCESSES).map(u64::from).collect();
    assert_eq!(pids, expected);
    daemon.stop();
}

fn snapshot_page(answer: GpukillResponse) -> Result<SnapshotPage, Refusal> {
    match answer {
        GpukillResponse::Snapshot(answer) | GpukillResponse::MoreProcesses(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn next_page_needs_the_same_snapshot() {
    let test_box = box_with_many_processes();
    let daemon = test_box.start();
    let mut raw = RawConnection::connect_admitted(&test_box.socket());
    let mut more =
        |polls, start| snapshot_page(raw.call(&GpukillRequest::MoreProcesses { polls, start }));
    assert_eq!(more(0, 0), Err(Refusal::Expired));
    assert_eq!(more(u64::MAX, u32::MAX), Err(Refusal::Expired));

    let first = snapshot_page(raw.call(&GpukillRequest::Snapshot { after: None })).unwrap();
    let polls = first.snapshot.polls;
    let next = first.next.expect("more than one page");
    let mut more =
        |polls, start| snapshot_page(raw.call(&GpukillRequest::MoreProcesses { polls, start }));
    assert_eq!(more(polls + 1, next), Err(Refusal::Expired));
    assert_eq!(more(polls - 1, next), Err(Refusal::Expired));
    let second = more(polls, next).unwrap();
    assert_eq!(second.snapshot.polls, polls);
    assert_eq!(second.snapshot.taken_at, first.snapshot.taken_at);
    // Any start is accepted, repeatedly.
    assert_eq!(more(polls, next).unwrap(), second);
    for behind in [PROCESSES, u32::MAX] {
        let page = more(polls, behind).unwrap();
        assert_eq!((page.snapshot.processes.len(), page.next), (0, None));
    }
    // Another connection has not requested the snapshot.
    let mut other = RawConnection::connect_admitted(&test_box.socket());
    let answer = snapshot_page(other.call(&GpukillRequest::MoreProcesses { polls, start: next }));
    assert_eq!(answer, Err(Refusal::Expired));
    daemon.stop();
}
