//! Tests of the descriptor limit, in a process of their own: the limit is that of a whole program.

use super::super::concurrency::{FdPermit, raise_fd_limit};
use rustix::process::{Resource, getrlimit};
use std::process::Command;

/// Set in that process.
const INSIDE: &str = "GPUKILL_TEST_INSIDE";

/// Whether this program may have this many descriptors, and twice as many on request. Elsewhere the
/// test of this name runs in such a process and must pass there.
fn is_inside(test: &str, descriptors: u64) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let limited = format!(
        "ulimit -S -n {descriptors} && ulimit -H -n {} && exec \"$0\" \"$@\"",
        2 * descriptors
    );
    let mut again = Command::new("sh");
    again.args(["-c", &limited]);
    again.arg(std::env::current_exe().unwrap());
    again
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("1 passed"), "{said}\n{complained}");
    false
}

#[test]
fn half_of_the_descriptors_stay_free() {
    if !is_inside(
        "kill::tests::fd_budget::half_of_the_descriptors_stay_free",
        64,
    ) {
        return;
    }
    let take = || std::iter::from_fn(FdPermit::take).take(1_000);
    let mut rooms: Vec<FdPermit> = take().collect();
    assert_eq!(rooms.len(), 32);
    // A released permit can be used again.
    rooms.truncate(30);
    rooms.extend(take());
    assert_eq!(rooms.len(), 32);
    // The daemon raises its limit to the maximum.
    raise_fd_limit();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(128));
    rooms.extend(take());
    assert_eq!(rooms.len(), 64);
}
