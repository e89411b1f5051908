//! Soft: whoever is warned has a grace, may ask for more of it, and keeps it when the
//! daemon ends.

use super::{Box, JOB, all};
use gpukill_tests::harness::{
    Actor, Troupe, acting_as, becomes, can_act_as_others, eventually, is_over, user,
};
use serde_json::{Value, json};
use std::time::Duration;

const ALICE: u32 = user(101);
const BOB: u32 = user(102);

/// The newest record of this step, as soon as there is one.
fn newest(it: &Box, step: &str) -> Value {
    eventually(step, || {
        let document = super::violations(&it.stage);
        let records = document["records"].as_array().unwrap();
        records.iter().find(|it| it["step"] == step).cloned()
    })
}

/// Moments compare as they are written.
fn at<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap()
}

#[test]
fn the_owner_puts_an_end_off_as_often_as_the_rule_allows_and_nobody_else_does() {
    if !can_act_as_others() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\nsnooze_minutes = 0.05\n\
        [user_policies.{}]\nmemory_limit_gb = 8\n",
        rustix::process::geteuid().as_raw()
    );
    let Some(it) = Box::by(&rules) else { return };
    // What a troupe makes in the box's directory, root makes.
    drop(Troupe::run(&it.stage, "true"));
    let job = acting_as(ALICE, &[], || Troupe::run(&it.stage, JOB));
    let [launcher, worker] = job.pids();
    let harmless = Actor::start("python");
    it.driver.lists(&[worker, harmless.pid()]);
    let first = newest(&it, "warned");
    let pid = worker.to_string();
    let snooze = |uid: u32, pid: &str| {
        let ran = acting_as(uid, &[], || it.stage.ctl(&["guard", "snooze", pid]));
        (ran.code, ran.stderr)
    };
    assert_eq!(snooze(ALICE, &pid), (0, String::new()));
    let (code, why) = snooze(ALICE, &pid);
    let none_left = "more time was given as often as the rule allows";
    assert!(code == 4 && why.contains(none_left), "{code} {why}");
    let (code, why) = snooze(BOB, &pid);
    assert!(code == 4 && why.contains("it belongs to "), "{code} {why}");
    let (code, why) = snooze(0, &harmless.pid().to_string());
    assert!(
        code == 8 && why.contains("it breaks no rule"),
        "{code} {why}"
    );

    let steps = [
        "violated", "warned", "snoozed", "warned", "ended", "acted", "over",
    ];
    becomes(&all("soft", &steps), || it.steps());
    assert!(is_over(launcher) && is_over(worker) && !is_over(harmless.pid()));
    let (snoozed, ended) = (newest(&it, "snoozed"), newest(&it, "ended"));
    assert_eq!(snoozed["snoozes_left"], json!(0));
    assert!(
        at(&snoozed, "deadline") > at(&first, "deadline"),
        "{snoozed:#}"
    );
    assert!(
        at(&ended, "timestamp") >= at(&snoozed, "deadline"),
        "{ended:#}"
    );
    assert_eq!(it.acts(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}

#[test]
fn a_granted_snooze_holds_while_the_guard_is_off_and_over_a_restart() {
    if !can_act_as_others() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 4\nmax_warnings = 1\nsnooze_minutes = 0.5\n\
        [user_policies.{}]\nmemory_limit_gb = 8\n",
        rustix::process::geteuid().as_raw()
    );
    let Some(it) = Box::by(&rules) else { return };
    drop(Troupe::run(&it.stage, "true"));
    let job = acting_as(ALICE, &[], || Troupe::run(&it.stage, JOB));
    let [_, worker] = job.pids();
    it.driver.lists(&[worker]);
    newest(&it, "warned");
    let pid = worker.to_string();
    let ran = acting_as(ALICE, &[], || it.stage.ctl(&["guard", "snooze", &pid]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let snoozed = newest(&it, "snoozed");
    for mode in ["disable", "enforce"] {
        let ran = it.stage.ctl(&["guard", mode]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    it.daemon.stop();
    let daemon = it.stage.start();
    let it = Box { daemon, ..it };
    let ended = newest(&it, "ended");
    assert!(
        at(&ended, "timestamp") >= at(&snoozed, "deadline"),
        "{snoozed:#} {ended:#}"
    );
    it.daemon.stop();
}

#[test]
fn a_grace_goes_on_where_a_killed_daemon_left_it_and_ends_in_one_kill() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\n";
    let Some(it) = Box::by(rules) else { return };
    let job = Troupe::run(&it.stage, JOB);
    let [launcher, worker] = job.pids();
    it.driver.lists(&[worker]);
    let warned = newest(&it, "warned");
    // Decided is written down before anybody is told of it.
    eventually("it is kept", || {
        let kept = std::fs::read_to_string(it.stage.path("state/guard.json")).ok()?;
        kept.contains("\"deadline\":1").then_some(())
    });
    it.daemon.kill();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!is_over(worker));
    let daemon = it.stage.start();
    let it = Box { daemon, ..it };
    let steps = ["violated", "warned", "ended", "acted", "over"];
    becomes(&all("soft", &steps), || it.steps());
    assert!(is_over(launcher) && is_over(worker));
    let ended = newest(&it, "ended");
    assert!(
        at(&ended, "timestamp") >= at(&warned, "deadline"),
        "{ended:#}"
    );
    assert_eq!(it.acts(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}
