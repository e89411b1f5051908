//! Enforce mode: a process with a protected name is not protected by it.

use super::{GuardBox, MEMORY_RELEASE_TIME, RESPAWNING_JOB, eventually_equals, steps_in_mode};
use crate::kill::is_in_test_namespaces;
use gpukill_tests::harness::{
    FakeDriver, FakeProcfs, Script, TestProcess, can_run_as_other_users, copy_program,
    process_has_ended,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A person; no machine has this uid.
const ALICE: u32 = 60_001;

#[test]
fn protected_name_does_not_protect_users() {
    if !is_in_test_namespaces(
        "guard::enforcement::impostors::protected_name_does_not_protect_users",
    ) || !can_run_as_other_users()
    {
        return;
    }
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=0755", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
    copy_program("/bin/sleep", "/opt/Xorg");
    let xorg = |uid| TestProcess::spawn(Command::new("/opt/Xorg").arg("1000").uid(uid).gid(uid));
    // `[protect]` in the rules requires the same evidence as the daemon's own protection.
    for protect in ["", "[protect]\nprocesses = [\"Xorg\"]\n"] {
        let rules = format!(
            "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
             hard_enforcement = true\n[gpu_policies.0]\nblocked_users = [\"0\", \"{ALICE}\"]\n{protect}"
        );
        let Some(it) = GuardBox::with_rules(&rules) else {
            return;
        };
        let (own, roots) = (xorg(ALICE), xorg(0));
        it.driver.add_processes(&[own.pid(), roots.pid()]);
        eventually_equals(&true, || process_has_ended(own.pid()));
        assert!(!process_has_ended(roots.pid()), "{protect}");
        eventually_equals(&true, || {
            let actions = it.kills();
            let actions = actions.as_array().unwrap();
            actions.iter().any(|action| action[1] == json!("done"))
        });
        super::wait_for_polls(&it.test_box);
        assert!(!process_has_ended(roots.pid()), "{protect}");
        let steps = it.steps();
        assert!(
            steps.contains(&steps_in_mode("enforce", &["outcome"])[0]),
            "{steps:?}"
        );
        it.daemon.stop();
    }
}

/// The kernel reports no path longer than `PATH_MAX` and follows no link to a name longer than
/// `NAME_MAX`: both fail with `ENAMETOOLONG`.
#[test]
fn unreadable_cgroup_does_not_protect() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(test_box) = GuardBox::test_box_with_rules(rules) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let job = Script::run(&test_box, RESPAWNING_JOB);
    let [launcher, worker] = job.next_pids();
    for pid in [launcher, worker] {
        procfs.link_with_changed_files(pid, &[("cgroup", Some(""))]);
        let cgroup = procfs.root().join(format!("{pid}/cgroup"));
        std::fs::remove_file(&cgroup).unwrap();
        std::os::unix::fs::symlink("x".repeat(300), &cgroup).unwrap();
        let error = std::fs::read(&cgroup).unwrap_err().raw_os_error();
        assert_eq!(
            error,
            Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()),
            "{pid}"
        );
    }
    let driver = FakeDriver::start(&test_box, MEMORY_RELEASE_TIME);
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut daemon);
    driver.add_processes(&[worker]);
    eventually_equals(&true, || process_has_ended(worker));
    eventually_equals(&true, || {
        super::recorded_kills(&test_box) == json!([["guard: default: memory", "done"]])
    });
    daemon.stop();
}
