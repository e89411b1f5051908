//! Pids that another process gets between a plan and its signals.

use super::{Box, is_inside};
use gpukill_tests::harness::{Terminal, eventually, skip};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So many are planned at once.
const AT_ONCE: usize = 150;

/// So many pids change hands in a run of the suite; `GPUKILL_TRIES` says another
/// number.
const TRIES: usize = 400;

/// A run of the suite takes no longer for it.
const LONGEST: Duration = Duration::from_secs(60);

/// A process that somebody else wants to keep. Ends when dropped.
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

    /// One with this pid, unless somebody else gets it first.
    fn with(pid: u32) -> Option<Self> {
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

    fn is_well(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listing(pids: &[u32]) -> Value {
    let rows = pids
        .iter()
        .map(|pid| json!({"pid": pid, "memory": 1 << 20}));
    json!({"gpus": [{"processes": rows.collect::<Vec<_>>()}]})
}

/// Plans to end many, and lets others have their pids: `early` of them before the
/// daemon begins, the rest while it does. How many got a pid.
fn round(it: &Box, early: usize) -> usize {
    let mut planned: Vec<Bystander> = (0..AT_ONCE).filter_map(|_| Bystander::start()).collect();
    planned.sort_by_key(|it| it.0.id());
    let pids: Vec<u32> = planned.iter().map(|it| it.0.id()).collect();
    // The driver goes on to list them, whoever has them.
    it.stage.play(&listing(&pids));
    eventually("they are listed", || {
        let list = it.stage.list();
        let rows = list["procs"].as_array()?;
        let last = pids.last()?;
        (rows.len() == pids.len() && rows.iter().any(|row| row["pid"] == *last)).then_some(())
    });
    let client = it
        .stage
        .client(&["kill", "--gpu", "0", "--batch", "--timeout-secs", "5"]);
    let mut terminal = Terminal::start(&client, 120, 40).expect("setsid is here");
    terminal.until("[y/N]");
    let mut heirs = Vec::new();
    // The last first: signals are sent in the order of pids, and meet them.
    while let Some(ended) = planned.pop() {
        if heirs.len() == early {
            terminal.types("y\n");
        }
        let pid = ended.0.id();
        drop(ended);
        heirs.extend(Bystander::with(pid));
        if planned.is_empty() && heirs.len() < early {
            terminal.types("y\n");
        }
    }
    let ran = terminal.end();
    assert!([0, 7, 8].contains(&ran.code), "{ran:?}");
    for heir in &mut heirs {
        assert!(
            heir.is_well(),
            "{} got a signal that was meant for another",
            heir.0.id()
        );
    }
    heirs.len()
}

#[test]
fn whoever_gets_the_pid_of_a_planned_process_gets_no_signal() {
    if !is_inside("acting::recycled::whoever_gets_the_pid_of_a_planned_process_gets_no_signal") {
        return;
    }
    if std::fs::write("/proc/sys/kernel/ns_last_pid", "2000").is_err() {
        return skip("which pid comes next cannot be said here");
    }
    let it = Box::new();
    let wanted = std::env::var("GPUKILL_TRIES")
        .ok()
        .and_then(|it| it.parse().ok());
    let begun = Instant::now();
    let (mut tries, mut rounds) = (0, 0);
    while tries < wanted.unwrap_or(TRIES) && (wanted.is_some() || begun.elapsed() < LONGEST) {
        // From all of them early to none: the daemon is met in each of its steps.
        let early = [0, 3, 20, 60, 100][rounds % 5];
        tries += round(&it, early);
        rounds += 1;
    }
    let acts = super::recorded(&it.stage);
    let of = |ending: &str| -> usize {
        let outcomes = acts
            .iter()
            .flat_map(|act| act["outcome"]["outcomes"].as_array());
        outcomes
            .flatten()
            .filter(|it| it["ending"] == ending)
            .count()
    };
    let (gone, ended) = (of("gone"), of("ended"));
    eprintln!("{tries} pids changed hands in {rounds} rounds: {gone} were gone, {ended} had ended");
    assert!(tries > 0 && gone > 0 && ended > 0, "{tries} {gone} {ended}");
}
