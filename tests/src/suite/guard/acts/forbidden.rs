//! Enforce: what is not allowed at all is ended at first sight, a dry run tells the same,
//! and before too many are ended the guard stops.

use super::{Box, JOB, all, goes_on};
use gpukill_tests::harness::{
    NOBODY, Troupe, acting_as, becomes, can_act_as_others, eventually, is_over, skip, user,
};
use serde_json::{Value, json};

/// Whoever runs the tests may not use the GPU, nor may [`OTHER`].
fn forbidden(global: &str, enforcement: &str) -> String {
    format!(
        "[global]\n{global}\n[enforcement]\n{enforcement}\n\
        [gpu_policies.0]\nblocked_users = [\"{}\", \"{OTHER}\"]\n",
        rustix::process::geteuid().as_raw()
    )
}

const OTHER: u32 = user(144);

#[test]
fn an_intruder_is_ended_at_first_sight_and_a_dry_run_tells_of_it_alike() {
    let mut told = Vec::new();
    for (dry_run, mode) in [(true, "dry-run"), (false, "enforce")] {
        let rules = forbidden(
            &format!("dry_run = {dry_run}"),
            "soft_enforcement = false\nhard_enforcement = true",
        );
        let Some(it) = Box::by(&rules) else { return };
        let job = Troupe::run(&it.stage, JOB);
        let [launcher, worker] = job.pids();
        it.driver.lists(&[worker]);
        let steps: &[&str] = match dry_run {
            true => &["violated", "ended"],
            false => &["violated", "ended", "acted", "over"],
        };
        becomes(&all(mode, steps), || it.steps());
        goes_on(&it.stage);
        assert_eq!(it.steps(), all(mode, steps));
        assert_eq!((is_over(launcher), is_over(worker)), (!dry_run, !dry_run));
        let acts = match dry_run {
            true => json!([]),
            false => json!([["guard: gpu 0: user", "done"]]),
        };
        assert_eq!(it.acts(), acts);
        // Who is to be ended, and when: at once.
        let document = super::violations(&it.stage);
        let of = |step: &str| {
            let mut records = document["records"].as_array().unwrap().iter();
            records.find(|it| it["step"] == step).unwrap()
        };
        let (violated, ended) = (of("violated"), of("ended"));
        assert_eq!(violated["timestamp"], ended["timestamp"], "{mode}");
        let victim = &ended["victim"];
        told.push(json!([
            ended["rule"],
            victim["procs"][0]["pid"] == worker,
            victim["procs"].as_array().map(Vec::len),
            victim["priority"],
            victim["leave_to"]
        ]));
        it.daemon.stop();
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0][1], json!(true), "{told:#?}");
}

#[test]
fn one_person_with_many_jobs_does_not_stop_the_guard() {
    let rules = forbidden(
        "dry_run = false",
        "soft_enforcement = false\nhard_enforcement = true\nmax_ended_per_10_minutes = 3",
    );
    let Some(it) = Box::by(&rules) else { return };
    let jobs: Vec<Troupe> = (0..6).map(|_| Troupe::run(&it.stage, JOB)).collect();
    let workers: Vec<u32> = jobs.iter().map(|job| job.pids::<2>()[1]).collect();
    it.driver.lists(&workers);
    becomes(&0, || workers.iter().filter(|pid| !is_over(**pid)).count());
    let status = it.stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], Value::Null, "{status}");
    it.daemon.stop();
}

#[test]
fn before_one_job_too_many_the_guard_stops_until_an_admin_says_that_it_goes_on() {
    let rules = forbidden(
        "dry_run = false",
        "soft_enforcement = false\nhard_enforcement = true\nmax_ended_per_10_minutes = 1",
    );
    if !can_act_as_others() {
        return;
    }
    let Some(it) = Box::by(&rules) else { return };
    // One person alone does not stop the guard.
    let us = rustix::process::geteuid().as_raw();
    let jobs = [us, OTHER].map(|uid| acting_as(uid, &[], || Troupe::run(&it.stage, JOB)));
    let workers = [0, 1].map(|nth| jobs[nth].pids::<2>()[1]);
    it.driver.lists(&workers);
    let tripped = eventually("it stops", || {
        let status = it.stage.json(&["guard", "status", "-o", "json"]);
        status["tripped_at"].as_str().map(str::to_owned)
    });
    eventually("one of them is ended", || {
        workers.iter().any(|pid| is_over(*pid)).then_some(())
    });
    let faults = || it.stage.faults().into_iter().map(|(part, _)| part);
    becomes(&vec!["guard".to_owned()], || faults().collect());
    goes_on(&it.stage);
    let left = || workers.iter().filter(|pid| !is_over(**pid)).count();
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
    let shown = it.stage.ctl(&["guard", "status"]).stdout;
    let stopped = shown
        .lines()
        .filter(|line| line.trim_start().starts_with("stopped"));
    assert_eq!(stopped.count(), 1, "{shown}");
    let shown = it.stage.ctl(&["guard", "violations"]).stdout;
    let stopped = shown.lines().filter(|line| {
        line.starts_with("it ends nobody since ")
            && line.ends_with(" an admin has it go on with gpukillctl guard enforce")
    });
    assert_eq!(stopped.count(), 1, "{shown}");
    assert!(!shown.contains("dry run"), "{shown}");
    // Whom it ended, and that it was not root who asked.
    let shown = it
        .stage
        .ctl(&["audit", "actions", "--kind", "kill,reset"])
        .stdout;
    let acts: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains(" kill "))
        .collect();
    let [act] = acts[..] else { panic!("{shown}") };
    let words: Vec<&str> = act.split_whitespace().skip(2).take(4).collect();
    let ended = workers.map(|pid| pid.to_string());
    let ended = ended.iter().any(|pid| words == ["guard", "0", "kill", pid]);
    assert!(ended && act.contains(": gpu 0: user"), "{shown}");
    // Nor does it go on for being started anew.
    it.daemon.stop();
    let daemon = it.stage.start();
    let it = Box { daemon, ..it };
    goes_on(&it.stage);
    assert_eq!(left(), 1);
    let status = it.stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], json!(tripped));

    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin, who can say that it goes on");
    }
    let ran = |mode: &str| {
        let ran = it.stage.ctl(&["guard", mode]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    // It is no dry run that keeps the other job.
    let left_over = workers.into_iter().find(|pid| !is_over(*pid));
    let left_over = left_over.map(|pid| pid.to_string()).unwrap_or_default();
    eventually("explain says why it runs on", || {
        let shown = it.stage.ctl(&["explain", &left_over, "--width", "400"]);
        let why = ": it runs on as the guard has stopped";
        shown.stdout.contains(why).then_some(())
    });
    let records = it
        .stage
        .ctl(&["guard", "violations", "--width", "400"])
        .stdout;
    let anew = "begins anew: rules or mode changed, or it stopped";
    assert!(records.contains(anew), "{records}");
    // A plan starts nothing.
    let plan = it.stage.ctl(&["guard", "enforce", "--dry-run"]);
    let would = "gpukillctl: it would end jobs again: it has stopped: see ";
    assert!(plan.stderr.contains(would), "{plan:?}");
    assert!(!plan.stderr.contains("it ends jobs again"), "{plan:?}");
    // Nobody is ended by this: it has stopped still.
    let told = ran("dry-run");
    assert!(!told.stdout.contains("ends jobs again"), "{told:?}");
    assert!(!told.stderr.contains("ends jobs again"), "{told:?}");
    goes_on(&it.stage);
    let status = it.stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], json!(tripped));
    let ran = ran("enforce");
    // Whoever is there still is affected, and it is not said that nothing changes.
    let again = "the guard is in mode enforce, and ends jobs again: it had stopped; it ends jobs \
        without a warning; for idleness and waste it warns first\nthese break rules now, and begin anew at the next sample\n";
    let (_, below) = ran
        .stdout
        .split_once(again)
        .unwrap_or_else(|| panic!("{ran:?}"));
    let row = below.lines().nth(1).unwrap_or_default();
    let is_told = workers.iter().any(|pid| row.contains(&format!(" {pid} ")));
    assert!(is_told && row.contains(" at the next sample "), "{ran:?}");
    becomes(&0, left);
    becomes(&Vec::<(String, String)>::new(), || it.stage.faults());
    let status = it.stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["tripped_at"], Value::Null);
    becomes(&2, || it.acts().as_array().unwrap().len());
    it.daemon.stop();
}

#[test]
fn only_admins_say_how_far_the_guard_goes() {
    if !can_act_as_others() {
        return;
    }
    let Some(it) = Box::by("[global]\ndry_run = true\n") else {
        return;
    };
    let mode = || it.stage.json(&["guard", "status", "-o", "json"])["mode"].clone();
    for asked in [
        "soft",
        "enforce",
        "dry-run",
        "enable",
        "disable",
        "toggle-dry-run",
    ] {
        let ran = acting_as(NOBODY, &[], || it.stage.ctl(&["guard", asked]));
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
        let ran = it.stage.ctl(&["guard", asked]);
        assert_eq!(ran.code, 0, "{ran:?}");
        becomes(&json!(then), mode);
    }
    it.daemon.stop();
}
