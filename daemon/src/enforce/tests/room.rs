//! Tests of the room for handles, in a process of their own: its limit is that of
//! a whole program.

use super::super::room::{Room, widen_descriptors};
use rustix::process::{Resource, getrlimit};
use std::process::Command;

/// Set in the process of its own.
const INSIDE: &str = "GPUKILL_TEST_INSIDE";

/// Whether this is a program that may have so many descriptors, and twice as many
/// when it asks. Elsewhere the test of this name is run in one, and has to pass.
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
fn half_of_the_descriptors_are_left_for_all_else() {
    if !is_inside(
        "enforce::tests::room::half_of_the_descriptors_are_left_for_all_else",
        64,
    ) {
        return;
    }
    let take = || std::iter::from_fn(Room::take).take(1_000);
    let mut rooms: Vec<Room> = take().collect();
    assert_eq!(rooms.len(), 32);
    // What is given back is there for others.
    rooms.truncate(30);
    rooms.extend(take());
    assert_eq!(rooms.len(), 32);
    // The daemon asks for as many as it may have.
    widen_descriptors();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(128));
    rooms.extend(take());
    assert_eq!(rooms.len(), 64);
}
