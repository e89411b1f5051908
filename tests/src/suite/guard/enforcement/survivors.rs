//! Processes that survive their signals.

use super::{GuardBox, MEMORY_RELEASE_TIME};
use crate::kill::reexec;
use gpukill_tests::harness::{
    FakeDriver, FakeProcfs, Script, TestProcess, can_run_as_other_users, eventually,
    eventually_equals, process_has_ended, skip,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A user; no machine has this uid.
const PERSON: u32 = 60_911;

/// Runs as that user until SIGTERM, and then as root, so that the guard withholds SIGKILL from
/// a system process.
const BECOME_ROOT_ON_SIGTERM: &str = "
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os.setresuid(0, 0, 0))
os.setresuid(60911, 60911, 0)
print(os.getpid(), flush=True)
while True:
    signal.pause()";

#[test]
fn survivor_does_not_protect_its_unit() {
    let python = Command::new("python3").arg("--version").output();
    if !can_run_as_other_users() || python.is_err() {
        return skip("no python3 here, or no other users");
    }
    let rules = format!(
        "[global]\ndry_run = false\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
        [gpu_policies.0]\nblocked_users = [\"{PERSON}\"]\n"
    );
    let Some(test_box) = GuardBox::test_box_with_rules(&rules) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let unit =
        format!("0::/user.slice/user-{PERSON}.slice/user@{PERSON}.service/app.slice/x.service\n");
    let in_unit =
        |pid: u32| procfs.link_with_changed_files(pid, &[("cgroup", Some(unit.as_str()))]);
    let survivor = Script::spawn(
        &test_box,
        Command::new("python3").args(["-c", BECOME_ROOT_ON_SIGTERM]),
    );
    let [survives] = survivor.next_pids();
    in_unit(survives);
    let driver = FakeDriver::start(&test_box, MEMORY_RELEASE_TIME);
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut daemon);
    driver.add_processes(&[survives]);
    let why = format!(
        "process {survives}: SIGKILL withheld: it runs as uid 0 now; it still runs after SIGTERM"
    );
    assert_eq!(super::last_outcome(&test_box), json!([0, 1, why]));
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["ended_today"], 0);

    let sleeper = || TestProcess::spawn(Command::new("sleep").arg("1000").uid(PERSON).gid(PERSON));
    let later = [sleeper(), sleeper()];
    let pids = later.each_ref().map(TestProcess::pid);
    pids.into_iter().for_each(in_unit);
    driver.add_processes(&[survives, pids[0], pids[1]]);
    eventually("those that came later are ended", || {
        pids.iter().all(|pid| process_has_ended(*pid)).then_some(())
    });
    assert!(!process_has_ended(survives));
    daemon.stop();
}

#[test]
fn reexec_as_tmux_does_not_protect() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(it) = GuardBox::with_rules(rules) else {
        return;
    };
    let job = reexec::run_reexec_script(&it.test_box, "trainer", "tmux");
    let [pid] = job.next_pids();
    it.driver.add_processes(&[pid]);
    eventually_equals(&true, || process_has_ended(pid));
    let outcome = it.outcome();
    assert_eq!(
        (&outcome[1], &outcome[2]),
        (&json!(0), &json!(null)),
        "{outcome}"
    );
    it.daemon.stop();
}
