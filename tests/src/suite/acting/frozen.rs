//! A daemon that is killed while it has stopped those that it kills.

use super::{Box, recorded};
use gpukill_tests::harness::{
    Actor, Driver, Gate, Procfs, Stage, Stream, Troupe, becomes, eventually, is_over,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Nobody here ends on SIGTERM, and one is born then. Says the launcher's pid, its
/// worker's, and that of the one that is born.
const STUBBORN: &str = r#"launcher -c '
    trap "(trap \"\" TERM; exec worker 1001) & echo \$!" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// The letter that the kernel has for how it stands.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may have anything in it.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.chars().next().unwrap()
}

fn become_stopped(pids: &[u32]) {
    becomes(&vec!['T'; pids.len()], || {
        pids.iter().map(|pid| state(*pid)).collect::<Vec<char>>()
    });
}

/// Those that the daemon's own file says are stopped.
fn noted(stage: &Stage) -> usize {
    let note = std::fs::read_to_string(stage.path("state/stopped")).unwrap();
    let lines = note.lines().skip(1);
    lines.filter(|line| !line.trim().is_empty()).count()
}

#[test]
fn whom_a_killed_daemon_left_stopped_the_next_one_lets_go_on_and_nobody_else() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    let root = procfs.root().to_owned();
    let start = |stage: &Stage| {
        let mut daemon = stage.daemon();
        stage.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", &root))
    };
    let it = Box {
        driver: Driver::start(&stage, super::TEARDOWN),
        daemon: start(&stage),
        stage,
    };
    let troupe = Troupe::run(&it.stage, STUBBORN);
    let [launcher, worker] = troupe.pids();
    let other = Actor::start("python");
    for pid in [launcher, worker, other.pid()] {
        procfs.link(pid);
    }
    let pid = i32::try_from(other.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::STOP).unwrap();
    it.lists(&[launcher, worker, other.pid()]);
    let named = launcher.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--yes", "--force"];
    let arguments = [&arguments[..], &["--timeout-secs", "2"]].concat();
    let gate = Gate::new(&procfs);
    let client = Stream::start(&mut it.stage.client(&arguments));
    // Born after its SIGTERM, and in no plan.
    let born = eventually("one is born", || {
        gate.open();
        troupe.murmurs().first()?.trim().parse().ok()
    });
    procfs.link(born);
    // It is found by the next look, and nobody else by the one after that.
    for _ in 0..2 {
        eventually("a look", || gate.open());
    }
    let all = [launcher, worker, born];
    become_stopped(&all);
    let Box {
        driver: _driver,
        daemon,
        stage,
    } = it;
    daemon.kill();
    let (code, _, complaints) = client.end();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    // What was sent before it was killed has arrived, and this is how they stay.
    become_stopped(&all);
    assert_eq!(noted(&stage), all.len());

    gate.remove();
    let daemon = start(&stage);
    for pid in all {
        eventually("it goes on", || (state(pid) != 'T').then_some(()));
        assert!(!is_over(pid));
    }
    become_stopped(&[other.pid()]);
    let act = eventually("the act is settled", || {
        let act = recorded(&stage).pop()?;
        (!act["word"].is_null()).then_some(act)
    });
    assert_eq!(act["word"], json!("interrupted"), "{act:#}");
    let why = act["why"].as_str().unwrap();
    let (_, done) = why
        .split_once("; let go on, as kills had left them stopped: ")
        .unwrap();
    let mut went_on: Vec<&str> = done.split(", ").collect();
    let mut expected = all.map(|pid| pid.to_string());
    went_on.sort_unstable();
    expected.sort_unstable();
    assert_eq!(went_on, expected);
    for pid in all {
        let line = format!("pid={pid}");
        becomes(&true, || said(&daemon.log(), &line));
    }
    assert_eq!(noted(&stage), 0);
    daemon.stop();
}

/// Whether the log tells of somebody who goes on with these words.
fn said(log: &str, words: &str) -> bool {
    let mut lines = log.lines();
    lines.any(|line| line.contains("a kill had left it stopped") && line.contains(words))
}
