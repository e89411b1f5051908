//! A thousand clients at once, and thousands one after the other: each client gets its
//! answer, and the daemon releases the resources of all of them.

use super::{assert_resources_released, box_with_processes, measure_resources_at_rest};
use crate::raw::RawConnection;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::preface::PrefaceStatus;
use gpukill_tests::harness::eventually;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const SIMULTANEOUS_CLIENTS: usize = 1_000;

const SEQUENTIAL_CLIENTS: usize = 3_000;

/// The growth that this many clients may cause: buffers that the allocator keeps. One
/// leaked page per answer would be a hundred times as much.
const MAX_GROWTH: u64 = 8 << 20;

#[test]
fn thousand_simultaneous_clients_are_answered() {
    let test_box = box_with_processes(16);
    let mut command = test_box.daemon_command();
    // The default interval: with the shortest interval the sensor would have little time.
    let daemon = test_box.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s"));
    let before = measure_resources_at_rest(&test_box, &daemon);
    // Files instead of pipes: a thousand pipes exceed what most systems let one program
    // have.
    let file = |n: usize, what: &str| test_box.path(&format!("client-{n}.{what}"));
    let clients: Vec<_> = (0..SIMULTANEOUS_CLIENTS)
        .map(|n| {
            let mut client =
                test_box.client_command(&["list", "-o", "json", "--request-timeout", "100"]);
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
        // On a machine this busy the readings may be stale, and a fault reports that.
        let is_old = list["faults"][0]["what"] == "does not answer in time: readings are old";
        let processes = list["procs"].as_array().unwrap().len();
        assert!(processes == 16 || is_old, "{n}: {list}");
    }
    assert_resources_released(&daemon, before);
    daemon.stop();
}

#[test]
fn sequential_clients_leave_nothing_behind() {
    let test_box = box_with_processes(50);
    let mut command = test_box.daemon_command();
    let daemon = test_box.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s"));
    let ask = || {
        let answer = connect_when_admitted(&test_box.socket())
            .call(&GpukillRequest::Snapshot { after: None });
        let GpukillResponse::Snapshot(Ok(page)) = answer else {
            panic!("{answer:?}");
        };
        let whole = page.snapshot.processes.len() == 50;
        assert!(whole || !page.snapshot.faults.is_empty(), "{page:?}");
    };
    (0..200).for_each(|_| ask());
    let (before, resident) = (
        measure_resources_at_rest(&test_box, &daemon),
        daemon.anonymous_bytes(),
    );
    (0..SEQUENTIAL_CLIENTS).for_each(|_| ask());
    assert_resources_released(&daemon, before);
    daemon.assert_memory_released(resident, MAX_GROWTH);
    daemon.stop();
}

/// Connects until the daemon admits the connection: it may not have noticed yet that the
/// last client disconnected.
fn connect_when_admitted(socket: &Path) -> RawConnection {
    eventually("there is a place", || {
        let (raw, answer) = RawConnection::connect_and_send_preface(socket);
        if answer.status == PrefaceStatus::Busy {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        }
        Some(raw)
    })
}
