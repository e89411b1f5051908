//! Enforcement: soft mode ends a job after a warning, enforce mode ends it at once. The whole
//! job ends, and the guard records the outcome.

mod changing_identity;
mod disk_full;
mod forbidden;
mod grace_period;
mod ignored_sigterm;
mod impostors;
mod interrupted;
mod journal;
mod lost_gpu;
mod newcomers;
mod obstacles;
mod passed_descriptor;
mod pid_reuse;
mod rogues;
mod services;
mod shared_container;
mod stale_readings;
mod survivors;
mod terminal_warning;
mod timeline;

use super::{guard_violations, write_rules};
use gpukill_tests::harness::{
    Daemon, FakeDriver, Script, TestBox, eventually, eventually_equals, process_has_ended, skip,
};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long the simulated driver takes to release memory.
const MEMORY_RELEASE_TIME: Duration = Duration::from_millis(300);

/// A launcher that restarts its worker whenever it ends. Prints the pids of both.
const RESPAWNING_JOB: &str =
    "launcher -c 'echo $$; while :; do worker 1000 & echo $!; wait $!; done' & wait; true";

/// A box with one GPU and a daemon that may end jobs.
struct GuardBox {
    driver: FakeDriver,
    daemon: Daemon,
    test_box: TestBox,
}

impl GuardBox {
    /// Starts a daemon with these rules. Returns `None` where it would end the tests' own job.
    fn with_rules(rules: &str) -> Option<Self> {
        let test_box = Self::test_box_with_rules(rules)?;
        let mut daemon = test_box.daemon_command();
        Some(Self::start(test_box, &mut daemon))
    }

    /// A box with these rules, without a daemon.
    fn test_box_with_rules(rules: &str) -> Option<TestBox> {
        if !tests_are_separate_jobs() {
            return None;
        }
        let test_box = TestBox::new();
        test_box.make_world_accessible();
        write_rules(&test_box, rules);
        Some(test_box)
    }

    /// Starts this command as the daemon.
    fn start(test_box: TestBox, daemon: &mut Command) -> Self {
        Self {
            driver: FakeDriver::start(&test_box, MEMORY_RELEASE_TIME),
            daemon: test_box.start_with(daemon),
            test_box,
        }
    }

    fn steps(&self) -> Vec<Value> {
        guard_steps(&self.test_box)
    }

    fn kills(&self) -> Value {
        recorded_kills(&self.test_box)
    }

    fn outcome(&self) -> Value {
        last_outcome(&self.test_box)
    }
}

/// The decisions of the guard so far: step and mode, oldest first.
fn guard_steps(test_box: &TestBox) -> Vec<Value> {
    let mut steps = super::record_fields(&guard_violations(test_box), &["step", "mode"]);
    steps.reverse();
    // On a busy machine a sample may find the job gone before its memory is released.
    for at in 1..steps.len() {
        if steps[at - 1][0] == "over" && steps[at][0] == "outcome" {
            steps.swap(at - 1, at);
        }
    }
    steps
}

/// These steps, all in this mode.
fn steps_in_mode(mode: &str, steps: &[&str]) -> Vec<Value> {
    steps.iter().map(|step| json!([step, mode])).collect()
}

/// The recorded kills of a box: request and result.
fn recorded_kills(test_box: &TestBox) -> Value {
    let actions = test_box.json(&["audit", "actions", "-o", "json"]);
    let actions = actions["actions"].as_array().unwrap().iter();
    let kills = actions.filter(|action| action["kind"] == "kill");
    kills
        .map(|action| json!([action["what"], action["result"]]))
        .collect()
}

/// Waits for the outcome of the last enforcement: how many processes ended, how many are left,
/// and why.
fn last_outcome(test_box: &TestBox) -> Value {
    eventually("the outcome is recorded", || {
        let document = guard_violations(test_box);
        let records = document["records"].as_array().unwrap();
        let outcome = records.iter().find(|it| it["step"] == "outcome")?;
        Some(json!([
            outcome["outcome"]["ended"],
            outcome["outcome"]["left"],
            outcome["why"]
        ]))
    })
}

/// Waits for several polls and their samples.
fn wait_for_polls(test_box: &TestBox) {
    let polls = || test_box.json(&["status", "-o", "json"])["polls"].as_u64();
    let before = polls();
    eventually("some polls", || (polls()? > before? + 6).then_some(()));
}

/// Whether a process that a test starts is a job of its own. In a service or container all
/// tests are one job. Checked once, on a box without rules.
fn tests_are_separate_jobs() -> bool {
    static ARE: OnceLock<bool> = OnceLock::new();
    let are = *ARE.get_or_init(|| {
        let test_box = TestBox::new();
        let driver = FakeDriver::start(&test_box, MEMORY_RELEASE_TIME);
        let _daemon = test_box.start();
        let job = Script::run(&test_box, RESPAWNING_JOB);
        let [_, worker] = job.next_pids();
        driver.add_processes(&[worker]);
        let worker = worker.to_string();
        let ask = ["kill", &worker, "--scope", "job", "--dry-run", "-o", "json"];
        let plan = eventually("the process is listed on the GPU", || {
            let plan: Value = serde_json::from_str(&test_box.ctl(&ask).stdout).ok()?;
            plan["targets"].is_array().then_some(plan)
        });
        let own_pids = job.running_pids();
        let mut targets = plan["targets"].as_array().unwrap().iter();
        targets.all(|target| own_pids.iter().any(|pid| target["pid"] == *pid))
    });
    if !are {
        skip("the tests run in a service or a container, which is the job of all of them");
    }
    are
}

#[test]
fn soft_mode_warns_then_ends_the_job() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 3\nmax_warnings = 1\n";
    let Some(it) = GuardBox::with_rules(rules) else {
        return;
    };
    let job = Script::run(&it.test_box, RESPAWNING_JOB);
    let [launcher, worker] = job.next_pids();
    it.driver.add_processes(&[worker]);
    let steps = ["violated", "warned", "ended", "outcome", "over"];
    eventually_equals(&steps_in_mode("soft", &steps), || it.steps());
    eventually_equals(&Vec::new(), || job.running_pids());
    assert!(process_has_ended(launcher) && process_has_ended(worker));
    assert_eq!(it.outcome(), json!([2, 0, null]));
    assert_eq!(it.kills(), json!([["guard: default: memory", "done"]]));
    let counters = it.test_box.json(&["status", "-o", "json"])["counters"].clone();
    assert_eq!(
        counters["actions"],
        json!([{"kind": "guard_end", "result": "done", "count": 1}])
    );
    for decision in ["warned", "selected", "ended"] {
        let counted = json!({"decision": decision, "count": 1});
        let decisions = counters["decisions"].as_array().unwrap();
        assert!(decisions.contains(&counted), "{counters}");
    }
    it.daemon.stop();
}
