//! Jobs that would grow while they are ended: all of one are stopped before the
//! first of them is killed.

use super::{Box, ended};
use gpukill_tests::harness::{Troupe, becomes, is_over};
use std::time::Duration;

/// So many are killed between the first one and whoever sees that: long enough to
/// begin another.
const BETWEEN: usize = 300;

/// A launcher of a worker, of many others, and of a guard that sees at once that
/// the worker has ended, says so, and starts it anew.
fn guarded() -> String {
    format!(
        "launcher -c 'mkfifo alive
            launcher -c \"exec 3>alive; exec worker 1000\" & first=$!
            i=0; while [ $i -lt {BETWEEN} ]; do worker 1001 & i=$((i + 1)); done
            launcher -c \"exec 3<alive; echo ready; read nothing <&3; echo again; worker 1002 & wait\" &
            echo $$; echo $first; echo $!; wait' & wait; true"
    )
}

#[test]
fn whoever_starts_again_what_ended_does_not_come_to_it() {
    let it = Box::new();
    let troupe = Troupe::of(
        &it.stage,
        std::process::Command::new("bash")
            .args(["-c", &guarded()])
            .current_dir(it.stage.directory()),
    );
    let mut said: Vec<String> = (0..4).map(|_| troupe.says()).collect();
    said.retain(|line| line != "ready");
    let pids: Vec<u32> = said.iter().filter_map(|pid| pid.parse().ok()).collect();
    let [launcher, first, guard] = pids[..] else {
        panic!("{said:?}");
    };
    it.lists(&[first]);
    let arguments = [&launcher.to_string(), "--scope", "tree", "--force"];
    let signal = ["--signal", "KILL", "--yes"];
    // Once they are workers all of them, and hold still.
    becomes(&(BETWEEN + 3), || {
        let (_, plan) = it.kill(&[&arguments[..], &["--dry-run"]].concat());
        ended(&plan).len()
    });
    let begun = std::time::Instant::now();
    let (code, report) = it.kill(&[&arguments[..], &signal].concat());
    assert_eq!(code, 0, "{report:#}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(troupe.murmurs(), Vec::<String>::new());
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), BETWEEN + 3, "somebody was born");
    assert!([launcher, first, guard].into_iter().all(is_over));
    let mut left = troupe.left();
    left.retain(|pid| *pid != troupe.pid());
    assert_eq!(left, Vec::<u32>::new());
}
