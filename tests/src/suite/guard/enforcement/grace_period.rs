//! Soft mode: a warned person has a grace period and can snooze; both survive a restart of the
//! daemon.

use super::{GuardBox, RESPAWNING_JOB, steps_in_mode};
use gpukill_tests::harness::{
    Script, TestProcess, can_run_as_other_users, eventually, eventually_equals, process_has_ended,
    run_as_user, test_uid,
};
use serde_json::{Value, json};
use std::time::Duration;

const ALICE: u32 = test_uid(101);
const BOB: u32 = test_uid(102);

/// Waits for a record of this step and returns the newest.
fn newest_record(it: &GuardBox, step: &str) -> Value {
    eventually(step, || {
        let document = super::guard_violations(&it.test_box);
        let records = document["records"].as_array().unwrap();
        records.iter().find(|it| it["step"] == step).cloned()
    })
}

/// Timestamps are compared as text.
fn text_field<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap()
}

#[test]
fn only_the_owner_can_snooze() {
    if !can_run_as_other_users() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\nsnooze_minutes = 0.05\n\
        [user_policies.{}]\nmemory_limit_gb = 8\n",
        rustix::process::geteuid().as_raw()
    );
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    // Creates the links in the box's directory as root.
    drop(Script::run(&it.test_box, "true"));
    let job = run_as_user(ALICE, &[], || Script::run(&it.test_box, RESPAWNING_JOB));
    let [launcher, worker] = job.next_pids();
    let harmless = TestProcess::start("python");
    it.driver.add_processes(&[worker, harmless.pid()]);
    let first = newest_record(&it, "warned");
    let pid = worker.to_string();
    let snooze = |uid: u32, pid: &str| {
        let ran = run_as_user(uid, &[], || it.test_box.ctl(&["guard", "snooze", pid]));
        (ran.code, ran.stderr)
    };
    assert_eq!(snooze(ALICE, &pid), (0, String::new()));
    let (code, why) = snooze(ALICE, &pid);
    let none_left = "it was snoozed as often as the rule allows";
    assert!(code == 4 && why.contains(none_left), "{code} {why}");
    let (code, why) = snooze(BOB, &pid);
    assert!(code == 4 && why.contains("it belongs to "), "{code} {why}");
    let (code, why) = snooze(0, &harmless.pid().to_string());
    assert!(
        code == 8 && why.contains("it violates no rule"),
        "{code} {why}"
    );

    let steps = [
        "violated", "warned", "snoozed", "warned", "ended", "outcome", "over",
    ];
    eventually_equals(&steps_in_mode("soft", &steps), || it.steps());
    assert!(
        process_has_ended(launcher)
            && process_has_ended(worker)
            && !process_has_ended(harmless.pid())
    );
    let (snoozed, ended) = (newest_record(&it, "snoozed"), newest_record(&it, "ended"));
    assert_eq!(snoozed["snoozes_left"], json!(0));
    assert!(
        text_field(&snoozed, "deadline") > text_field(&first, "deadline"),
        "{snoozed:#}"
    );
    assert!(
        text_field(&ended, "timestamp") >= text_field(&snoozed, "deadline"),
        "{ended:#}"
    );
    assert_eq!(it.kills(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}

#[test]
fn snooze_survives_disable_and_restart() {
    if !can_run_as_other_users() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 4\nmax_warnings = 1\nsnooze_minutes = 0.5\n\
        [user_policies.{}]\nmemory_limit_gb = 8\n",
        rustix::process::geteuid().as_raw()
    );
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    drop(Script::run(&it.test_box, "true"));
    let job = run_as_user(ALICE, &[], || Script::run(&it.test_box, RESPAWNING_JOB));
    let [_, worker] = job.next_pids();
    it.driver.add_processes(&[worker]);
    newest_record(&it, "warned");
    let pid = worker.to_string();
    let ran = run_as_user(ALICE, &[], || it.test_box.ctl(&["guard", "snooze", &pid]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let snoozed = newest_record(&it, "snoozed");
    for mode in ["disable", "enforce"] {
        let ran = it.test_box.ctl(&["guard", mode, "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    it.daemon.stop();
    let daemon = it.test_box.start();
    let it = GuardBox { daemon, ..it };
    let ended = newest_record(&it, "ended");
    assert!(
        text_field(&ended, "timestamp") >= text_field(&snoozed, "deadline"),
        "{snoozed:#} {ended:#}"
    );
    it.daemon.stop();
}

#[test]
fn grace_period_survives_a_crash() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\n";
    let Some(it) = GuardBox::with_rules(rules) else {
        return;
    };
    let job = Script::run(&it.test_box, RESPAWNING_JOB);
    let [launcher, worker] = job.next_pids();
    it.driver.add_processes(&[worker]);
    let warned = newest_record(&it, "warned");
    // The state is saved before the warning is sent.
    eventually("it is kept", || {
        let kept = std::fs::read_to_string(it.test_box.path("state/guard.json")).ok()?;
        kept.contains("\"deadline\":1").then_some(())
    });
    it.daemon.kill();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!process_has_ended(worker));
    let daemon = it.test_box.start();
    let it = GuardBox { daemon, ..it };
    let steps = ["violated", "warned", "ended", "outcome", "over"];
    eventually_equals(&steps_in_mode("soft", &steps), || it.steps());
    assert!(process_has_ended(launcher) && process_has_ended(worker));
    let ended = newest_record(&it, "ended");
    assert!(
        text_field(&ended, "timestamp") >= text_field(&warned, "deadline"),
        "{ended:#}"
    );
    assert_eq!(it.kills(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}
