//! A restore that is killed.

use super::{
    act, acts, backup, holds, one_gpu, recorded, records, replaced, restore, restoring, state,
};
use gpukill_tests::harness::eventually;
use std::process::Stdio;
use std::time::Instant;

#[test]
fn killed_at_any_moment_it_is_either_done_or_not_and_nothing_recorded_is_lost() {
    /// At so many moments of a restore, spread over the time that one takes.
    const MOMENTS: u32 = 8;
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    act(&stage, 1);
    let copy = backup(&stage, "copy.tar");
    act(&stage, 2);
    daemon.stop();
    let began = Instant::now();
    assert_eq!(restore(&stage, &copy, &[]).code, 0);
    let whole = began.elapsed();
    for moment in 0..MOMENTS {
        let before = recorded(&stage);
        let times = replaced(&stage).len();
        let mut command = restoring(&stage, &copy, &[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A moment of the restore: whichever it is, what follows must hold.
        std::thread::sleep(whole * moment / MOMENTS);
        child.kill().unwrap();
        child.wait().unwrap();
        let daemon = stage.start();
        eventually("a sample", || records(&stage, &[]).pop());
        assert_eq!(stage.faults(), []);
        daemon.stop();
        holds(&stage, &before);
        let now = replaced(&stage).len();
        assert!(now == times || now == times + 1);
        assert_eq!(acts(&stage, "restore").len(), now, "moment {moment}");
        let left = state(&stage);
        let stray = |name: &&String| name.starts_with("restoring") || name.starts_with("copying");
        assert_eq!(left.iter().find(stray), None);
    }
}
