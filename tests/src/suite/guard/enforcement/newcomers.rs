//! Many small jobs of one new user take the reserved memory of a GPU: the guard ends the
//! newest of these jobs, and no earlier job.

use super::{GuardBox, wait_for_polls};
use gpukill_tests::harness::{
    TestProcess, can_run_as_other_users, eventually, process_has_ended, run_as_user, test_uid,
};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const HOLDER: u32 = test_uid(141);
const NEWCOMER: u32 = test_uid(142);

const RULES: &str = "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
    hard_enforcement = true\ncooldown_seconds = 0\n[gpu_policies.\"0\"]\nreserved_memory_gb = 1\n";

const MIB: u64 = 1 << 20;

/// The limit is exceeded from the fifteenth job on; no single job suffices.
const JOB_MEMORY: u64 = 480 * MIB;

fn process_of(uid: u32) -> TestProcess {
    run_as_user(uid, &[], || {
        TestProcess::spawn(Command::new("sleep").arg("1000").process_group(0))
    })
}

#[test]
fn earlier_holder_is_not_ended() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let holder = process_of(HOLDER);
    let large = (holder.pid(), 72 * super::super::GIB);
    super::super::set_gpu_processes(&test_box, &[large]);
    let daemon = test_box.start();
    wait_for_polls(&test_box);
    let newcomers: Vec<TestProcess> = (0..16).map(|_| process_of(NEWCOMER)).collect();
    let go_on = || {
        let pids = newcomers.iter().map(TestProcess::pid);
        pids.filter(|pid| !process_has_ended(*pid))
            .collect::<Vec<u32>>()
    };
    let shows = || {
        let left = go_on();
        let small = left.iter().map(|pid| (*pid, JOB_MEMORY));
        let all: Vec<(u32, u64)> = small.chain([large]).collect();
        super::super::set_gpu_processes(&test_box, &all);
        left.len()
    };
    assert_eq!(shows(), 16);
    eventually("as many are ended as must be", || {
        assert!(
            !process_has_ended(holder.pid()),
            "the older holder was ended"
        );
        (shows() == 14).then_some(())
    });
    wait_for_polls(&test_box);
    assert_eq!((shows(), process_has_ended(holder.pid())), (14, false));
    daemon.stop();
}
