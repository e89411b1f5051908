//! A daemon that is killed while it restores.

use super::{act, backup, holds, one_gpu, recorded, records, replaced, state};
use gpukill_tests::harness::eventually;
use std::process::Stdio;
use std::time::Instant;

/// At so many moments of a restore, spread over the time that one takes.
const MOMENTS: u32 = 8;

#[test]
fn killed_at_any_moment_it_is_either_done_or_not_and_nothing_recorded_is_lost() {
    let stage = one_gpu();
    let mut daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    act(&stage, 1);
    let copy = backup(&stage, "copy.tar");
    let start = || {
        let mut client = stage.client(&["audit", "restore", copy.to_str().unwrap(), "--yes"]);
        client.stdout(Stdio::null()).stderr(Stdio::null());
        client.spawn().unwrap()
    };
    let began = Instant::now();
    assert!(start().wait().unwrap().success());
    let whole = began.elapsed();
    for moment in 0..MOMENTS {
        act(&stage, 100 + i64::from(moment));
        let before = recorded(&stage);
        let times = replaced(&stage).len();
        let mut client = start();
        // A moment of the restore: whichever it is, what follows must hold.
        std::thread::sleep(whole * moment / MOMENTS);
        daemon.kill();
        client.wait().unwrap();
        daemon = stage.start();
        eventually("a sample", || records(&stage, &[]).pop());
        let after = recorded(&stage);
        holds(&stage, &before);
        let done = after
            .values()
            .filter(|it| it.kind == "restore" && it.word.as_deref() == Some("done"));
        // What is done is told as done, and nothing else is.
        let now = replaced(&stage).len();
        assert_eq!(done.count(), now, "moment {moment}");
        assert!(now == times || now == times + 1);
        assert!(
            after
                .values()
                .all(|it| it.kind != "restore" || it.word.is_some())
        );
        let left = state(&stage);
        let stray = |name: &&String| name.starts_with("restoring") || name.starts_with("copying");
        assert_eq!(left.iter().find(stray), None);
        assert_eq!(stage.faults(), []);
    }
    daemon.stop();
}
