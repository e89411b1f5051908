//! Reuse of a pid between the plan and the signal.

use super::{KillBox, is_in_test_namespaces};
use gpukill_tests::harness::{Terminal, eventually, skip};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The number of processes in one plan.
const PROCESSES_PER_PLAN: usize = 150;

/// The number of reused pids in a run of the suite; `GPUKILL_TRIES` overrides it.
const PID_REUSES: usize = 400;

/// The time limit in a run of the suite.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// An unrelated process that must survive. It ends when dropped.
struct Bystander(Child);

impl Bystander {
    fn start() -> Option<Self> {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()
            .map(Self)
    }

    /// Starts a process with this pid, unless another process takes the pid first.
    fn start_with_pid(pid: u32) -> Option<Self> {
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            let before = pid.checked_sub(1)?;
            std::fs::write("/proc/sys/kernel/ns_last_pid", before.to_string()).unwrap();
            let it = Self::start().filter(|it| it.0.id() == pid);
            if it.is_some() {
                return it;
            }
        }
        None
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn driver_state(pids: &[u32]) -> Value {
    let rows = pids
        .iter()
        .map(|pid| json!({"pid": pid, "memory": 1 << 20}));
    json!({"gpus": [{"processes": rows.collect::<Vec<_>>()}]})
}

/// Plans to end many processes and lets new processes take their pids: `early` pids before the
/// daemon starts the kill, the others during it. Returns the number of reused pids.
fn reuse_pids(it: &KillBox, early: usize) -> usize {
    let mut planned: Vec<Bystander> = (0..PROCESSES_PER_PLAN)
        .filter_map(|_| Bystander::start())
        .collect();
    planned.sort_by_key(|it| it.0.id());
    let pids: Vec<u32> = planned.iter().map(|it| it.0.id()).collect();
    // The driver continues to list the pids, also for their new owners.
    it.test_box.set_driver_state(&driver_state(&pids));
    eventually("the processes are listed", || {
        let list = it.test_box.list();
        let rows = list["procs"].as_array()?;
        let last = pids.last()?;
        (rows.len() == pids.len() && rows.iter().any(|row| row["pid"] == *last)).then_some(())
    });
    let client =
        it.test_box
            .client_command(&["kill", "--gpu", "0", "--batch", "--timeout-secs", "5"]);
    let mut terminal = Terminal::start(&client, 120, 40).expect("setsid is here");
    terminal.read_until("[y/N]");
    let mut successors = Vec::new();
    // From the last: signals are sent in ascending order of pids, so the two meet.
    while let Some(ended) = planned.pop() {
        if successors.len() == early {
            terminal.type_keys("y\n");
        }
        let pid = ended.0.id();
        drop(ended);
        successors.extend(Bystander::start_with_pid(pid));
        if planned.is_empty() && successors.len() < early {
            terminal.type_keys("y\n");
        }
    }
    let ran = terminal.wait();
    assert!([0, 7, 8].contains(&ran.code), "{ran:?}");
    for successor in &mut successors {
        assert!(
            successor.is_running(),
            "{} got a signal for another process",
            successor.0.id()
        );
    }
    successors.len()
}

#[test]
fn reused_pid_gets_no_signal() {
    if !is_in_test_namespaces("kill::pid_reuse::reused_pid_gets_no_signal") {
        return;
    }
    if std::fs::write("/proc/sys/kernel/ns_last_pid", "2000").is_err() {
        return skip("the next pid cannot be set here");
    }
    let it = KillBox::new();
    let wanted = std::env::var("GPUKILL_TRIES")
        .ok()
        .and_then(|it| it.parse().ok());
    let started_at = Instant::now();
    let (mut tries, mut rounds) = (0, 0);
    while tries < wanted.unwrap_or(PID_REUSES)
        && (wanted.is_some() || started_at.elapsed() < MAX_DURATION)
    {
        // With these numbers the reuse meets each step of the kill.
        let early = [0, 3, 20, 60, 100][rounds % 5];
        tries += reuse_pids(&it, early);
        rounds += 1;
    }
    let actions = super::recorded_actions(&it.test_box);
    let of = |ending: &str| -> usize {
        let outcomes = actions
            .iter()
            .flat_map(|action| action["outcome"]["outcomes"].as_array());
        outcomes
            .flatten()
            .filter(|it| it["outcome"] == ending)
            .count()
    };
    let (gone, ended) = (of("gone"), of("ended"));
    eprintln!(
        "{tries} pids were reused in {rounds} rounds: {gone} processes were gone, {ended} \
    were ended"
    );
    assert!(tries > 0 && gone > 0 && ended > 0, "{tries} {gone} {ended}");
}
