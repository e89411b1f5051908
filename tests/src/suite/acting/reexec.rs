//! Processes that execute another program when they get SIGTERM: one that is called like
//! what keeps people's work.

use super::{Box, all, endings};
use gpukill_tests::harness::{Stage, Troupe, copy_program};

/// Goes on after SIGTERM.
const KEEPER: &str = "trap '' TERM; while :; do sleep 1000 & wait; done";

/// A process that is called `first`, and goes on as a program of its user's own that is called
/// `then` when it gets SIGTERM. It leads its session, as a server does. Says its pid.
pub(crate) fn run(stage: &Stage, first: &str, then: &str) -> Troupe {
    for name in [first, then] {
        copy_program("/bin/sh", stage.path(name));
    }
    let keeper = stage.path("keeper.sh");
    std::fs::write(&keeper, KEEPER).unwrap();
    let own = format!(
        r#"setsid {first} -c 'trap "exec {then} \"\$0\"" TERM; echo $$
        while :; do sleep 1000 & wait $!; done' '{}' & wait; true"#,
        keeper.display()
    );
    Troupe::run(stage, &own)
}

#[test]
fn a_process_that_goes_on_as_a_tmux_of_its_own_is_killed() {
    for (first, then) in [("trainer", "tmux"), ("tmux", "screen"), ("trainer", "bash")] {
        let it = Box::new();
        let job = run(&it.stage, first, then);
        let [pid] = job.pids();
        it.lists(&[pid]);
        let (code, report) = it.kill(&[&pid.to_string(), "--force", "--timeout-secs", "1"]);
        assert_eq!(
            (code, endings(&report)),
            (0, all(&[pid], "ended", "SIGKILL")),
            "{first} {then}: {report:#}"
        );
        it.daemon.stop();
    }
}
