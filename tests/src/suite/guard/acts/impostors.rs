//! Enforce: who calls a process like what is protected gains nothing by it.

use super::{Box, all, becomes};
use crate::acting::is_inside;
use gpukill_tests::harness::{Actor, can_act_as_others, is_over};
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
    std::fs::copy("/bin/sleep", "/opt/Xorg").unwrap();
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
