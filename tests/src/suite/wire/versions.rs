//! Clients of other versions: each learns the version of the daemon, and compatible clients
//! get answers.

use super::super::raw::RawConnection;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::MAX_RESPONSE;
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use gpukill_tests::harness::TestBox;

fn preface(major: u16, minor: u16) -> Preface {
    Preface {
        version: ProtocolVersion { major, minor },
        ..Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE)
    }
}

#[test]
fn other_major_version_is_refused() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    for major in [PROTOCOL_VERSION.major - 1, PROTOCOL_VERSION.major + 1] {
        let (mut raw, answer) = RawConnection::connect_and_read_preface(&test_box.socket());
        let heard = (answer.version, answer.status);
        assert_eq!(heard, (PROTOCOL_VERSION, PrefaceStatus::Welcome));
        raw.write(&preface(major, 0).encode()).unwrap();
        raw.assert_dropped("another major version");
    }
    daemon.stop();
}

#[test]
fn newer_minor_version_is_answered() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let (mut raw, _) = RawConnection::connect_and_read_preface(&test_box.socket());
    let newer = preface(PROTOCOL_VERSION.major, PROTOCOL_VERSION.minor + 1);
    raw.write(&newer.encode()).unwrap();
    let answer = raw.call(&GpukillRequest::Status {});
    assert!(matches!(answer, GpukillResponse::Status(Ok(_))));
    daemon.stop();
}
