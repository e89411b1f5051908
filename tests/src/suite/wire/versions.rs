//! Clients of other versions at a real daemon: they hear which it is, and whoever can
//! be understood is answered.

use super::super::raw::Raw;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::MAX_RESPONSE;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use gpukill_tests::harness::Stage;

fn preface(major: u16, minor: u16) -> Preface {
    Preface {
        version: ProtocolVersion { major, minor },
        ..Preface::ours(Status::Welcome, MAX_RESPONSE)
    }
}

#[test]
fn a_client_of_another_major_version_hears_which_the_daemon_is_and_no_more() {
    let stage = Stage::new();
    let daemon = stage.start();
    for major in [PROTOCOL_VERSION.major - 1, PROTOCOL_VERSION.major + 1] {
        let (mut raw, theirs) = Raw::connect(&stage.socket());
        let heard = (theirs.version, theirs.status);
        assert_eq!(heard, (PROTOCOL_VERSION, Status::Welcome));
        raw.write(&preface(major, 0).encode()).unwrap();
        raw.assert_dropped("another major version");
    }
    daemon.stop();
}

#[test]
fn a_client_of_a_higher_minor_version_is_answered_what_is_known_here() {
    let stage = Stage::new();
    let daemon = stage.start();
    let (mut raw, _) = Raw::connect(&stage.socket());
    let theirs = preface(PROTOCOL_VERSION.major, PROTOCOL_VERSION.minor + 1);
    raw.write(&theirs.encode()).unwrap();
    let answer = raw.call(&GpukillRequest::Status {});
    assert!(matches!(answer, GpukillResponse::Status(Ok(_))));
    daemon.stop();
}
