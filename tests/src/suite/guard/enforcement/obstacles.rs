//! Obstacles to an enforcement: the guard ends no process and records the reason.

use super::{GuardBox, RESPAWNING_JOB, wait_for_polls};
use gpukill_tests::harness::{
    FakeDriver, Script, eventually, eventually_equals, process_has_ended, skip,
};
use rusqlite::Connection;
use serde_json::json;

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

#[test]
fn unrecorded_action_does_not_run() {
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let job = Script::run(&it.test_box, RESPAWNING_JOB);
    let [launcher, worker] = job.next_pids();
    eventually("the store answers", || {
        (it.test_box.ctl(&["audit", "actions"]).code == 0).then_some(())
    });
    let lock = Connection::open(it.test_box.path("state/audit.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    it.driver.add_processes(&[worker]);
    eventually("it is not done", || {
        it.daemon
            .log()
            .contains("it cannot be recorded")
            .then_some(())
    });
    wait_for_polls(&it.test_box);
    assert!(!process_has_ended(launcher) && !process_has_ended(worker));
    lock.execute_batch("ROLLBACK").unwrap();
    let outcome = it.outcome();
    assert_eq!(
        (&outcome[0], &outcome[1]),
        (&json!(0), &json!(2)),
        "{outcome}"
    );
    let why = outcome[2].as_str().unwrap();
    assert!(why.contains("it cannot be recorded: "), "{why}");
    assert!(!process_has_ended(launcher) && !process_has_ended(worker));
    it.daemon.stop();
}

#[test]
fn unsaved_state_prevents_the_end() {
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    // A directory that is not empty cannot be replaced by the file.
    std::fs::create_dir_all(test_box.path("state/guard.json/taken")).unwrap();
    let driver = FakeDriver::start(&test_box, super::MEMORY_RELEASE_TIME);
    let daemon = test_box.start();
    let job = Script::run(&test_box, RESPAWNING_JOB);
    let [launcher, worker] = job.next_pids();
    driver.add_processes(&[worker]);
    let why = "the current rules do not end it any more, or the decision cannot be stored";
    assert_eq!(super::last_outcome(&test_box), json!([0, 1, why]));
    wait_for_polls(&test_box);
    assert!(!process_has_ended(launcher) && !process_has_ended(worker));
    assert_eq!(super::recorded_kills(&test_box), json!([]));
    daemon.stop();
}

#[test]
fn protected_process_does_not_protect_its_job() {
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let settings = std::fs::read_to_string(test_box.path("gpukilld.toml")).unwrap();
    let protect = format!("{settings}\n[protect]\nnames = [\"sleep\"]\n");
    std::fs::write(test_box.path("gpukilld.toml"), protect).unwrap();
    let mut daemon = test_box.daemon_command();
    let it = GuardBox::start(test_box, &mut daemon);
    let job = "launcher -c 'echo $$; /bin/sleep 1000 & echo $!; wait' & wait; true";
    let job = Script::run(&it.test_box, job);
    let [launcher, sleep] = job.next_pids();
    let executable = std::fs::read_link(format!("/proc/{sleep}/exe")).unwrap();
    if !executable.ends_with("sleep") {
        return skip("here sleep is one of many names of a program");
    }
    it.driver.add_processes(&[launcher]);
    let why = format!("process {sleep} is protected: the admin protects the name sleep");
    let rest = format!("the rest of its job is not ended: {why}");
    assert_eq!(it.outcome(), json!([1, 0, rest]));
    wait_for_polls(&it.test_box);
    assert!(process_has_ended(launcher) && !process_has_ended(sleep));
    assert_eq!(it.kills().as_array().unwrap().len(), 1);
    eventually_equals(&0, || it.test_box.faults().len());
    it.daemon.stop();
}

#[test]
fn protected_job_is_promised_no_end() {
    if !rustix::process::geteuid().is_root() {
        return skip("a name protects only processes of root and system accounts");
    }
    let enforce = "[global]\ndry_run = false\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(test_box) = GuardBox::test_box_with_rules(enforce) else {
        return;
    };
    let settings = std::fs::read_to_string(test_box.path("gpukilld.toml")).unwrap();
    let protect = format!("{settings}\n[protect]\nnames = [\"sleep\"]\n");
    std::fs::write(test_box.path("gpukilld.toml"), protect).unwrap();
    let mut daemon = test_box.daemon_command();
    let it = GuardBox::start(test_box, &mut daemon);
    let job = Script::run(&it.test_box, "/bin/sleep 1000 & echo $!; wait");
    let [sleep] = job.next_pids();
    let executable = std::fs::read_link(format!("/proc/{sleep}/exe")).unwrap();
    if !executable.ends_with("sleep") {
        return skip("here sleep is one of many names of a program");
    }
    it.driver.add_processes(&[sleep]);
    let set = ["guard", "user", "set", "root", "--memory-limit", "0.5"];
    let planned = eventually("the job is listed", || {
        let planned = it.test_box.ctl(&[&set[..], &["--dry-run"]].concat());
        planned
            .stdout
            .contains("user root: memory")
            .then_some(planned)
    });
    let why = format!("process {sleep} is protected: the admin protects the name sleep");
    let shown = &planned.stdout;
    assert!(shown.contains(" nobody: see below "), "{shown}");
    assert!(
        shown.ends_with(&format!("user root: memory: {why}\n")),
        "{shown}"
    );
    // Nothing is asked where no job would be ended, and the guard then decides the same.
    let made = it.test_box.ctl(&set);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(it.outcome(), json!([0, 1, why]));
    assert!(!process_has_ended(sleep));
    it.daemon.stop();
}
