//! Jobs that would grow during a kill: all processes of a job are stopped before the first is
//! killed.

use super::{KillBox, planned_pids};
use gpukill_tests::harness::{Script, eventually_equals, process_has_ended};

/// The number of processes that are killed between the worker and its supervisor: enough for a
/// restart.
const OTHER_WORKERS: usize = 300;

/// A launcher with a worker, many other workers, and a supervisor that notices the worker's end
/// at once, prints a line and restarts it. The job ignores SIGHUP, as under `nohup`: when the
/// launcher has ended, the shell that waits for it ends too, and the kernel sends SIGHUP and
/// SIGCONT to the rest of the process group.
fn supervised_job() -> String {
    format!(
        "trap '' HUP; launcher -c 'mkfifo alive
            launcher -c \"exec 3>alive; exec worker 1000\" & first=$!
            i=0; while [ $i -lt {OTHER_WORKERS} ]; do worker 1001 & i=$((i + 1)); done
            launcher -c \"exec 3<alive; echo ready; read nothing <&3; echo again; worker 1002 & wait\" &
            echo $$; echo $first; echo $!; wait' & wait; true"
    )
}

#[test]
fn supervisor_cannot_restart_the_worker() {
    let it = KillBox::new();
    let script = Script::spawn(
        &it.test_box,
        std::process::Command::new("bash")
            .args(["-c", &supervised_job()])
            .current_dir(it.test_box.directory()),
    );
    let mut lines: Vec<String> = (0..4).map(|_| script.next_line()).collect();
    lines.retain(|line| line != "ready");
    let pids: Vec<u32> = lines.iter().filter_map(|pid| pid.parse().ok()).collect();
    let [launcher, first, guard] = pids[..] else {
        panic!("{lines:?}");
    };
    it.add_gpu_processes(&[first]);
    let arguments = [&launcher.to_string(), "--scope", "tree", "--force"];
    let signal = ["--signal", "KILL", "--yes"];
    // Waits until all of them execute `worker`.
    eventually_equals(&(OTHER_WORKERS + 3), || {
        let (_, plan) = it.kill_json(&[&arguments[..], &["--dry-run"]].concat());
        planned_pids(&plan).len()
    });
    let (code, report) = it.kill_json(&[&arguments[..], &signal].concat());
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(script.unread_lines(), Vec::<String>::new());
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(
        outcomes.len(),
        OTHER_WORKERS + 3,
        "a late member was started"
    );
    assert!([launcher, first, guard].into_iter().all(process_has_ended));
    let mut left = script.running_pids();
    left.retain(|pid| *pid != script.pid());
    assert_eq!(left, Vec::<u32>::new());
}
