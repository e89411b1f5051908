//! A thousand clients at once, and thousands one after the other: each of them
//! is answered, and nothing of them remains.

use super::{assert_given_back, holds_at_rest, stage_with};
use crate::raw::Raw;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::preface::Status;
use gpukill_tests::harness::eventually;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const AT_ONCE: usize = 1_000;

const IN_SEQUENCE: usize = 3_000;

/// What so many clients may leave behind: buffers that the allocator keeps. A
/// page of an answer that is never freed would be a hundred times as much.
const LEFT_BEHIND: u64 = 8 << 20;

#[test]
fn a_thousand_clients_at_once_are_all_answered() {
    let stage = stage_with(16);
    let mut command = stage.daemon();
    // The usual interval: the shortest one leaves a sensor little time.
    let daemon = stage.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s"));
    let before = holds_at_rest(&stage, &daemon);
    // Into files: a thousand pipes are more than most systems let one program have.
    let file = |n: usize, what: &str| stage.path(&format!("client-{n}.{what}"));
    let clients: Vec<_> = (0..AT_ONCE)
        .map(|n| {
            let mut client = stage.client(&["list", "-o", "json", "--request-timeout", "100"]);
            client.stdout(File::create(file(n, "out")).unwrap());
            client.stderr(File::create(file(n, "err")).unwrap());
            client.spawn().unwrap()
        })
        .collect();
    for (n, mut client) in clients.into_iter().enumerate() {
        let status = client.wait().unwrap();
        let complaint = std::fs::read_to_string(file(n, "err")).unwrap();
        assert_eq!((status.code(), complaint.as_str()), (Some(0), ""), "{n}");
        let list = std::fs::read_to_string(file(n, "out")).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        // On a machine this busy the readings may be old, and then say so.
        let is_old = list["faults"][0]["what"] == "does not answer in time: readings are old";
        let processes = list["procs"].as_array().unwrap().len();
        assert!(processes == 16 || is_old, "{n}: {list}");
    }
    assert_given_back(&daemon, before);
    daemon.stop();
}

#[test]
fn thousands_of_clients_in_sequence_leave_nothing_behind() {
    let stage = stage_with(50);
    let mut command = stage.daemon();
    let daemon = stage.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s"));
    let ask = || {
        let answer = let_in(&stage.socket()).call(&GpukillRequest::Snapshot { after: None });
        let GpukillResponse::Snapshot(Ok(page)) = answer else {
            panic!("{answer:?}");
        };
        let whole = page.snapshot.processes.len() == 50;
        assert!(whole || !page.snapshot.faults.is_empty(), "{page:?}");
    };
    (0..200).for_each(|_| ask());
    let (before, resident) = (holds_at_rest(&stage, &daemon), daemon.anonymous());
    (0..IN_SEQUENCE).for_each(|_| ask());
    assert_given_back(&daemon, before);
    let grown = daemon.anonymous().saturating_sub(resident);
    assert!(grown < LEFT_BEHIND, "grew by {grown} bytes");
    daemon.stop();
}

/// Connects until there is a place: the daemon may not have seen the last client
/// go.
fn let_in(socket: &Path) -> Raw {
    eventually("there is a place", || {
        let (raw, theirs) = Raw::enter(socket);
        if theirs.status == Status::Busy {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        }
        Some(raw)
    })
}
