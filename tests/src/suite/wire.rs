//! The socket under hostile clients, and under too many honest ones.

mod attack;
mod connection_limits;
mod pages;
mod versions;

use super::raw::RawConnection;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_tests::harness::{Daemon, TestBox};

/// Asserts that the same daemon still runs, answers, and has not panicked.
fn assert_unharmed(test_box: &TestBox, daemon: &mut Daemon, after: &str) {
    assert_eq!(daemon.exit_status(), None, "{after}\n{}", daemon.log());
    let answer =
        RawConnection::connect_admitted(&test_box.socket()).call(&GpukillRequest::Status {});
    assert!(
        matches!(answer, GpukillResponse::Status(Ok(_))),
        "{after}: {answer:?}"
    );
    let log = daemon.log();
    assert!(!log.contains("panic"), "{after}\n{log}");
}
