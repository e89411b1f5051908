//! Enforce: who calls a process like what is protected gains nothing by it.

use super::{Box, JOB, TEARDOWN, all, becomes};
use crate::acting::is_inside;
use gpukill_tests::harness::{
    Actor, Driver, Procfs, Troupe, can_act_as_others, copy_program, is_over,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A person: a user that no box has.
const ALICE: u32 = 60_001;

#[test]
fn a_protected_name_keeps_nobody_s_own_process_from_its_end() {
    if !is_inside(
        "guard::acts::impostors::a_protected_name_keeps_nobody_s_own_process_from_its_end",
    ) || !can_act_as_others()
    {
        return;
    }
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=0755", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
    copy_program("/bin/sleep", "/opt/Xorg");
    let xorg = |uid| Actor::of(Command::new("/opt/Xorg").arg("1000").uid(uid).gid(uid));
    // `[protect]` of the rules believes no more than the box does.
    for protect in ["", "[protect]\nprocesses = [\"Xorg\"]\n"] {
        let rules = format!(
            "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
             hard_enforcement = true\n[gpu_policies.0]\nblocked_users = [\"0\", \"{ALICE}\"]\n{protect}"
        );
        let Some(it) = Box::by(&rules) else { return };
        let (own, roots) = (xorg(ALICE), xorg(0));
        it.driver.lists(&[own.pid(), roots.pid()]);
        becomes(&true, || is_over(own.pid()));
        assert!(!is_over(roots.pid()), "{protect}");
        becomes(&true, || {
            let acts = it.acts();
            let acts = acts.as_array().unwrap();
            acts.iter().any(|act| act[1] == json!("done"))
        });
        super::goes_on(&it.stage);
        assert!(!is_over(roots.pid()), "{protect}");
        let steps = it.steps();
        assert!(steps.contains(&all("enforce", &["acted"])[0]), "{steps:?}");
        it.daemon.stop();
    }
}

/// The kernel tells no path that is longer than `PATH_MAX`, nor follows a link to a name that
/// is longer than `NAME_MAX`: both end with `ENAMETOOLONG`.
#[test]
fn a_control_group_too_deep_to_be_told_keeps_nobody_from_their_end() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(stage) = Box::stage(rules) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let job = Troupe::run(&stage, JOB);
    let [launcher, worker] = job.pids();
    for pid in [launcher, worker] {
        procfs.dress(pid, &[("cgroup", Some(""))]);
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
    let driver = Driver::start(&stage, TEARDOWN);
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut daemon);
    driver.lists(&[worker]);
    becomes(&true, || is_over(worker));
    becomes(&true, || {
        super::acts(&stage) == json!([["guard: default: memory", "done"]])
    });
    daemon.stop();
}
