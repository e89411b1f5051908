//! A newcomer with many small jobs, who takes the memory that a GPU keeps free: the newest of
//! these jobs are ended, and nobody who was there before.

use super::{Box, goes_on};
use gpukill_tests::harness::{Actor, acting_as, can_act_as_others, eventually, is_over, user};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const HOLDER: u32 = user(141);
const NEWCOMER: u32 = user(142);

const RULES: &str = "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
    hard_enforcement = true\ncooldown_seconds = 0\n[gpu_policies.\"0\"]\nreserved_memory_gb = 1\n";

const MIB: u64 = 1 << 20;

/// Of these too much is in use after fifteen: none of them alone is enough.
const SMALL: u64 = 480 * MIB;

fn acts(uid: u32) -> Actor {
    acting_as(uid, &[], || {
        Actor::of(Command::new("sleep").arg("1000").process_group(0))
    })
}

#[test]
fn who_held_a_gpu_before_is_not_ended_for_the_many_jobs_of_a_newcomer() {
    if !can_act_as_others() {
        return;
    }
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let holder = acts(HOLDER);
    let large = (holder.pid(), 72 * super::super::GIB);
    super::super::plays(&stage, &[large]);
    let daemon = stage.start();
    goes_on(&stage);
    let newcomers: Vec<Actor> = (0..16).map(|_| acts(NEWCOMER)).collect();
    let go_on = || {
        let pids = newcomers.iter().map(Actor::pid);
        pids.filter(|pid| !is_over(*pid)).collect::<Vec<u32>>()
    };
    let shows = || {
        let left = go_on();
        let small = left.iter().map(|pid| (*pid, SMALL));
        let all: Vec<(u32, u64)> = small.chain([large]).collect();
        super::super::plays(&stage, &all);
        left.len()
    };
    assert_eq!(shows(), 16);
    eventually("as many are ended as must be", || {
        assert!(!is_over(holder.pid()), "the older holder was ended");
        (shows() == 14).then_some(())
    });
    goes_on(&stage);
    assert_eq!((shows(), is_over(holder.pid())), (14, false));
    daemon.stop();
}
