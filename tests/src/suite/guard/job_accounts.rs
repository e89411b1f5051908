//! Facts about a process that do not come from the driver: the scheduler account of its job.

use super::{GIB, guard_violations, record_fields, write_rules};
use gpukill_tests::harness::{
    CommandOutput, Daemon, FakeProcess, FakeProcfs, TestBox, TestProcess, eventually,
};
use serde_json::{Value, json};
use std::process::Command;

/// The control group of a Slurm job.
fn slurm_cgroup(job: u32) -> String {
    format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0")
}

const SESSION_CGROUP: &str = "0::/user.slice/user-1000.slice/session-3.scope";

/// Starts a process with this account in its environment.
fn process_with_account(account: Option<&str>) -> TestProcess {
    let mut command = Command::new("sleep");
    command.arg("1000").env_remove("SLURM_JOB_ACCOUNT");
    if let Some(account) = account {
        command.env("SLURM_JOB_ACCOUNT", account);
    }
    TestProcess::spawn(&mut command)
}

/// Adds the process to the simulated `/proc` with another control group and its own
/// environment.
fn add_to_procfs(procfs: &FakeProcfs, process: &TestProcess, uid: u32, cgroup: &str) {
    let pid = process.pid();
    procfs.add_process(FakeProcess {
        pid,
        name: "python",
        uid,
        start_ticks: u64::from(pid),
        cmdline: "x\0",
        cgroup,
    });
    let environ = procfs.root().join(pid.to_string()).join("environ");
    std::os::unix::fs::symlink(format!("/proc/{pid}/environ"), environ).unwrap();
}

fn start_with_procfs(test_box: &TestBox, procfs: &FakeProcfs) -> Daemon {
    let mut daemon = test_box.daemon_command();
    test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()))
}

/// Waits for stored samples. The store may not be open yet.
fn wait_for_samples(test_box: &TestBox) {
    eventually("samples are stored", || {
        let ran = test_box.ctl(&["audit", "--samples", "-o", "json"]);
        let samples: Value = serde_json::from_str(&ran.stdout).ok()?;
        (samples["records"].as_array()?.len() > 2).then_some(())
    });
}

#[test]
fn account_selects_the_group_policy() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let (ours, others) = (
        process_with_account(Some("vision")),
        process_with_account(Some("other")),
    );
    let (silent, outside) = (
        process_with_account(None),
        process_with_account(Some("vision")),
    );
    add_to_procfs(&procfs, &ours, 1000, &slurm_cgroup(7));
    add_to_procfs(&procfs, &others, 1000, &slurm_cgroup(8));
    add_to_procfs(&procfs, &silent, 1001, &slurm_cgroup(9));
    add_to_procfs(&procfs, &outside, 1000, SESSION_CGROUP);
    let processes = [&ours, &others, &silent, &outside];
    let processes = processes.map(|process| json!({"pid": process.pid(), "memory": 3 * GIB}));
    test_box.set_driver_state(
        &json!({"gpus": [{"memory": {"total": 80 * GIB}, "processes": processes}]}),
    );
    write_rules(
        &test_box,
        "[global]\ndefault_memory_limit_gb = 20\n\
         [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n\
         [group_policies.vision]\nslurm_accounts = ['vision']\nmemory_limit_gb = 2\n",
    );
    let daemon = start_with_procfs(&test_box, &procfs);
    wait_for_samples(&test_box);
    let fields = ["rule", "step", "evidence", "victim"];
    eventually("its job would be cancelled", || {
        (record_fields(&guard_violations(&test_box), &fields).len() >= 3).then_some(())
    });
    let mut live = record_fields(&guard_violations(&test_box), &fields);
    live.reverse();
    let reported: Vec<Value> = live
        .iter()
        .map(|record| {
            let procs = record[2]["procs"].as_array().unwrap();
            let pids: Vec<&Value> = procs.iter().map(|it| &it["pid"]).collect();
            json!([record[0], record[1], pids, record[3]["leave_to"]])
        })
        .collect();
    let rule = "group vision: memory";
    let pids = [ours.pid()];
    assert_eq!(
        reported,
        [
            json!([rule, "violated", pids, null]),
            json!([rule, "warned", pids, null]),
            json!([rule, "ended", pids, "scancel 7"]),
        ]
    );
    // A replay of the stored samples gives the same records.
    eventually("a replay gives the same records", || {
        let report = test_box.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        (record_fields(&report, &fields) == live).then_some(())
    });
    // A process that names no account cannot be evaluated.
    let report = test_box.json(&["guard", "test", "-o", "json"]);
    let unknown = report["not_evaluated"].as_array().unwrap().iter();
    let unknown: Vec<&Value> = unknown.filter(|it| it["rule"] == rule).collect();
    let whys: Vec<&Value> = unknown.iter().map(|it| &it["why"]).collect();
    assert_eq!(whys, ["its account is only its own claim"]);
    daemon.stop();
}

#[test]
fn rule_test_shows_its_lookback() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    super::set_gpu_processes(&test_box, &[(process.pid(), GIB)]);
    let daemon = test_box.start();
    wait_for_samples(&test_box);
    let report = test_box.json(&["guard", "test", "-o", "json"]);
    let since = report["since"].as_str().unwrap().to_owned();
    let screen = CommandOutput::run(test_box.client_command(&["guard", "test"]).env("TZ", "UTC"));
    let line = screen.stdout.lines().find(|it| it.starts_with("evaluated"));
    let expected = format!("evaluated from {} {} on", &since[..10], &since[11..19]);
    assert_eq!(line, Some(expected.as_str()));
    daemon.stop();
}
