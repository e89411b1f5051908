//! Many simultaneous requests for holders: one scan answers all of them, and a client that
//! disconnects releases its connection slot.

use super::super::raw::RawConnection;
use super::{GIB, HoldersBox};
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_tests::harness::{eventually, eventually_equals};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const CLIENTS: usize = 1_000;

/// The result of a scan answers requests for this long; a scan makes the daemon poll this
/// often.
const SCAN_RESULT_LIFETIME: Duration = Duration::from_secs(2);
const POLLS_PER_SCAN: u64 = 2;

fn poll_count(it: &HoldersBox) -> u64 {
    let status = ["status", "-o", "json", "--request-timeout", "30"];
    it.test_box.json(&status)["polls"].as_u64().unwrap()
}

#[test]
fn thousand_requests_share_scans() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_driver_state(35 * GIB, &json!([]));
    let mut command = it.daemon_command();
    // All polls of this test come from requests.
    command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1h");
    let daemon = it.test_box.start_with(&mut command);
    let (before, started_at) = (poll_count(&it), Instant::now());
    let file = |n: usize, what: &str| it.test_box.path(&format!("client-{n}.{what}"));
    let arguments = ["holders", "-o", "json", "--request-timeout", "110"];
    // Files instead of pipes: a thousand pipes exceed what most systems let one program
    // have.
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut client = it.test_box.client_command(&arguments);
            client.stdout(File::create(file(n, "out")).unwrap());
            client.stderr(File::create(file(n, "err")).unwrap());
            client.spawn().unwrap()
        })
        .collect();
    let expected = json!([["unlisted", [4711]]]);
    for (n, mut client) in clients.into_iter().enumerate() {
        let status = client.wait().unwrap();
        let complaint = std::fs::read_to_string(file(n, "err")).unwrap();
        assert_eq!((status.code(), complaint.as_str()), (Some(0), ""), "{n}");
        let answer = std::fs::read_to_string(file(n, "out")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let found = &answer["held_gpus"][0]["findings"];
        assert_eq!(
            super::select_fields(found, &["cause", "pids"]),
            expected,
            "{n}"
        );
    }
    let periods = started_at.elapsed().as_secs() / SCAN_RESULT_LIFETIME.as_secs() + 1;
    let more = poll_count(&it) - before;
    let most = POLLS_PER_SCAN * periods;
    assert!((1..=most).contains(&more), "{more} polls, and not {most}");
    daemon.stop();
}

#[test]
fn disconnected_client_releases_its_slot() {
    let it = HoldersBox::new();
    it.add_process(4711, "python", &[]);
    it.set_driver_state(GIB, &json!([{"pid": 4711, "memory": GIB}]));
    let daemon = it.start();
    eventually_equals(&json!([[4711, "user"]]), || it.roles());
    // The last scan result is then too old, so the next request waits for polls.
    std::thread::sleep(SCAN_RESULT_LIFETIME);
    let poller = StuckPoll::new(&it, 4711);

    let first = request_holders(&it).expect("a place");
    let mut others = Vec::new();
    while let Some(other) = request_holders(&it) {
        others.push(other);
        assert!(others.len() < 100, "there is no limit");
    }
    // All connection slots of one user.
    let places = others.len();
    assert!(places >= 7, "{places}");
    drop(others);
    eventually("there are places", || {
        let taken: Vec<_> = (0..places)
            .map(|_| RawConnection::connect_and_read_preface(&it.test_box.socket()))
            .collect();
        let is_in =
            |(_, preface): &(RawConnection, Preface)| preface.status == PrefaceStatus::Welcome;
        taken.iter().all(is_in).then_some(())
    });
    // The scan is still running: the client that stayed waits for it.
    first.stream().set_nonblocking(true).unwrap();
    let answer = first.stream().read(&mut [0; 1]);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::WouldBlock);
    poller.release();
    daemon.stop();
}

/// Requests the holders and does not wait for the answer. `None` where no connection slot
/// is free.
fn request_holders(it: &HoldersBox) -> Option<RawConnection> {
    let (mut raw, answer) = RawConnection::connect_and_send_preface(&it.test_box.socket());
    if answer.status == PrefaceStatus::Busy {
        return None;
    }
    let (device, start) = (None, 0);
    raw.send_request(1, &GpukillRequest::Holders { device, start });
    Some(raw)
}

/// A poll that hangs while it reads the `stat` file of a process.
struct StuckPoll(PathBuf);

impl StuckPoll {
    fn new(it: &HoldersBox, pid: u32) -> Self {
        let stat = it.procfs.root().join(format!("{pid}/stat"));
        let kept = stat.with_extension("kept");
        std::fs::rename(&stat, kept).unwrap();
        // Opening a FIFO waits until another process opens it for writing.
        assert!(
            Command::new("mkfifo")
                .arg(&stat)
                .status()
                .unwrap()
                .success()
        );
        Self(stat)
    }

    fn release(self) {
        let fifo = OpenOptions::new().write(true).open(&self.0).unwrap();
        std::fs::rename(self.0.with_extension("kept"), &self.0).unwrap();
        drop(fifo);
    }
}
