//! Fork bombs: as many processes as their user may have. Each starts another as soon as the
//! limit allows.

use super::{KillBox, parse_output, planned_pids, recorded_actions};
use gpukill_tests::harness::{
    FakeProcfs, ProcessRelay, RunningProgram, ScanGate, Script, TestBox, can_run_as_other_users,
    eventually, process_has_ended, skip, start_ticks, test_uid,
};
use rustix::process::{Pid, getsid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The process limit of the bomb's user.
const PROCESS_LIMIT: usize = 300;

/// Seconds until a process that cannot fork tries again; `GPUKILL_BOMB_PAUSE` overrides it.
/// With a shorter pause a bomb occupies all processors.
const FORK_RETRY_SECONDS: &str = "0.02";

/// The first process of the bomb's PID namespace. It reaps orphans, as on any machine, so that
/// each end makes room for another process.
const NAMESPACE_INIT: &str = "
    use POSIX ();
    my $first = fork // die;
    if (!$first) { POSIX::setsid(); exec @ARGV }
    while (1) { wait == -1 && sleep 1 }";

/// The nice value of the bomb, so that it leaves time to other tests; `GPUKILL_BOMB_NICE`
/// overrides it.
const NICE_VALUE: &str = "10";

/// Every process of the bomb forks in an endless loop and ignores SIGTERM.
const FORK_LOOP: &str = "
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    while (1) { my $child = fork; select undef, undef, undef, $ENV{PAUSE} unless defined $child }";

/// Each process starts its own session, so that nothing attributes a process to its job after
/// its parent has ended.
const SESSION_LOOP: &str = "
    use POSIX ();
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    while (1) {
        my $child = fork;
        if (!defined $child) { select undef, undef, undef, $ENV{PAUSE} }
        elsif (!$child) { POSIX::setsid() }
    }";

/// Each process except the first ends soon after it has forked, so that parents end before
/// their children.
const ORPHAN_LOOP: &str = "
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    my $left;
    while (!defined $left || $left--) {
        my $child = fork;
        if (!defined $child) { select undef, undef, undef, $ENV{PAUSE} }
        elsif (!$child) { $left = 100 }
    }";

/// A bomb in its own PID namespace. When it is dropped, all processes of the namespace end.
struct Bomb {
    unshare: Child,
    namespace: PathBuf,
    init: u32,
}

impl Bomb {
    /// Starts a bomb as a user without other processes. Returns `None` where that is not
    /// possible.
    fn start(script: &str) -> Option<Self> {
        if !can_run_as_other_users() {
            return None;
        }
        for (program, argument) in [
            ("perl", "-v"),
            ("setpriv", "--version"),
            ("prlimit", "--version"),
        ] {
            let runs = Command::new(program).arg(argument).output();
            if !runs.is_ok_and(|it| it.status.success()) {
                skip(&format!("no {program} here"));
                return None;
            }
        }
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child"]);
            command
        };
        if !unshare().arg("true").status().is_ok_and(|it| it.success()) {
            skip("no PID namespace can be made here");
            return None;
        }
        let uid = test_uid(210).to_string();
        let pause =
            std::env::var("GPUKILL_BOMB_PAUSE").unwrap_or_else(|_| FORK_RETRY_SECONDS.to_owned());
        let nice = std::env::var("GPUKILL_BOMB_NICE").unwrap_or_else(|_| NICE_VALUE.to_owned());
        let child = unshare()
            .args(["nice", "-n", &nice, "perl", "-e", NAMESPACE_INIT])
            .args(["prlimit", &format!("--nproc={PROCESS_LIMIT}")])
            .args(["setpriv", "--reuid", &uid, "--regid", &uid])
            .args(["--clear-groups", "perl", "-e", script])
            .env("PAUSE", pause)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let parent = child.id();
        let mut bomb = Self {
            unshare: child,
            namespace: PathBuf::new(),
            init: 0,
        };
        bomb.init = eventually("the namespace has a first process", || {
            children(parent).pop()
        });
        let link = format!("/proc/{}/ns/pid", bomb.init);
        bomb.namespace = std::fs::read_link(link).unwrap();
        Some(bomb)
    }

    /// Waits until the bomb has all processes that it may have. Returns its first process.
    fn wait_until_full(&self) -> u32 {
        eventually("the bomb is full", || {
            (self.running_pids().len() >= PROCESS_LIMIT - 5).then_some(())
        });
        // The first process leads the session. The other children of the namespace's first
        // process are orphans, and pids wrap around, so the lowest pid is no evidence.
        let leads = |pid: &u32| {
            let pid = Pid::from_raw(i32::try_from(*pid).unwrap());
            pid.is_some_and(|pid| getsid(Some(pid)) == Ok(pid))
        };
        children(self.init).into_iter().find(leads).unwrap()
    }

    /// The bomb's processes that have not ended.
    fn running_pids(&self) -> BTreeSet<u32> {
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // An ended process has no namespace.
            let namespace = std::fs::read_link(entry.path().join("ns/pid")).ok()?;
            (namespace == self.namespace && pid != self.init).then_some(pid)
        });
        pids.collect()
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        // `--kill-child` ends the first process of the namespace, and the kernel then ends all
        // others.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let pids = std::fs::read_to_string(file).unwrap_or_default();
    pids.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

/// The result of a kill with force: the exit code, the report, and the bomb's processes that
/// were left when the client ended, with their start times.
#[expect(clippy::print_stdout, reason = "its figures")]
fn kill_bomb(name: &str, script: &str, scope: &str) -> Option<(i32, Value, BTreeMap<u32, u64>)> {
    const MORE: &[&str] = &[
        "--timeout-secs",
        "1",
        "--request-timeout",
        "290",
        "-o",
        "json",
    ];
    let it = KillBox::new();
    let bomb = Bomb::start(script)?;
    let first = bomb.wait_until_full();
    it.add_gpu_processes(&[first]);
    let named = first.to_string();
    let arguments = [&named, "--scope", scope, "--force", "--yes"];
    let (_, plan) = it.kill_json(&[&arguments[..], &["--dry-run"]].concat());
    if planned_pids(&plan).contains(&std::process::id()) {
        skip("the tests run in a service or a container, which is the job of all of them");
        return None;
    }
    let started_at = Instant::now();
    let ran = it.kill_output(&[&arguments[..], MORE].concat());
    let took = started_at.elapsed();
    let left = bomb.running_pids().into_iter();
    let left = left
        .filter_map(|pid| Some((pid, start_ticks(pid)?)))
        .collect::<BTreeMap<_, _>>();
    let (code, report) = parse_output(&ran);
    let outcomes = report["outcomes"].as_array().unwrap().len();
    println!(
        "bomb that {name}: exit {code}, {outcomes} outcomes, {} left, {:.1} s",
        left.len(),
        took.as_secs_f64()
    );
    Some((code, report, left))
}

/// The processes that a report does not call ended, with their start times.
fn reported_survivors(report: &Value) -> BTreeMap<u32, u64> {
    let outcomes = report["outcomes"].as_array().unwrap().iter();
    let left = outcomes.filter(|it| it["outcome"] != "ended" && it["outcome"] != "gone");
    left.map(|it| {
        let pid = u32::try_from(it["pid"].as_u64().unwrap()).unwrap();
        (pid, it["start_ticks"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn force_ends_fork_bombs_or_names_survivors() {
    // One bomb at a time, because each occupies all processors.
    for (name, script, scope) in [
        ("forks", FORK_LOOP, "tree"),
        ("forks sessions", SESSION_LOOP, "tree"),
        ("loses its parents", ORPHAN_LOOP, "job"),
    ] {
        let Some((code, report, left)) = kill_bomb(name, script, scope) else {
            return;
        };
        let expected = if left.is_empty() { 0 } else { 7 };
        assert_eq!(code, expected, "{name}: {left:?} {report:#}");
        // A bomb that is still running starts processes after the last scan of the kill. No
        // process that was there at this scan may be missing in the report.
        let reported = reported_survivors(&report);
        let newest = reported.values().max().copied().unwrap_or(u64::MAX);
        let missing = left
            .iter()
            .filter(|it| *it.1 < newest && !reported.contains_key(it.0));
        assert_eq!(missing.count(), 0, "{name}: {left:?} {report:#}");
    }
}

/// The number of processes that join a tree, one at each scan. It is greater than the number of
/// scans.
const LATE_MEMBERS: usize = 120;

/// The number of consecutive scans that find a late member before any process is killed.
const SCANS_BEFORE_KILL: usize = 24;

#[test]
fn late_members_delay_the_kill() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let it = KillBox::start(test_box, daemon);
    // Their session shows that they belong together after the launcher has ended.
    let commands = format!(
        "setsid launcher -c 'echo $$; i=0
            while [ $i -lt {LATE_MEMBERS} ]; do worker 1000 & echo $!; i=$((i + 1)); done; wait' & wait; true"
    );
    let script = Script::run(&it.test_box, &commands);
    let [launcher] = script.next_pids();
    let workers: [u32; LATE_MEMBERS] = script.next_pids();
    procfs.link_real_process(launcher);
    it.add_gpu_processes(&[launcher]);
    let gate = ScanGate::new(&procfs);
    let named = launcher.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--force", "--signal"];
    let arguments = [&arguments[..], &["KILL", "--yes", "-o", "json"]].concat();
    let client = RunningProgram::start(&mut it.test_box.client_command(&arguments));
    let is_settled = || {
        recorded_actions(&it.test_box)
            .pop()
            .is_some_and(|action| !action["result"].is_null())
    };
    for (scans, worker) in workers.into_iter().enumerate() {
        let scan = eventually("a scan, or the end of the kill", || {
            let scan = gate.hold_reader();
            (scan.is_some() || is_settled()).then_some(scan)
        });
        let Some(scan) = scan else {
            break;
        };
        // The waiting scan has its list of pids already, so the next scan finds this process.
        procfs.link_real_process(worker);
        gate.pass_one().unwrap();
        drop(scan);
        if scans < SCANS_BEFORE_KILL {
            assert!(
                !workers.into_iter().any(process_has_ended),
                "after {scans} scans"
            );
        }
    }
    gate.remove();
    let (code, output, complaints) = client.wait();
    let report: Value = serde_json::from_str(&output.concat()).unwrap();
    assert_eq!(code, 7, "{complaints:?} {report:#}");
    let outcomes = report["outcomes"].as_array().unwrap();
    let (found_late, others): (Vec<&Value>, Vec<&Value>) =
        outcomes.iter().partition(|it| it["outcome"] == "unclear");
    let [late] = found_late[..] else {
        panic!("{report:#}");
    };
    assert_eq!(late["why"], "it started while the others were being ended");
    let pid = u32::try_from(late["pid"].as_u64().unwrap()).unwrap();
    assert!(workers.contains(&pid) && !process_has_ended(pid));
    assert!(others.len() > SCANS_BEFORE_KILL);
    assert!(
        others.iter().all(|it| it["outcome"] == "ended"),
        "{report:#}"
    );
}

#[test]
fn fork_under_way_is_completed_before_the_kill() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let it = KillBox::start(test_box, daemon);
    // Only its parent shows to which job the worker belongs.
    let commands = "launcher -c 'echo $$; setsid worker 1000 & echo $!; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [launcher, worker] = script.next_pids();
    procfs.link_with_changed_files(launcher, &[("task", None)]);
    let thread = format!("task/{launcher}");
    let directory = procfs.root().join(format!("{launcher}/{thread}"));
    std::fs::create_dir_all(directory).unwrap();
    let write_state = |state: &str| {
        let stat = FakeProcfs::stat_text(launcher, "launcher", 1);
        let stat = stat.replacen(") S ", &format!(") {state} "), 1);
        procfs.write(launcher, &format!("{thread}/stat"), &stat);
    };
    // It is in the kernel, in fork().
    write_state("R");
    it.add_gpu_processes(&[launcher]);
    let named = launcher.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--force", "--signal"];
    let arguments = [&arguments[..], &["KILL", "--yes", "-o", "json"]].concat();
    let client = RunningProgram::start(&mut it.test_box.client_command(&arguments));
    eventually("the launcher is stopped", || {
        (process_state(launcher)? == 'T').then_some(())
    });
    // A few searches for new processes pass.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(process_state(launcher), Some('T'));
    procfs.link_real_process(worker);
    write_state("T");
    let (code, output, complaints) = client.wait();
    let report: Value = serde_json::from_str(&output.concat()).unwrap();
    assert_eq!(code, 0, "{complaints:?} {report:#}");
    assert!(process_has_ended(worker), "{report:#}");
}

/// The state letter of a process in `/proc`.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn incomplete_scan_after_the_signals_is_reported() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let it = KillBox::start(test_box, daemon);
    // The launcher forks when it gets SIGTERM.
    let commands = "worker 1000 & echo $!
        launcher -c 'trap \"worker 1000 & echo \\$!; wait \\$!; exit\" TERM
            echo $$; while :; do sleep 0.1; done' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [steady, forking] = script.next_pids();
    procfs.link_real_process(steady);
    procfs.link_real_process(forking);
    it.add_gpu_processes(&[steady, forking]);
    let relay = ProcessRelay::start(&procfs);
    // No process of this job has come or gone, so none is missing.
    let (code, report) = it.kill_json(&[&steady.to_string(), "--scope", "tree", "--yes"]);
    assert_eq!(
        (code, &report["unchecked"]),
        (0, &Value::Null),
        "{report:#}"
    );

    let named = forking.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--yes", "-o", "json"];
    let client = RunningProgram::start(&mut it.test_box.client_command(&arguments));
    let [forked] = script.next_pids();
    procfs.link_real_process(forked);
    let (code, output, complaints) = client.wait();
    drop(relay);
    let report: Value = serde_json::from_str(&output.concat()).unwrap();
    assert!(
        process_has_ended(forking) && process_has_ended(forked),
        "{report:#}"
    );
    let why = "processes started and ended faster than they could be read";
    assert_eq!(report["unchecked"], why, "{complaints:?} {report:#}");
    assert_eq!(code, 7, "{report:#}");
    assert_eq!(it.newest_action()["result"], "partly");
}
