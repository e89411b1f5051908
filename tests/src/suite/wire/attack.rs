//! Bytes that no honest client sends.

use super::super::raw::{RawConnection, encode_frame, encode_request};
use super::assert_unharmed;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_proto::transport::{MAX_DEADLINE, MAX_REQUEST, MAX_RESPONSE};
use gpukill_tests::harness::{TestBox, eventually};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

/// The growth that an attack may cause: buffers that the allocator keeps. Pages of the
/// program that were not executed before do not count.
const MAX_GROWTH: u64 = 16 << 20;

const YEAR: u64 = 365 * 86_400;

#[test]
fn daemon_speaks_first_with_its_limit() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let (_raw, answer) = RawConnection::connect_and_read_preface(&test_box.socket());
    assert_eq!(answer, Preface::new(PrefaceStatus::Welcome, MAX_REQUEST));
    daemon.stop();
}

#[test]
fn malformed_request_ends_only_its_connection() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let deadline =
        |length: Duration| encode_frame(&encode_request(length, 1, &GpukillRequest::Status {}));
    let seconds = |seconds| deadline(Duration::from_secs(seconds));
    let fair = Duration::from_secs(10);
    let mut trailing = encode_request(fair, 1, &GpukillRequest::Status {});
    trailing.push(0);
    let mut cut = encode_request(fair, 1, &GpukillRequest::Status {});
    cut.pop();
    let long_text =
        |bytes: u64| encode_frame(&encode_request(fair, 1, &(3u32, 0i64, 0i64, (1u8, bytes))));
    let attacks = [
        ("an empty frame", encode_frame(&[])),
        (
            "a frame of garbage",
            encode_frame(b"GET / HTTP/1.1\r\n\r\n"),
        ),
        (
            "the longest frame, of zeros",
            encode_frame(&[0; MAX_REQUEST]),
        ),
        (
            "the longest frame, of ones",
            encode_frame(&[0xff; MAX_REQUEST]),
        ),
        ("a frame that is too long by one", {
            (u32::try_from(MAX_REQUEST).unwrap() + 1)
                .to_be_bytes()
                .to_vec()
        }),
        ("a frame of 3 GiB", (3u32 << 30).to_be_bytes().to_vec()),
        ("the longest length", u32::MAX.to_be_bytes().to_vec()),
        (
            "a deadline just too far",
            seconds(MAX_DEADLINE.as_secs() + 1),
        ),
        ("a deadline of three years", seconds(3 * YEAR)),
        ("a deadline of 9,000 years", seconds(9_000 * YEAR)),
        ("the farthest deadline", deadline(Duration::MAX)),
        (
            "a deadline that is no duration",
            encode_frame(&encode_request((u64::MAX, u32::MAX), 1, &2u32)),
        ),
        (
            "a call that does not exist",
            encode_frame(&encode_request(fair, 1, &200u32)),
        ),
        (
            "a call of a kind that does not exist",
            encode_frame(&[9, 9, 9, 9]),
        ),
        ("trailing bytes", encode_frame(&trailing)),
        ("a request that ends early", encode_frame(&cut)),
        ("a text of 2^60 bytes", long_text(1 << 60)),
        ("a text as long as can be", long_text(u64::MAX)),
    ];
    for (name, bytes) in attacks {
        let mut raw = RawConnection::connect_admitted(&test_box.socket());
        // The daemon may close the connection before it has read everything.
        let _ = raw.write(&bytes);
        raw.assert_dropped(name);
        assert_unharmed(&test_box, &mut daemon, name);
    }
    daemon.stop();
}

#[test]
fn unfinished_requests_are_harmless() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let whole = encode_frame(&encode_request(
        Duration::from_secs(10),
        1,
        &GpukillRequest::Status {},
    ));
    let before = daemon.anonymous_bytes();
    for length in 0..whole.len() {
        let mut raw = RawConnection::connect_admitted(&test_box.socket());
        raw.write(&whole[..length]).unwrap();
    }
    for _ in 0..100 {
        let mut raw = RawConnection::connect_admitted(&test_box.socket());
        // The longest frame without its last byte.
        raw.write(&encode_frame(&[7; MAX_REQUEST])[..MAX_REQUEST])
            .unwrap();
    }
    assert_unharmed(&test_box, &mut daemon, "half frames");
    daemon.assert_memory_released(before, MAX_GROWTH);
    daemon.stop();
}

#[test]
fn random_bytes_are_harmless() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let honest = encode_request(Duration::from_secs(1), 1, &GpukillRequest::Status {});
    let mut chance = Random(0x6770_756b_696c_6c64);
    let before = daemon.anonymous_bytes();
    for round in 0..300 {
        let mut body: Vec<u8> = match round % 2 {
            0 => (0..chance.next_below(200))
                .map(|_| chance.next_byte())
                .collect(),
            _ => honest.clone(),
        };
        for _ in 0..chance.next_below(4) {
            if let Some(at) = (!body.is_empty()).then(|| chance.next_below(body.len())) {
                body[at] = chance.next_byte();
            }
        }
        let mut raw = RawConnection::connect_admitted(&test_box.socket());
        raw.write(&encode_frame(&body)).unwrap();
    }
    assert_unharmed(&test_box, &mut daemon, "random frames");
    daemon.assert_memory_released(before, MAX_GROWTH);
    daemon.stop();
}

/// The same numbers in each run (xorshift64), so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn next_byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.to_be_bytes()[0]
    }

    fn next_below(&mut self, end: usize) -> usize {
        usize::from(self.next_byte()) * end / 256
    }
}

#[test]
fn client_without_preface_is_dropped() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let ours = Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE).encode();
    let mut foreign = Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE);
    foreign.version.major = PROTOCOL_VERSION.major + 1;
    let started_at = Instant::now();
    let waiting: Vec<(&str, RawConnection)> = [
        ("silence", &[][..]),
        ("half a preface", &ours[..8]),
        ("a preface but for a byte", &ours[..15]),
        ("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n"),
        ("another version", &foreign.encode()),
    ]
    .into_iter()
    .map(|(name, bytes)| {
        let (mut raw, answer) = RawConnection::connect_and_read_preface(&test_box.socket());
        // A client with a refused version has read which version the daemon has.
        assert_eq!(answer.version, PROTOCOL_VERSION);
        raw.write(bytes).unwrap();
        (name, raw)
    })
    .collect();
    assert_unharmed(&test_box, &mut daemon, "while they wait");
    for (name, raw) in waiting {
        raw.assert_dropped(name);
    }
    let taken = started_at.elapsed();
    assert!(taken < Duration::from_secs(10), "{taken:?}");
    assert_unharmed(&test_box, &mut daemon, "when they are gone");
    daemon.stop();
}

#[test]
fn every_pipelined_call_is_answered_or_refused() {
    const CALLS: u64 = 500;
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let mut raw = RawConnection::connect_admitted(&test_box.socket());
    for id in 0..CALLS {
        raw.send_request(id, &GpukillRequest::Status {});
    }
    let mut ids = BTreeSet::new();
    let mut served = 0;
    for _ in 0..CALLS {
        let answer = raw.read_response().unwrap();
        assert!(ids.insert(answer.request_id), "answered twice");
        // tarpc itself refuses a call above its limit.
        if let Ok(answer) = answer.message {
            assert!(matches!(answer, GpukillResponse::Status(Ok(_))));
            served += 1;
        }
    }
    assert_eq!(ids, (0..CALLS).collect());
    assert!(served > 0);
    assert_unharmed(&test_box, &mut daemon, "a pipeline");
    daemon.stop();
}

#[test]
fn calls_with_one_id_are_harmless() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let mut raw = RawConnection::connect_admitted(&test_box.socket());
    let soon = Duration::from_millis(500);
    // The first call waits for a poll that never comes, so the others find its id in use.
    let call = GpukillRequest::Snapshot {
        after: Some(u64::MAX),
    };
    for _ in 0..20 {
        raw.write(&encode_frame(&encode_request(soon, 7, &call)))
            .unwrap();
    }
    // Cancels a call that does not exist.
    let cancel = gpukill_proto::transport::codec::encode(&(1u32, [0u8; 16], 0u64, 1u32, 9u64));
    let _ = raw.write(&encode_frame(&cancel.unwrap()));
    assert_unharmed(&test_box, &mut daemon, "twins");
    drop(raw);
    assert_unharmed(&test_box, &mut daemon, "disconnected twins");
    daemon.stop();
}

/// Takes ten seconds, the time that the daemon waits for a reader.
#[test]
fn client_that_never_reads_is_dropped() {
    let test_box = TestBox::new();
    let processes: Vec<_> = (0..2_000)
        .map(|n| json!({"pid": 5_000_000 + n, "memory": 1 << 20}))
        .collect();
    test_box.set_driver_state(&json!({"gpus": [{"processes": processes}]}));
    test_box.configure("");
    let mut command = test_box.daemon_command();
    // Samples of 2,000 processes that wait for a busy disk need memory too.
    command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s");
    command.env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "1m");
    let mut daemon = test_box.start_with(&mut command);
    let raw = RawConnection::connect_admitted(&test_box.socket());
    raw.stream().set_nonblocking(true).unwrap();
    let mut id = 0;
    // The time that this takes on this machine while all clients read.
    let started_at = Instant::now();
    assert_unharmed(&test_box, &mut daemon, "while everybody reads");
    let calm = started_at.elapsed();
    // The memory that answering needs in any case is no growth.
    let before = daemon.anonymous_bytes();
    let mut slowest = Duration::ZERO;
    eventually("the daemon drops it", || {
        id += 1;
        let call = GpukillRequest::Snapshot { after: None };
        let asked = encode_frame(&encode_request(Duration::from_secs(60), id, &call));
        if let Err(error) = raw.stream().write(&asked)
            && error.kind() != ErrorKind::WouldBlock
        {
            return Some(());
        }
        let started_at = Instant::now();
        assert_unharmed(&test_box, &mut daemon, "a client that does not read");
        slowest = slowest.max(started_at.elapsed());
        None
    });
    let limit = Duration::from_secs(5) + calm * 10;
    assert!(slowest < limit, "{slowest:?}, and {calm:?} before");
    daemon.assert_memory_released(before, MAX_GROWTH);
    assert_unharmed(&test_box, &mut daemon, "when it is gone");
    daemon.stop();
}
