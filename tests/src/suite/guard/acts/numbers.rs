//! Enforce: what a process or its owner can choose, such as the number of its user within
//! a user namespace of theirs, or a container in a cgroup of theirs, keeps nobody from
//! their end.

use super::{Box, TEARDOWN, acted, goes_on};
use crate::acting::numbers::TURNS;
use gpukill_tests::harness::{
    Daemon, Driver, Procfs, Stage, Troupe, becomes, child_of, eventually, is_over,
    python_with_namespaces,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// It moves for so long at most, where nobody ends it.
const MOST: Duration = Duration::from_secs(90);

/// A box with these rules whose daemon sees this instead of `/proc`.
fn seen_in(stage: &Stage, procfs: &Procfs) -> (Driver, Daemon) {
    let driver = Driver::start(stage, TEARDOWN);
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut daemon);
    (driver, daemon)
}

#[test]
fn changing_its_user_for_ever_keeps_nobody_from_their_end() {
    let script = format!("{TURNS}\nin_namespace()");
    let Some(mut python) = python_with_namespaces(&script) else {
        return;
    };
    let Some(it) = Box::by(RULES) else { return };
    let troupe = Troupe::of(&it.stage, &mut python);
    let [pid] = troupe.pids();
    it.driver.lists(&[pid]);
    becomes(&true, || is_over(pid));
    it.daemon.stop();
}

/// The cgroup of a container that user 60901 made below their own systemd, by its number.
fn own_container(number: u32) -> String {
    let slice = "user.slice/user-60901.slice/user@60901.service";
    format!("0::/{slice}/docker-{number:064x}.scope\n")
}

#[test]
fn moving_between_containers_of_ones_own_keeps_nobody_from_their_end() {
    let moves = "os.setgroups([]); become(60901); tell(os.getpid()); rest()";
    let Some(mut python) = python_with_namespaces(moves) else {
        return;
    };
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let troupe = Troupe::of(&stage, &mut python);
    let [pid] = troupe.pids();
    procfs.dress(pid, &[("cgroup", Some(&own_container(0)))]);
    let cgroup = procfs.root().join(format!("{pid}/cgroup"));
    let (is_done, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = stage.path("moved");
            for number in (1..50).cycle() {
                if is_done.load(Ordering::Relaxed) || begun.elapsed() > MOST {
                    break;
                }
                std::fs::write(&new, own_container(number)).unwrap();
                std::fs::rename(&new, &cgroup).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let (driver, daemon) = seen_in(&stage, &procfs);
        driver.lists(&[pid]);
        eventually("it was acted on", || is_over(pid).then_some(()));
        is_done.store(true, Ordering::Relaxed);
        daemon.stop();
    });
}

#[test]
fn root_in_a_persons_own_container_goes_on() {
    let two = "
tell(os.getpid())
if not os.fork():
    os.setgroups([]); become(60901); tell(os.getpid())
rest()";
    let Some(mut python) = python_with_namespaces(two) else {
        return;
    };
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let troupe = Troupe::of(&stage, &mut python);
    let [root, own] = troupe.pids();
    for pid in [root, own] {
        procfs.dress(pid, &[("cgroup", Some(&own_container(1)))]);
    }
    let (driver, daemon) = seen_in(&stage, &procfs);
    driver.lists(&[own]);
    becomes(&true, || is_over(own));
    let rest = "the rest of its job is left alone: other users run processes in its container";
    assert_eq!(acted(&stage), json!([1, 0, rest]));
    goes_on(&stage);
    assert!(!is_over(root));
    daemon.stop();
}

/// Python for a container as LXC makes them, whose users are mapped from 300000 on: user
/// 1000 of it has a namespace of users and PIDS of their own, whose first process has a
/// child that runs as another user, and user 1001 a process. Tells the pids of the
/// container's root, of that first process, and of user 1001's.
const NESTED: &str = "
def below():
    first = os.fork()
    if not first:
        if not os.fork(): become(5)
        rest()
    tell(first)
    rest()

def container():
    tell(os.getpid())
    other = os.fork()
    if not other:
        os.setgroups([])
        become(1001)
        rest()
    tell(other)
    mapped(USERS | PIDS, 1000, '0 1000 1\\n1 2000 100\\n', below)

mapped(USERS, None, '0 300000 65536\\n', container)";

#[test]
fn a_namespace_within_a_container_is_its_makers() {
    let Some(mut python) = python_with_namespaces(NESTED) else {
        return;
    };
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let procfs = Procfs::at(stage.path("proc"));
    let troupe = Troupe::of(&stage, &mut python);
    let [root, other, first] = troupe.pids();
    let child = eventually("its child", || child_of(first));
    let is_user = |pid: u32, uid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}"))
    };
    becomes(&true, || is_user(other, 301_001) && is_user(child, 302_004));
    for pid in [root, other, first, child] {
        let cgroup = Some("0::/lxc.payload.lab/init.scope\n");
        procfs.dress(pid, &[("cgroup", cgroup)]);
    }
    let (driver, daemon) = seen_in(&stage, &procfs);
    driver.lists(&[first]);
    becomes(&true, || is_over(first) && is_over(child));
    goes_on(&stage);
    assert!(!is_over(root) && !is_over(other));
    daemon.stop();
}
