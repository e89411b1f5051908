//! Processes that go on after their signals.

use super::{Box, TEARDOWN};
use crate::acting::reexec;
use gpukill_tests::harness::{
    Actor, Driver, Procfs, Troupe, becomes, can_act_as_others, eventually, is_over, skip,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A user that no box has.
const PERSON: u32 = 60_911;

/// Runs as that user until SIGTERM, and as root from there on: what is the system's gets no
/// signal.
const RISES: &str = "
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os.setresuid(0, 0, 0))
os.setresuid(60911, 60911, 0)
print(os.getpid(), flush=True)
while True:
    signal.pause()";

#[test]
fn a_survivor_protects_no_process_that_comes_to_its_unit() {
    let python = Command::new("python3").arg("--version").output();
    if !can_act_as_others() || python.is_err() {
        return skip("no python3 here, or no other users");
    }
    let rules = format!(
        "[global]\ndry_run = false\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
        [gpu_policies.0]\nblocked_users = [\"{PERSON}\"]\n"
    );
    let Some(stage) = Box::stage(&rules) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let unit =
        format!("0::/user.slice/user-{PERSON}.slice/user@{PERSON}.service/app.slice/x.service\n");
    let in_unit = |pid: u32| procfs.dress(pid, &[("cgroup", Some(unit.as_str()))]);
    let survivor = Troupe::of(&stage, Command::new("python3").args(["-c", RISES]));
    let [survives] = survivor.pids();
    in_unit(survives);
    let driver = Driver::start(&stage, TEARDOWN);
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut daemon);
    driver.lists(&[survives]);
    let why = format!(
        "process {survives}: SIGKILL withheld: it runs as uid 0 now; it goes on after SIGTERM"
    );
    assert_eq!(super::acted(&stage), json!([0, 1, why]));

    let sleeper = || Actor::of(Command::new("sleep").arg("1000").uid(PERSON).gid(PERSON));
    let later = [sleeper(), sleeper()];
    let pids = later.each_ref().map(Actor::pid);
    pids.into_iter().for_each(in_unit);
    driver.lists(&[survives, pids[0], pids[1]]);
    eventually("those that came later are ended", || {
        pids.iter().all(|pid| is_over(*pid)).then_some(())
    });
    assert!(!is_over(survives));
    daemon.stop();
}

#[test]
fn a_job_that_goes_on_as_a_tmux_of_its_own_is_killed() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(it) = Box::by(rules) else { return };
    let job = reexec::run(&it.stage, "trainer", "tmux");
    let [pid] = job.pids();
    it.driver.lists(&[pid]);
    becomes(&true, || is_over(pid));
    let acted = it.acted();
    assert_eq!((&acted[1], &acted[2]), (&json!(0), &json!(null)), "{acted}");
    it.daemon.stop();
}
