//! The guard ends jobs: warned first in soft, at once in enforce, the whole of them, and
//! told of by what came of it.

use super::{has_rules, violations};
use gpukill_tests::harness::{Daemon, Driver, Stage, Troupe, becomes, eventually, is_over, skip};
use serde_json::{Value, json};
use std::time::Duration;

/// How long the stand-in driver takes to give memory back.
const TEARDOWN: Duration = Duration::from_millis(300);

/// A launcher with a worker that uses the GPU, and starts it anew whenever it ends.
const JOB: &str =
    "launcher -c 'echo $$; while :; do worker 1000 & echo $!; wait $!; done' & wait; true";

/// A box with one GPU, a job on it that holds a GiB, and a daemon that may end it.
struct Box {
    driver: Driver,
    daemon: Daemon,
    stage: Stage,
    job: Troupe,
    launcher: u32,
    worker: u32,
}

impl Box {
    /// By these rules. `None` where the tests' own job would be ended.
    fn by(rules: &str) -> Option<Self> {
        let stage = Stage::new();
        stage.open_to_all();
        has_rules(&stage, rules);
        let driver = Driver::start(&stage, TEARDOWN);
        let daemon = stage.start();
        let job = Troupe::run(&stage, JOB);
        let [launcher, worker] = job.pids();
        let it = Self {
            driver,
            daemon,
            stage,
            job,
            launcher,
            worker,
        };
        it.is_of_its_own().then_some(it)
    }

    /// Whether its job is nobody's but its own, asked before the guard sees it.
    fn is_of_its_own(&self) -> bool {
        let worker = self.worker.to_string();
        let plan = [
            "kill",
            &worker,
            "--scope",
            "job",
            "--any-process",
            "--dry-run",
            "-o",
            "json",
        ];
        let ran = self.stage.ctl(&plan);
        let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
        let theirs = self.job.left();
        let targets = plan["targets"].as_array().unwrap();
        let is_own = |target: &Value| theirs.iter().any(|pid| target["pid"] == *pid);
        let is_theirs = targets.iter().all(is_own);
        if !is_theirs {
            skip("the tests run in a service or a container, which is the job of all of them");
        }
        is_theirs
    }

    /// What the guard decided by now: step and mode, the oldest first.
    fn steps(&self) -> Vec<Value> {
        let mut steps = super::records(&violations(&self.stage), &["step", "mode"]);
        steps.reverse();
        steps
    }

    /// The acts that are recorded: what was asked, and how it ended.
    fn acts(&self) -> Value {
        let acts = self.stage.json(&["audit", "actions", "-o", "json"]);
        let acts = acts["actions"].as_array().unwrap().iter();
        let kills = acts.filter(|act| act["kind"] == "kill");
        kills
            .map(|act| json!([act["what"], act["result"]]))
            .collect()
    }
}

#[test]
fn whoever_is_warned_and_goes_on_is_ended_with_the_whole_job() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 3\nmax_warnings = 1\n";
    let Some(it) = Box::by(rules) else { return };
    it.driver.lists(&[it.worker]);
    let steps = ["violated", "warned", "ended", "acted", "over"];
    let expected: Vec<Value> = steps.iter().map(|step| json!([step, "soft"])).collect();
    becomes(&expected, || it.steps());
    becomes(&Vec::new(), || it.job.left());
    assert!(is_over(it.launcher) && is_over(it.worker));
    let acted = eventually("it is told what came of it", || {
        let document = violations(&it.stage);
        let records = document["records"].as_array().unwrap();
        let acted = records.iter().find(|it| it["step"] == "acted")?;
        Some(json!([
            acted["outcome"]["ended"],
            acted["outcome"]["left"],
            acted["why"]
        ]))
    });
    assert_eq!(acted, json!([2, 0, null]));
    assert_eq!(it.acts(), json!([["guard: default: memory", "done"]]));
    it.daemon.stop();
}
