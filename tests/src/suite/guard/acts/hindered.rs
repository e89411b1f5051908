//! What keeps the guard from ending a job that it chose is told, and nobody is ended.

use super::{Box, JOB, goes_on};
use gpukill_tests::harness::{Driver, Troupe, becomes, eventually, is_over, skip};
use rusqlite::Connection;
use serde_json::json;

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let Some(it) = Box::by(RULES) else { return };
    let job = Troupe::run(&it.stage, JOB);
    let [launcher, worker] = job.pids();
    eventually("the store answers", || {
        (it.stage.ctl(&["audit", "actions"]).code == 0).then_some(())
    });
    let lock = Connection::open(it.stage.path("state/audit.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    it.driver.lists(&[worker]);
    eventually("it is not done", || {
        it.daemon
            .log()
            .contains("it cannot be recorded")
            .then_some(())
    });
    goes_on(&it.stage);
    assert!(!is_over(launcher) && !is_over(worker));
    lock.execute_batch("ROLLBACK").unwrap();
    let acted = it.acted();
    assert_eq!((&acted[0], &acted[1]), (&json!(0), &json!(2)), "{acted}");
    let why = acted[2].as_str().unwrap();
    assert!(why.contains("it cannot be recorded: "), "{why}");
    assert!(!is_over(launcher) && !is_over(worker));
    it.daemon.stop();
}

#[test]
fn what_cannot_be_remembered_is_not_done() {
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    // Nothing can be written in its place.
    std::fs::create_dir_all(stage.path("state/guard.json/taken")).unwrap();
    let driver = Driver::start(&stage, super::TEARDOWN);
    let daemon = stage.start();
    let job = Troupe::run(&stage, JOB);
    let [launcher, worker] = job.pids();
    driver.lists(&[worker]);
    let why = "it is not to be ended any more by the rules as they are now, \
               or that cannot be written down";
    assert_eq!(super::acted(&stage), json!([0, 1, why]));
    goes_on(&stage);
    assert!(!is_over(launcher) && !is_over(worker));
    assert_eq!(super::acts(&stage), json!([]));
    daemon.stop();
}

#[test]
fn who_is_protected_in_a_job_protects_nobody_else_of_it() {
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let settings = std::fs::read_to_string(stage.path("gpukilld.toml")).unwrap();
    let protect = format!("{settings}\n[protect]\nnames = [\"sleep\"]\n");
    std::fs::write(stage.path("gpukilld.toml"), protect).unwrap();
    let mut daemon = stage.daemon();
    let it = Box::of(stage, &mut daemon);
    let job = "launcher -c 'echo $$; /bin/sleep 1000 & echo $!; wait' & wait; true";
    let job = Troupe::run(&it.stage, job);
    let [launcher, sleep] = job.pids();
    let executable = std::fs::read_link(format!("/proc/{sleep}/exe")).unwrap();
    if !executable.ends_with("sleep") {
        return skip("here sleep is one of many names of a program");
    }
    it.driver.lists(&[launcher]);
    let why = format!("process {sleep} is protected: the admin protects what is called sleep");
    let rest = format!("the rest of its job is left alone: {why}");
    assert_eq!(it.acted(), json!([1, 0, rest]));
    goes_on(&it.stage);
    assert!(is_over(launcher) && !is_over(sleep));
    assert_eq!(it.acts().as_array().unwrap().len(), 1);
    becomes(&0, || it.stage.faults().len());
    it.daemon.stop();
}
