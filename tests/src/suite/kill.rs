//! Kills of real processes by the real daemon and the real client. A simulated driver forgets
//! ended processes, as drivers do.

mod access;
pub(crate) mod changing_uids;
mod consent;
mod foreign_pids;
mod fork_bomb;
mod fuse;
mod impostors;
mod interrupted;
mod many_processes;
mod pid_reuse;
mod protected;
pub(crate) mod reexec;
mod scopes;
mod single_process;
mod stop_before_kill;
mod stopped_recovery;

use gpukill_tests::harness::{CommandOutput, Daemon, FakeDriver, TestBox, eventually, skip};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// How long the simulated driver takes to release memory.
const MEMORY_RELEASE_TIME: Duration = Duration::from_millis(300);

/// A box with one GPU and its daemon.
struct KillBox {
    driver: FakeDriver,
    daemon: Daemon,
    test_box: TestBox,
}

impl KillBox {
    fn new() -> Self {
        Self::with_settings("")
    }

    /// Starts the daemon with these additional settings.
    fn with_settings(more: &str) -> Self {
        let test_box = TestBox::new();
        test_box.make_world_accessible();
        test_box.configure(more);
        let daemon = test_box.daemon_command();
        Self::start(test_box, daemon)
    }

    /// Starts this command as the daemon.
    fn start(test_box: TestBox, mut daemon: Command) -> Self {
        Self {
            driver: FakeDriver::start(&test_box, MEMORY_RELEASE_TIME),
            daemon: test_box.start_with(&mut daemon),
            test_box,
        }
    }

    /// Puts processes on the GPU and waits until the daemon lists them.
    fn add_gpu_processes(&self, pids: &[u32]) {
        self.driver.add_processes(pids);
        eventually("the processes are listed", || {
            let list = self.test_box.list();
            let rows = list["procs"].as_array().unwrap();
            let is_there = |pid: &u32| rows.iter().any(|row| row["pid"] == *pid);
            pids.iter().all(is_there).then_some(())
        });
    }

    /// The output of `kill` for people.
    fn kill_output(&self, arguments: &[&str]) -> CommandOutput {
        self.test_box.ctl(&[&["kill"], arguments].concat())
    }

    /// The exit code of `kill` and its JSON document.
    fn kill_json(&self, arguments: &[&str]) -> (i32, Value) {
        parse_output(&self.kill_output(&[arguments, &["-o", "json"]].concat()))
    }

    /// The newest recorded action, once it is settled: the client's report may come before
    /// that.
    fn newest_action(&self) -> Value {
        eventually("the action is settled", || {
            let action = recorded_actions(&self.test_box).pop()?;
            (!action["result"].is_null()).then_some(action)
        })
    }
}

/// All recorded actions, oldest first.
fn recorded_actions(test_box: &TestBox) -> Vec<Value> {
    let database = crate::store::open_database(test_box, "audit.db");
    let mut statement = database
        .prepare("SELECT kind, uid, result, reason, request, plan, outcome FROM action ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| {
        let text = |at| row.get::<_, Option<String>>(at);
        let document = |text: Option<String>| {
            text.filter(|text| !text.is_empty())
                .map(|text| serde_json::from_str::<Value>(&text).unwrap())
        };
        Ok(json!({
            "kind": text(0)?,
            "uid": row.get::<_, Option<u32>>(1)?,
            "result": text(2)?,
            "reason": text(3)?,
            "request": text(4)?,
            "plan": document(text(5)?),
            "outcome": document(text(6)?),
        }))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The exit code of a client and the JSON document that it printed.
fn parse_output(ran: &CommandOutput) -> (i32, Value) {
    let document = serde_json::from_str(&ran.stdout);
    (
        ran.code,
        document.unwrap_or_else(|error| panic!("{error}: {ran:?}")),
    )
}

/// The outcomes of a report: pid, ending and signal.
fn outcomes(report: &Value) -> Value {
    let outcomes = report["outcomes"].as_array();
    let outcomes = outcomes.unwrap_or_else(|| panic!("{report:#}"));
    outcomes
        .iter()
        .map(|it| json!([it["pid"], it["outcome"], it["signal"]]))
        .collect()
}

/// The outcomes of processes that all end in the same way, by pid.
fn all_with_ending(pids: &[u32], ending: &str, signal: &str) -> Value {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.iter()
        .map(|pid| json!([pid, ending, signal]))
        .collect()
}

/// The pids that a plan ends.
fn planned_pids(plan: &Value) -> Vec<u32> {
    pids_with_action(plan, "end")
}

/// The pids with this planned action.
fn pids_with_action(plan: &Value, action: &str) -> Vec<u32> {
    let targets = plan["targets"].as_array();
    let targets = targets.unwrap_or_else(|| panic!("{plan:#}"));
    let pids = targets.iter().filter(|it| it["planned_action"] == action);
    pids.map(|it| u32::try_from(it["pid"].as_u64().unwrap()).unwrap())
        .collect()
}

fn sorted<const N: usize>(mut pids: [u32; N]) -> [u32; N] {
    pids.sort_unstable();
    pids
}

/// The environment variable of a test that runs itself again in new namespaces.
const INSIDE_VARIABLE: &str = "GPUKILL_TEST_INSIDE";

/// Whether this process runs in its own PID and mount namespaces. Outside of them, runs the
/// named test in new namespaces and requires that it passes. Only root can do that; reports the
/// skip otherwise.
pub(crate) fn is_in_test_namespaces(test: &str) -> bool {
    if std::env::var_os(INSIDE_VARIABLE).is_some() {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|it| it.success()) {
        skip("no PID namespace can be made here");
        return false;
    }
    let mut again = unshare();
    again.arg(std::env::current_exe().unwrap());
    again
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE_VARIABLE, "1");
    let output = again.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}\n{stderr}");
    false
}
