//! Recovery after the daemon is killed while processes are stopped for a kill.

use super::{KillBox, recorded_actions};
use gpukill_tests::harness::{
    FakeDriver, FakeProcfs, RunningProgram, ScanGate, Script, TestBox, TestProcess, eventually,
    eventually_equals, process_has_ended,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// No process here ends on SIGTERM; the launcher's handler starts a late member. Prints the
/// pids of the launcher, its worker and the late member.
const STUBBORN: &str = r#"launcher -c '
    trap "(trap \"\" TERM; exec worker 1001) & echo \$!" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// The state letter of proc_pid_stat(5).
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The process name may contain any character.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.chars().next().unwrap()
}

fn wait_until_stopped(pids: &[u32]) {
    eventually_equals(&vec!['T'; pids.len()], || {
        pids.iter().map(|pid| state(*pid)).collect::<Vec<char>>()
    });
}

/// The number of processes in the daemon's file of stopped processes.
fn stopped_file_entries(test_box: &TestBox) -> usize {
    let note = std::fs::read_to_string(test_box.path("state/stopped")).unwrap();
    let lines = note.lines().skip(1);
    lines.filter(|line| !line.trim().is_empty()).count()
}

#[test]
fn restarted_daemon_continues_stopped_processes() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let root = procfs.root().to_owned();
    let start = |test_box: &TestBox| {
        let mut daemon = test_box.daemon_command();
        test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", &root))
    };
    let it = KillBox {
        driver: FakeDriver::start(&test_box, super::MEMORY_RELEASE_TIME),
        daemon: start(&test_box),
        test_box,
    };
    let script = Script::run(&it.test_box, STUBBORN);
    let [launcher, worker] = script.next_pids();
    let other = TestProcess::start("python");
    for pid in [launcher, worker, other.pid()] {
        procfs.link_real_process(pid);
    }
    let pid = i32::try_from(other.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::STOP).unwrap();
    it.add_gpu_processes(&[launcher, worker, other.pid()]);
    let named = launcher.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--yes", "--force"];
    let arguments = [&arguments[..], &["--timeout-secs", "2"]].concat();
    let gate = ScanGate::new(&procfs);
    let client = RunningProgram::start(&mut it.test_box.client_command(&arguments));
    // The late member starts after the launcher's SIGTERM, so no plan has it.
    let born = eventually("the late member starts", || {
        gate.pass_one();
        script.unread_lines().first()?.trim().parse().ok()
    });
    procfs.link_real_process(born);
    // The next scan finds the late member, and the scan after that finds nothing new.
    for _ in 0..2 {
        eventually("a scan", || gate.pass_one());
    }
    let all = [launcher, worker, born];
    wait_until_stopped(&all);
    let KillBox {
        driver: _driver,
        daemon,
        test_box,
    } = it;
    daemon.kill();
    let (code, _, complaints) = client.wait();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    // Signals that were sent before the daemon's end have arrived, so this state is final.
    wait_until_stopped(&all);
    assert_eq!(stopped_file_entries(&test_box), all.len());

    gate.remove();
    let daemon = start(&test_box);
    for pid in all {
        eventually("the process continues", || {
            (state(pid) != 'T').then_some(())
        });
        assert!(!process_has_ended(pid));
    }
    wait_until_stopped(&[other.pid()]);
    let action = eventually("the action is settled", || {
        let action = recorded_actions(&test_box).pop()?;
        (!action["result"].is_null()).then_some(action)
    });
    assert_eq!(action["result"], json!("interrupted"), "{action:#}");
    let why = action["why"].as_str().unwrap();
    let (_, done) = why
        .split_once("; resumed after interrupted kills had left them stopped: ")
        .unwrap();
    let mut continued: Vec<&str> = done.split(", ").collect();
    let mut expected = all.map(|pid| pid.to_string());
    continued.sort_unstable();
    expected.sort_unstable();
    assert_eq!(continued, expected);
    for pid in all {
        let line = format!("pid={pid}");
        eventually_equals(&true, || log_reports_continued(&daemon.log(), &line));
    }
    assert_eq!(stopped_file_entries(&test_box), 0);
    daemon.stop();
}

/// Whether the log reports a continued process with these words.
fn log_reports_continued(log: &str, words: &str) -> bool {
    let mut lines = log.lines();
    lines.any(|line| {
        line.contains("an interrupted kill had left it stopped") && line.contains(words)
    })
}
