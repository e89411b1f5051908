//! The guard ends jobs: warned first in soft, at once in enforce, the whole of them, and
//! told of by what came of it.

mod forbidden;

mod fresh;

mod full;

mod hindered;

mod impostors;

mod interrupted;

mod journal;

mod lost;

mod newcomers;

mod numbers;

mod passed;

mod reused;

mod rogues;

mod shared;

mod services;

mod stubborn;

mod survivors;

mod told;

mod warned;

use super::{has_rules, violations};
use gpukill_tests::harness::{Daemon, Driver, Stage, Troupe, becomes, eventually, is_over, skip};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long the stand-in driver takes to give memory back.
const TEARDOWN: Duration = Duration::from_millis(300);

/// A launcher with a worker that uses the GPU, and starts it anew whenever it ends. Says
/// the pids of both.
const JOB: &str =
    "launcher -c 'echo $$; while :; do worker 1000 & echo $!; wait $!; done' & wait; true";

/// A box with one GPU, and a daemon that may end jobs there.
struct Box {
    driver: Driver,
    daemon: Daemon,
    stage: Stage,
}

impl Box {
    /// By these rules. `None` where the tests' own job would be ended.
    fn by(rules: &str) -> Option<Self> {
        let stage = Self::stage(rules)?;
        let mut daemon = stage.daemon();
        Some(Self::of(stage, &mut daemon))
    }

    /// A box with these rules, and no daemon yet.
    fn stage(rules: &str) -> Option<Stage> {
        if !jobs_are_their_own() {
            return None;
        }
        let stage = Stage::new();
        stage.open_to_all();
        has_rules(&stage, rules);
        Some(stage)
    }

    /// Whose daemon is this command.
    fn of(stage: Stage, daemon: &mut Command) -> Self {
        Self {
            driver: Driver::start(&stage, TEARDOWN),
            daemon: stage.start_with(daemon),
            stage,
        }
    }

    /// What the guard decided by now: step and mode, the oldest first.
    fn steps(&self) -> Vec<Value> {
        steps(&self.stage)
    }

    /// The acts that are recorded.
    fn acts(&self) -> Value {
        acts(&self.stage)
    }

    /// What the guard says of what came of it, as soon as it does.
    fn acted(&self) -> Value {
        acted(&self.stage)
    }
}

/// What the guard of a box decided by now: step and mode, the oldest first.
fn steps(stage: &Stage) -> Vec<Value> {
    let mut steps = super::records(&violations(stage), &["step", "mode"]);
    steps.reverse();
    // On a busy machine a sample may see that the job is gone before its memory is back.
    for at in 1..steps.len() {
        if steps[at - 1][0] == "over" && steps[at][0] == "acted" {
            steps.swap(at - 1, at);
        }
    }
    steps
}

/// These steps, all in this mode.
fn all(mode: &str, steps: &[&str]) -> Vec<Value> {
    steps.iter().map(|step| json!([step, mode])).collect()
}

/// The acts that are recorded on a box: what was asked, and how it ended.
fn acts(stage: &Stage) -> Value {
    let acts = stage.json(&["audit", "actions", "-o", "json"]);
    let acts = acts["actions"].as_array().unwrap().iter();
    let kills = acts.filter(|act| act["kind"] == "kill");
    kills
        .map(|act| json!([act["what"], act["result"]]))
        .collect()
}

/// What the guard of a box says of what came of the job that it ended last, as soon as it
/// does: how many processes ended, how many are left, and why.
fn acted(stage: &Stage) -> Value {
    eventually("it is told what came of it", || {
        let document = violations(stage);
        let records = document["records"].as_array().unwrap();
        let acted = records.iter().find(|it| it["step"] == "acted")?;
        Some(json!([
            acted["outcome"]["ended"],
            acted["outcome"]["left"],
            acted["why"]
        ]))
    })
}

/// Waits until some samples more have been judged.
fn goes_on(stage: &Stage) {
    let polls = || stage.json(&["status", "-o", "json"])["polls"].as_u64();
    let before = polls();
    eventually("some polls", || (polls()? > before? + 6).then_some(()));
}

/// Whether what tests start is a job of its own, and not a part of one that all tests
/// are in. Looked at once, where there are no rules.
fn jobs_are_their_own() -> bool {
    static ARE: OnceLock<bool> = OnceLock::new();
    let are = *ARE.get_or_init(|| {
        let stage = Stage::new();
        let driver = Driver::start(&stage, TEARDOWN);
        let _daemon = stage.start();
        let job = Troupe::run(&stage, JOB);
        let [_, worker] = job.pids();
        driver.lists(&[worker]);
        let worker = worker.to_string();
        let ask = ["kill", &worker, "--scope", "job", "--dry-run", "-o", "json"];
        let plan = eventually("it is known to use the GPU", || {
            let plan: Value = serde_json::from_str(&stage.ctl(&ask).stdout).ok()?;
            plan["targets"].is_array().then_some(plan)
        });
        let theirs = job.left();
        let mut targets = plan["targets"].as_array().unwrap().iter();
        targets.all(|target| theirs.iter().any(|pid| target["pid"] == *pid))
    });
    if !are {
        skip("the tests run in a service or a container, which is the job of all of them");
    }
    are
}

#[test]
fn whoever_is_warned_and_goes_on_is_ended_with_the_whole_job() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 3\nmax_warnings = 1\n";
    let Some(it) = Box::by(rules) else { return };
    let job = Troupe::run(&it.stage, JOB);
    let [launcher, worker] = job.pids();
    it.driver.lists(&[worker]);
    let steps = ["violated", "warned", "ended", "acted", "over"];
    becomes(&all("soft", &steps), || it.steps());
    becomes(&Vec::new(), || job.left());
    assert!(is_over(launcher) && is_over(worker));
    assert_eq!(it.acted(), json!([2, 0, null]));
    assert_eq!(it.acts(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}
