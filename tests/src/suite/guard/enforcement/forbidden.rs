//! Enforce mode: forbidden use ends at once, a dry run records the same decision, and the
//! circuit breaker stops the guard after too many ends.

use super::{GuardBox, RESPAWNING_JOB, steps_in_mode, wait_for_polls};
use gpukill_tests::harness::{
    NOBODY_UID, Script, can_run_as_other_users, eventually, eventually_equals, process_has_ended,
    run_as_user, skip, test_uid,
};
use serde_json::{Value, json};

/// Blocks the user who runs the tests, and [`OTHER`], from the GPU.
fn blocking_rules(global: &str, enforcement: &str) -> String {
    format!(
        "[global]\n{global}\n[enforcement]\n{enforcement}\n\
        [gpu_policies.0]\nblocked_users = [\"{}\", \"{OTHER}\"]\n",
        rustix::process::geteuid().as_raw()
    )
}

const OTHER: u32 = test_uid(144);

#[test]
fn dry_run_and_enforce_decide_alike() {
    let mut decisions = Vec::new();
    for (dry_run, mode) in [(true, "dry-run"), (false, "enforce")] {
        let rules = blocking_rules(
            &format!("dry_run = {dry_run}"),
            "soft_enforcement = false\nhard_enforcement = true",
        );
        let Some(it) = GuardBox::with_rules(&rules) else {
            return;
        };
        let job = Script::run(&it.test_box, RESPAWNING_JOB);
        let [launcher, worker] = job.next_pids();
        it.driver.add_processes(&[worker]);
        let steps: &[&str] = match dry_run {
            true => &["violated", "ended"],
            false => &["violated", "ended", "outcome", "over"],
        };
        eventually_equals(&steps_in_mode(mode, steps), || it.steps());
        wait_for_polls(&it.test_box);
        assert_eq!(it.steps(), steps_in_mode(mode, steps));
        assert_eq!(
            (process_has_ended(launcher), process_has_ended(worker)),
            (!dry_run, !dry_run)
        );
        let actions = match dry_run {
            true => json!([]),
            false => json!([["guard: gpu 0: user", "done"]]),
        };
        assert_eq!(it.kills(), actions);
        // The victim and the time of the decision.
        let document = super::guard_violations(&it.test_box);
        let of = |step: &str| {
            let mut records = document["records"].as_array().unwrap().iter();
            records.find(|it| it["step"] == step).unwrap()
        };
        let (violated, ended) = (of("violated"), of("ended"));
        assert_eq!(violated["timestamp"], ended["timestamp"], "{mode}");
        let victim = &ended["victim"];
        decisions.push(json!([
            ended["rule"],
            victim["procs"][0]["pid"] == worker,
            victim["procs"].as_array().map(Vec::len),
            victim["priority"],
            victim["leave_to"]
        ]));
        it.daemon.stop();
    }
    assert_eq!(decisions[0], decisions[1]);
    assert_eq!(decisions[0][1], json!(true), "{decisions:#?}");
}

#[test]
fn one_person_does_not_trip_the_breaker() {
    let rules = blocking_rules(
        "dry_run = false",
        "soft_enforcement = false\nhard_enforcement = true\nmax_ended_per_10_minutes = 3",
    );
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    let jobs: Vec<Script> = (0..6)
        .map(|_| Script::run(&it.test_box, RESPAWNING_JOB))
        .collect();
    let workers: Vec<u32> = jobs.iter().map(|job| job.next_pids::<2>()[1]).collect();
    it.driver.add_processes(&workers);
    eventually_equals(&0, || {
        workers
            .iter()
            .filter(|pid| !process_has_ended(**pid))
            .count()
    });
    let status = it.test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], Value::Null, "{status}");
    it.daemon.stop();
}

#[test]
fn breaker_stops_the_guard_until_reset() {
    let rules = blocking_rules(
        "dry_run = false",
        "soft_enforcement = false\nhard_enforcement = true\nmax_ended_per_10_minutes = 1",
    );
    if !can_run_as_other_users() {
        return;
    }
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    // The circuit breaker counts several persons; jobs of a single person do not trip it.
    let us = rustix::process::geteuid().as_raw();
    let jobs =
        [us, OTHER].map(|uid| run_as_user(uid, &[], || Script::run(&it.test_box, RESPAWNING_JOB)));
    let workers = [0, 1].map(|nth| jobs[nth].next_pids::<2>()[1]);
    it.driver.add_processes(&workers);
    let tripped = eventually("it stops", || {
        let status = it.test_box.json(&["guard", "status", "-o", "json"]);
        status["tripped_at"].as_str().map(str::to_owned)
    });
    eventually("one of them is ended", || {
        workers
            .iter()
            .any(|pid| process_has_ended(*pid))
            .then_some(())
    });
    let faults = || it.test_box.faults().into_iter().map(|(part, _)| part);
    eventually_equals(&vec!["guard".to_owned()], || faults().collect());
    wait_for_polls(&it.test_box);
    let left = || {
        workers
            .iter()
            .filter(|pid| !process_has_ended(**pid))
            .count()
    };
    assert_eq!(left(), 1);
    let count = |step: &str, mode: &str| {
        let steps = it.steps();
        steps
            .iter()
            .filter(|it| **it == json!([step, mode]))
            .count()
    };
    assert_eq!(
        (count("tripped", "enforce"), count("ended", "enforce")),
        (1, 1)
    );
    let shown = it.test_box.ctl(&["guard", "status"]).stdout;
    let stopped = shown
        .lines()
        .filter(|line| line.trim_start().starts_with("stopped"));
    assert_eq!(stopped.count(), 1, "{shown}");
    let shown = it.test_box.ctl(&["guard", "violations"]).stdout;
    let stopped = shown.lines().filter(|line| {
        line.starts_with("it ends no job since ")
            && line.ends_with(" an admin resumes it with gpukillctl guard enforce")
    });
    assert_eq!(stopped.count(), 1, "{shown}");
    assert!(!shown.contains("dry run"), "{shown}");
    // The record names the ended process, and the guard instead of root as its caller.
    let shown = it
        .test_box
        .ctl(&["audit", "actions", "--kind", "kill,reset"])
        .stdout;
    let actions: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains(" kill "))
        .collect();
    let [action] = actions[..] else {
        panic!("{shown}")
    };
    let words: Vec<&str> = action.split_whitespace().skip(2).take(4).collect();
    let ended = workers.map(|pid| pid.to_string());
    let ended = ended.iter().any(|pid| words == ["guard", "0", "kill", pid]);
    assert!(ended && action.contains(": gpu 0: user"), "{shown}");
    // A restart does not reset the circuit breaker.
    it.daemon.stop();
    let daemon = it.test_box.start();
    let it = GuardBox { daemon, ..it };
    wait_for_polls(&it.test_box);
    assert_eq!(left(), 1);
    let status = it.test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], json!(tripped));

    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin, who can resume enforcement");
    }
    let ran = |mode: &str| {
        let ran = it.test_box.ctl(&["guard", mode, "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    // The reason is the circuit breaker, not a dry run.
    let left_over = workers.into_iter().find(|pid| !process_has_ended(*pid));
    let left_over = left_over.map(|pid| pid.to_string()).unwrap_or_default();
    eventually("explain shows why it runs on", || {
        let shown = it.test_box.ctl(&["explain", &left_over, "--width", "400"]);
        let why = ": it runs on as the guard has stopped";
        shown.stdout.contains(why).then_some(())
    });
    let records = it
        .test_box
        .ctl(&["guard", "violations", "--width", "400"])
        .stdout;
    let restarted = "starts again: rules or mode changed, or it stopped";
    assert!(records.contains(restarted), "{records}");
    // A dry run of the command does not reset the circuit breaker.
    let plan = it.test_box.ctl(&["guard", "enforce", "--dry-run"]);
    let would = "warning: it would end jobs again: it is stopped: see ";
    assert!(plan.stderr.contains(would), "{plan:?}");
    assert!(!plan.stderr.contains("it ends jobs again"), "{plan:?}");
    // Dry-run mode does not reset the circuit breaker.
    let ran_dry = ran("dry-run");
    assert!(!ran_dry.stdout.contains("ends jobs again"), "{ran_dry:?}");
    assert!(!ran_dry.stderr.contains("ends jobs again"), "{ran_dry:?}");
    wait_for_polls(&it.test_box);
    let status = it.test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], json!(tripped));
    let ran = ran("enforce");
    // The command lists the processes that are affected by the reset.
    let again = "the guard is in mode enforce, and ends jobs again: it had stopped; it ends jobs \
        without a warning; for idleness and waste it warns first\nthese break rules now, and start again at the next sample\n";
    let (_, below) = ran
        .stdout
        .split_once(again)
        .unwrap_or_else(|| panic!("{ran:?}"));
    let row = below.lines().nth(1).unwrap_or_default();
    let is_listed = workers.iter().any(|pid| row.contains(&format!(" {pid} ")));
    assert!(is_listed && row.contains(" at the next sample "), "{ran:?}");
    eventually_equals(&0, left);
    eventually_equals(&Vec::<(String, String)>::new(), || it.test_box.faults());
    let status = it.test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], Value::Null);
    eventually_equals(&2, || it.kills().as_array().unwrap().len());
    it.daemon.stop();
}

#[test]
fn only_admins_change_the_mode() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(it) = GuardBox::with_rules("[global]\ndry_run = true\n") else {
        return;
    };
    let mode = || it.test_box.json(&["guard", "status", "-o", "json"])["mode"].clone();
    for asked in [
        "soft",
        "enforce",
        "dry-run",
        "enable",
        "disable",
        "toggle-dry-run",
    ] {
        let ran = run_as_user(NOBODY_UID, &[], || it.test_box.ctl(&["guard", asked]));
        let expected = "gpukillctl: cannot change the guard's rules\n\
             hint: ask root, or someone in group suite:admins\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (4, expected), "{asked}");
        assert_eq!(mode(), json!("dry-run"), "{asked}");
    }
    for (asked, then) in [
        ("soft", "soft"),
        ("enforce", "enforce"),
        ("dry-run", "dry-run"),
        ("soft", "soft"),
        ("disable", "disabled"),
    ] {
        let ran = it.test_box.ctl(&["guard", asked]);
        assert_eq!(ran.code, 0, "{ran:?}");
        eventually_equals(&json!(then), mode);
    }
    it.daemon.stop();
}
