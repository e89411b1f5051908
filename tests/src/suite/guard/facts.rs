//! What rules know of a process that the driver does not say: the account that its
//! job is charged to.

use super::{GIB, has_rules, records, violations};
use gpukill_tests::harness::{Actor, Daemon, Invented, Procfs, Ran, Stage, eventually};
use serde_json::{Value, json};
use std::process::Command;

/// The control group of a job of Slurm.
fn in_job(job: u32) -> String {
    format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0")
}

const IN_A_SESSION: &str = "0::/user.slice/user-1000.slice/session-3.scope";

/// A process with this in its environment.
fn charged(account: Option<&str>) -> Actor {
    let mut command = Command::new("sleep");
    command.arg("1000").env_remove("SLURM_JOB_ACCOUNT");
    if let Some(account) = account {
        command.env("SLURM_JOB_ACCOUNT", account);
    }
    Actor::of(&mut command)
}

/// Lets it be seen in another control group, with the environment that it has.
fn seen_in(procfs: &Procfs, actor: &Actor, uid: u32, cgroup: &str) {
    let pid = actor.pid();
    procfs.invent(Invented {
        pid,
        name: "python",
        uid,
        start_ticks: u64::from(pid),
        cmdline: "x\0",
        cgroup,
    });
    let environ = procfs.root().join(pid.to_string()).join("environ");
    std::os::unix::fs::symlink(format!("/proc/{pid}/environ"), environ).unwrap();
}

fn start_over(stage: &Stage, procfs: &Procfs) -> Daemon {
    let mut daemon = stage.daemon();
    stage.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()))
}

/// Some; before, the store may not be open yet.
fn samples_are_stored(stage: &Stage) {
    eventually("samples are stored", || {
        let ran = stage.ctl(&["audit", "-o", "json"]);
        let samples: Value = serde_json::from_str(&ran.stdout).ok()?;
        (samples["records"].as_array()?.len() > 2).then_some(())
    });
}

#[test]
fn a_job_is_held_to_what_is_said_of_the_account_that_it_names() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    let (ours, others) = (charged(Some("vision")), charged(Some("other")));
    let (silent, outside) = (charged(None), charged(Some("vision")));
    seen_in(&procfs, &ours, 1000, &in_job(7));
    seen_in(&procfs, &others, 1000, &in_job(8));
    seen_in(&procfs, &silent, 1001, &in_job(9));
    seen_in(&procfs, &outside, 1000, IN_A_SESSION);
    let processes = [&ours, &others, &silent, &outside];
    let processes = processes.map(|actor| json!({"pid": actor.pid(), "memory": 3 * GIB}));
    stage.play(&json!({"gpus": [{"memory": {"total": 80 * GIB}, "processes": processes}]}));
    has_rules(
        &stage,
        "[global]\ndefault_memory_limit_gb = 20\n\
         [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n\
         [group_policies.vision]\nslurm_accounts = ['vision']\nmemory_limit_gb = 2\n",
    );
    let daemon = start_over(&stage, &procfs);
    samples_are_stored(&stage);
    let fields = ["rule", "step", "evidence", "victim"];
    eventually("its job would be cancelled", || {
        (records(&violations(&stage), &fields).len() >= 3).then_some(())
    });
    let mut live = records(&violations(&stage), &fields);
    live.reverse();
    let told: Vec<Value> = live
        .iter()
        .map(|record| {
            let procs = record[2]["procs"].as_array().unwrap();
            let pids: Vec<&Value> = procs.iter().map(|it| &it["pid"]).collect();
            json!([record[0], record[1], pids, record[3]["leave_to"]])
        })
        .collect();
    let rule = "group vision: memory";
    let pids = [ours.pid()];
    assert_eq!(
        told,
        [
            json!([rule, "violated", pids, null]),
            json!([rule, "warned", pids, null]),
            json!([rule, "ended", pids, "scancel 7"]),
        ]
    );
    // What was stored says the same.
    eventually("a replay tells the same", || {
        let report = stage.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        (records(&report, &fields) == live).then_some(())
    });
    // Of who names none it is not known what they are held to.
    let report = stage.json(&["guard", "test", "-o", "json"]);
    let unknown = report["not_judged"].as_array().unwrap().iter();
    let unknown: Vec<&Value> = unknown.filter(|it| it["rule"] == rule).collect();
    let whys: Vec<&Value> = unknown.iter().map(|it| &it["why"]).collect();
    assert_eq!(whys, ["its account is what it says itself"]);
    daemon.stop();
}

#[test]
fn a_test_of_rules_looks_back_as_far_as_they_do_and_says_so() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    super::plays(&stage, &[(actor.pid(), GIB)]);
    let daemon = stage.start();
    samples_are_stored(&stage);
    let report = stage.json(&["guard", "test", "-o", "json"]);
    let since = report["since"].as_str().unwrap().to_owned();
    let screen = Ran::of(stage.client(&["guard", "test"]).env("TZ", "UTC"));
    let line = screen.stdout.lines().find(|it| it.starts_with("judged"));
    let expected = format!("judged from {} {} on", &since[..10], &since[11..19]);
    assert_eq!(line, Some(expected.as_str()));
    daemon.stop();
}
