//! Ended processes that are not reaped.

use super::single_process::process_state;
use super::{KillBox, is_in_test_namespaces, outcomes, sorted};
use gpukill_tests::harness::{Script, eventually_equals};
use serde_json::{Value, json};

#[test]
fn zombie_in_scope_is_no_failure() {
    // The first process of a PID namespace inherits orphans, and this test reaps none.
    if !is_in_test_namespaces("kill::zombies::zombie_in_scope_is_no_failure") {
        return;
    }
    let it = KillBox::new();
    let script = Script::run(
        &it.test_box,
        "launcher -c 'sleep 0.5 & echo $!; echo $$; exec worker 1000' & wait; true",
    );
    let [child, parent] = script.next_pids();
    eventually_equals(&Some('Z'), || process_state(child));
    it.add_gpu_processes(&[parent]);
    let (code, report) = it.kill_json(&[&parent.to_string(), "--scope", "tree", "--yes"]);
    let of = |pid: u32| match pid == child {
        true => json!([pid, "zombie", null]),
        false => json!([pid, "ended", "SIGTERM"]),
    };
    let expected: Value = sorted([child, parent]).into_iter().map(of).collect();
    assert_eq!((code, outcomes(&report)), (0, expected), "{report:#}");
    assert_eq!(process_state(child), Some('Z'));
    assert_eq!(it.newest_action()["word"], "done");
}
