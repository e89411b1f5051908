//! Ends processes: real ones, by the real daemon and the real client. The driver
//! is a stand-in that forgets who has ended, as drivers do.

mod one;

mod families;

pub(crate) mod numbers;

mod access;

mod protected;

mod impostors;

mod asking;

mod outside;

mod interrupted;

mod frozen;

mod recycled;

pub(crate) mod reexec;

mod bomb;

mod fuse;

mod many;

mod stopped;

mod zombies;

use gpukill_tests::harness::{Daemon, Driver, Ran, Stage, eventually, skip};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// How long the stand-in driver takes to give memory back.
const TEARDOWN: Duration = Duration::from_millis(300);

/// A box with one GPU, and its daemon.
struct Box {
    driver: Driver,
    daemon: Daemon,
    stage: Stage,
}

impl Box {
    fn new() -> Self {
        Self::configured("")
    }

    /// With these settings besides.
    fn configured(more: &str) -> Self {
        let stage = Stage::new();
        stage.open_to_all();
        stage.configure(more);
        let daemon = stage.daemon();
        Self::of(stage, daemon)
    }

    /// Whose daemon is this command.
    fn of(stage: Stage, mut daemon: Command) -> Self {
        Self {
            driver: Driver::start(&stage, TEARDOWN),
            daemon: stage.start_with(&mut daemon),
            stage,
        }
    }

    /// Lets these use the GPU, and waits until the daemon knows.
    fn lists(&self, pids: &[u32]) {
        self.driver.lists(pids);
        eventually("they are listed", || {
            let list = self.stage.list();
            let rows = list["procs"].as_array().unwrap();
            let is_there = |pid: &u32| rows.iter().any(|row| row["pid"] == *pid);
            pids.iter().all(is_there).then_some(())
        });
    }

    /// What `kill` with these arguments says to people.
    fn says(&self, arguments: &[&str]) -> Ran {
        self.stage.ctl(&[&["kill"], arguments].concat())
    }

    /// Its exit code, and what it says to programs.
    fn kill(&self, arguments: &[&str]) -> (i32, Value) {
        document(&self.says(&[arguments, &["-o", "json"]].concat()))
    }

    /// The newest act that is recorded, once it is settled: the report is told
    /// before that.
    fn recorded(&self) -> Value {
        eventually("the act is settled", || {
            let act = recorded(&self.stage).pop()?;
            (!act["word"].is_null()).then_some(act)
        })
    }
}

/// All acts that are recorded, oldest first.
fn recorded(stage: &Stage) -> Vec<Value> {
    let database = rusqlite::Connection::open(stage.path("state/audit.db")).unwrap();
    let mut statement = database
        .prepare("SELECT kind, uid, word, why, asked, plan, outcome FROM action ORDER BY id")
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
            "word": text(2)?,
            "why": text(3)?,
            "asked": text(4)?,
            "plan": document(text(5)?),
            "outcome": document(text(6)?),
        }))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The exit code and the document of a client that printed one.
fn document(ran: &Ran) -> (i32, Value) {
    let document = serde_json::from_str(&ran.stdout);
    (
        ran.code,
        document.unwrap_or_else(|error| panic!("{error}: {ran:?}")),
    )
}

/// What became of each: pid, ending and signal.
fn endings(report: &Value) -> Value {
    let outcomes = report["outcomes"].as_array();
    let outcomes = outcomes.unwrap_or_else(|| panic!("{report:#}"));
    outcomes
        .iter()
        .map(|it| json!([it["pid"], it["ending"], it["signal"]]))
        .collect()
}

/// All of these, by pid, so ended.
fn all(pids: &[u32], ending: &str, signal: &str) -> Value {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.iter()
        .map(|pid| json!([pid, ending, signal]))
        .collect()
}

/// Whom a plan ends, by pid.
fn ended(plan: &Value) -> Vec<u32> {
    fated(plan, "end")
}

/// Who has this fate in a plan, by pid.
fn fated(plan: &Value, fate: &str) -> Vec<u32> {
    let targets = plan["targets"].as_array();
    let targets = targets.unwrap_or_else(|| panic!("{plan:#}"));
    let pids = targets.iter().filter(|it| it["fate"] == fate);
    pids.map(|it| u32::try_from(it["pid"].as_u64().unwrap()).unwrap())
        .collect()
}

fn sorted<const N: usize>(mut pids: [u32; N]) -> [u32; N] {
    pids.sort_unstable();
    pids
}

/// Set for a test that was begun again.
const INSIDE: &str = "GPUKILL_TEST_INSIDE";

/// Whether this is the inside of PID and mount namespaces of their own. Outside it
/// runs the test of this name there, which it has to pass; only root can, and
/// where it cannot that is said.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
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
        .env(INSIDE, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("1 passed"), "{said}\n{complained}");
    false
}
