//! The socket under those who mean no good, and under too many who mean well.

mod attack;

mod crowd;

mod pages;

mod versions;

use super::raw::Raw;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_tests::harness::{Daemon, Stage};

/// The daemon is the one that was started, answers, and has not stumbled.
fn assert_unharmed(stage: &Stage, daemon: &mut Daemon, after: &str) {
    assert_eq!(daemon.ended(), None, "{after}\n{}", daemon.log());
    let answer = Raw::welcomed(&stage.socket()).call(&GpukillRequest::Status {});
    assert!(
        matches!(answer, GpukillResponse::Status(Ok(_))),
        "{after}: {answer:?}"
    );
    let log = daemon.log();
    assert!(!log.contains("panic"), "{after}\n{log}");
}
