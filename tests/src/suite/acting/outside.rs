//! A daemon whose pids are not the host's.

use super::{Box, all, endings, is_inside};
use gpukill_tests::harness::{Actor, Ran, Stage, is_over, user};

#[test]
fn where_pids_may_be_others_it_ends_nobody_unless_roots_file_says_so() {
    if !is_inside(
        "acting::outside::where_pids_may_be_others_it_ends_nobody_unless_roots_file_says_so",
    ) {
        return;
    }
    let foreign = "gpukilld is not in the host's PID namespace";
    let actor = Actor::start("python");
    let pid = actor.pid().to_string();
    let refusal = |it: &Box| {
        it.lists(&[actor.pid()]);
        let ran = it.says(&[&pid]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert!(ran.stderr.contains(foreign), "{ran:?}");
        assert!(!is_over(actor.pid()));
    };
    // Nobody says so.
    let stage = Stage::new();
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
    refusal(&Box::of(stage, daemon));
    // A file says so that somebody else owns: with that it does not even start.
    let stage = Stage::new();
    std::os::unix::fs::chown(stage.path("gpukilld.toml"), Some(user(1)), None).unwrap();
    let ran = Ran::of(&mut stage.daemon());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains(&format!("it belongs to uid {}", user(1))),
        "{ran:?}"
    );
    // Root's does.
    let it = Box::new();
    it.lists(&[actor.pid()]);
    let (code, report) = it.kill(&[&pid]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[actor.pid()], "ended", "SIGTERM"))
    );
}
