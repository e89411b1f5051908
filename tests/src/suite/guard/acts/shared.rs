//! Several users in one container: only the processes of whoever broke a rule are ended.

use super::{Box, TEARDOWN};
use gpukill_tests::harness::{
    Driver, Procfs, Troupe, becomes, can_act_as_others, eventually, is_over, skip,
};
use serde_json::json;
use std::process::Command;

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// Two users of the container, who have no names here.
const USERS: [u32; 2] = [60_901, 60_902];

/// The container's root, with a process of each user, and a second one of the first.
const CONTAINER: &str = "as() { exec setpriv --reuid=$1 --regid=$1 --clear-groups sh -c \"$2\"; }
    (as 60901 'echo $$; worker 1000 & echo $!; wait') &
    (as 60902 'echo $$; worker 1000 & echo $!; wait') &
    echo $$; wait; worker 1000";

#[test]
fn the_processes_of_another_user_of_the_container_go_on() {
    if !can_act_as_others() || Command::new("setpriv").arg("--version").output().is_err() {
        return skip("no setpriv here, or no other users");
    }
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let troupe = Troupe::run(&stage, CONTAINER);
    // In whichever order they say them.
    let mut pids: Vec<u32> = troupe.pids::<5>().into();
    pids.sort_unstable();
    let user_of = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        uids.split_whitespace().next()?.parse::<u32>().ok()
    };
    let of = |user: u32| -> Vec<u32> {
        let is_theirs = |pid: &u32| user_of(pid) == Some(user);
        pids.iter().copied().filter(is_theirs).collect()
    };
    let [first, second] = USERS.map(|user| {
        eventually("each runs as its user", || {
            let theirs = of(user);
            (theirs.len() == 2).then_some(theirs)
        })
    });
    let root = troupe.pid();
    for pid in &pids {
        procfs.dress(
            *pid,
            &[("cgroup", Some("0::/lxc.payload.lab/init.scope\n"))],
        );
    }
    let driver = Driver::start(&stage, TEARDOWN);
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut daemon);
    // An operator's own order is for the whole container, and its plan names the users.
    driver.lists(&[first[1]]);
    let pid = first[1].to_string();
    let ask = ["kill", &pid, "--scope", "container", "--dry-run"];
    let plan = eventually("it is in the container", || {
        let ran = stage.ctl(&ask);
        (ran.code == 0).then_some(ran.stdout)
    });
    for user in USERS {
        assert!(
            plan.contains(&format!("container lab (uid {user})")),
            "{plan}"
        );
    }
    assert!(plan.contains("of 3 users"), "{plan}");
    // The guard ends those of the first user, with GPU and without.
    becomes(&Vec::<u32>::new(), || {
        first.iter().copied().filter(|pid| !is_over(*pid)).collect()
    });
    let acted = super::acted(&stage);
    let rest = "the rest of its job is left alone: other users run processes in its container";
    assert_eq!(acted, json!([2, 0, rest]));
    super::goes_on(&stage);
    assert!(second.iter().chain([&root]).all(|pid| !is_over(*pid)));
    daemon.stop();
}
