//! A daemon in another PID namespace than the host's.

use super::{KillBox, all_with_ending, is_in_test_namespaces, outcomes};
use gpukill_tests::harness::{CommandOutput, TestBox, TestProcess, process_has_ended, test_uid};

#[test]
fn foreign_pids_need_roots_permission() {
    if !is_in_test_namespaces("kill::foreign_pids::foreign_pids_need_roots_permission") {
        return;
    }
    let foreign = "gpukilld is not in the host's PID namespace";
    let process = TestProcess::start("python");
    let pid = process.pid().to_string();
    let refusal = |it: &KillBox| {
        it.add_gpu_processes(&[process.pid()]);
        let ran = it.kill_output(&[&pid]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert!(ran.stderr.contains(foreign), "{ran:?}");
        assert!(!process_has_ended(process.pid()));
    };
    // The setting is off.
    let test_box = TestBox::new();
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
    refusal(&KillBox::start(test_box, daemon));
    // A settings file of another owner: the daemon does not start with it.
    let test_box = TestBox::new();
    std::os::unix::fs::chown(test_box.path("gpukilld.toml"), Some(test_uid(1)), None).unwrap();
    let ran = CommandOutput::run(&mut test_box.daemon_command());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains(&format!("it belongs to uid {}", test_uid(1))),
        "{ran:?}"
    );
    // The file of root allows it.
    let it = KillBox::new();
    it.add_gpu_processes(&[process.pid()]);
    let (code, report) = it.kill_json(&[&pid]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[process.pid()], "ended", "SIGTERM"))
    );
}
