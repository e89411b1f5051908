//! A restore that is killed.

use super::{
    assert_entries_are_kept, make_backup, one_gpu, record_prune, recorded_actions,
    recorded_entries, records, replaced_directories, restore, restore_command, state_file_names,
};
use gpukill_tests::harness::eventually;
use std::process::Stdio;
use std::time::Instant;

#[test]
fn killed_restore_is_complete_or_absent() {
    /// The number of kills, spread over the duration of a restore.
    const KILLS: u32 = 8;
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    record_prune(&test_box, 1);
    let copy = make_backup(&test_box, "copy.tar");
    record_prune(&test_box, 2);
    daemon.stop();
    let started_at = Instant::now();
    assert_eq!(restore(&test_box, &copy, &[]).code, 0);
    let whole = started_at.elapsed();
    for moment in 0..KILLS {
        let before = recorded_entries(&test_box);
        let times = replaced_directories(&test_box).len();
        let mut command = restore_command(&test_box, &copy, &[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Every moment must satisfy the assertions below.
        std::thread::sleep(whole * moment / KILLS);
        child.kill().unwrap();
        child.wait().unwrap();
        let daemon = test_box.start();
        eventually("a sample", || records(&test_box, &[]).pop());
        assert_eq!(test_box.faults(), []);
        daemon.stop();
        assert_entries_are_kept(&test_box, &before);
        let now = replaced_directories(&test_box).len();
        assert!(now == times || now == times + 1);
        assert_eq!(
            recorded_actions(&test_box, "restore").len(),
            now,
            "moment {moment}"
        );
        let left = state_file_names(&test_box);
        let stray = |name: &&String| name.starts_with("restoring") || name.starts_with("copying");
        assert_eq!(left.iter().find(stray), None);
    }
}
