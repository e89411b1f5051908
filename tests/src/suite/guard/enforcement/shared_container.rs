//! Several users in one container: only the processes of the user who violates a rule are
//! ended.

use super::{GuardBox, MEMORY_RELEASE_TIME};
use gpukill_tests::harness::{
    FakeDriver, FakeProcfs, Script, can_run_as_other_users, eventually, eventually_equals,
    process_has_ended, skip,
};
use serde_json::json;
use std::process::Command;

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// Two users of the container; they have no names on this machine.
const USERS: [u32; 2] = [60_901, 60_902];

/// The container's root with two processes of each user.
const CONTAINER: &str = "as() { exec setpriv --reuid=$1 --regid=$1 --clear-groups sh -c \"$2\"; }
    (as 60901 'echo $$; worker 1000 & echo $!; wait') &
    (as 60902 'echo $$; worker 1000 & echo $!; wait') &
    echo $$; wait; worker 1000";

#[test]
fn other_users_of_the_container_survive() {
    if !can_run_as_other_users() || Command::new("setpriv").arg("--version").output().is_err() {
        return skip("no setpriv here, or no other users");
    }
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let script = Script::run(&test_box, CONTAINER);
    // The order of the output varies.
    let mut pids: Vec<u32> = script.next_pids::<5>().into();
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
    let root = script.pid();
    for pid in &pids {
        procfs.link_with_changed_files(
            *pid,
            &[("cgroup", Some("0::/lxc.payload.lab/init.scope\n"))],
        );
    }
    let driver = FakeDriver::start(&test_box, MEMORY_RELEASE_TIME);
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut daemon);
    // An operator's kill with scope `container` covers all users, and its plan names them.
    driver.add_processes(&[first[1]]);
    let pid = first[1].to_string();
    let ask = ["kill", &pid, "--scope", "container", "--dry-run"];
    let plan = eventually("it is in the container", || {
        let ran = test_box.ctl(&ask);
        (ran.code == 0).then_some(ran.stdout)
    });
    for user in USERS {
        assert!(
            plan.contains(&format!("container lab (uid {user})")),
            "{plan}"
        );
    }
    assert!(plan.contains("of 3 users"), "{plan}");
    // The guard ends all processes of the first user, with and without GPU.
    eventually_equals(&Vec::<u32>::new(), || {
        first
            .iter()
            .copied()
            .filter(|pid| !process_has_ended(*pid))
            .collect()
    });
    let outcome = super::last_outcome(&test_box);
    let rest = "the rest of its job is not ended: other users run processes in its container";
    assert_eq!(outcome, json!([2, 0, rest]));
    super::wait_for_polls(&test_box);
    assert!(
        second
            .iter()
            .chain([&root])
            .all(|pid| !process_has_ended(*pid))
    );
    daemon.stop();
}
