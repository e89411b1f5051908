//! Processes that execute another program on SIGTERM, with the name of a program that holds
//! people's sessions.

use super::{KillBox, all_with_ending, outcomes};
use gpukill_tests::harness::{Script, TestBox, copy_program};

/// Continues after SIGTERM.
const IGNORE_SIGTERM: &str = "trap '' TERM; while :; do sleep 1000 & wait; done";

/// Runs a process with the name `first` that on SIGTERM executes a program of its user with the
/// name `then`. It leads its session, as a server does, and prints its pid.
pub(crate) fn run_reexec_script(test_box: &TestBox, first: &str, then: &str) -> Script {
    for name in [first, then] {
        copy_program("/bin/sh", test_box.path(name));
    }
    let keeper = test_box.path("keeper.sh");
    std::fs::write(&keeper, IGNORE_SIGTERM).unwrap();
    let own = format!(
        r#"setsid {first} -c 'trap "exec {then} \"\$0\"" TERM; echo $$
        while :; do sleep 1000 & wait $!; done' '{}' & wait; true"#,
        keeper.display()
    );
    Script::run(test_box, &own)
}

#[test]
fn reexec_as_tmux_does_not_protect() {
    for (first, then) in [("trainer", "tmux"), ("tmux", "screen"), ("trainer", "bash")] {
        let it = KillBox::new();
        let job = run_reexec_script(&it.test_box, first, then);
        let [pid] = job.next_pids();
        it.add_gpu_processes(&[pid]);
        let (code, report) = it.kill_json(&[&pid.to_string(), "--force", "--timeout-secs", "1"]);
        assert_eq!(
            (code, outcomes(&report)),
            (0, all_with_ending(&[pid], "ended", "SIGKILL")),
            "{first} {then}: {report:#}"
        );
        it.daemon.stop();
    }
}
