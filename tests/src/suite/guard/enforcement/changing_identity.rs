//! Enforce mode: properties that a process or its owner can choose, such as the uid within its
//! user namespace or a container in its cgroup, do not prevent the end.

use super::{GuardBox, MEMORY_RELEASE_TIME, last_outcome, wait_for_polls};
use crate::kill::changing_uids::UID_CHANGE_FUNCTIONS;
use gpukill_tests::harness::{
    Daemon, FakeDriver, FakeProcfs, Script, TestBox, eventually, eventually_equals, first_child,
    process_has_ended, python_with_namespaces,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// The longest time that the process keeps moving.
const MAX_DURATION: Duration = Duration::from_secs(90);

/// Starts a driver and a daemon that reads `procfs` instead of `/proc`.
fn start_with_procfs(test_box: &TestBox, procfs: &FakeProcfs) -> (FakeDriver, Daemon) {
    let driver = FakeDriver::start(test_box, MEMORY_RELEASE_TIME);
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut daemon);
    (driver, daemon)
}

#[test]
fn changing_uids_does_not_prevent_the_end() {
    let code = format!("{UID_CHANGE_FUNCTIONS}\nin_namespace()");
    let Some(mut python) = python_with_namespaces(&code) else {
        return;
    };
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let script = Script::spawn(&it.test_box, &mut python);
    let [pid] = script.next_pids();
    it.driver.add_processes(&[pid]);
    eventually_equals(&true, || process_has_ended(pid));
    it.daemon.stop();
}

/// The cgroup of a container that user 60901 created below their own systemd.
fn own_container(number: u32) -> String {
    let slice = "user.slice/user-60901.slice/user@60901.service";
    format!("0::/{slice}/docker-{number:064x}.scope\n")
}

#[test]
fn changing_containers_does_not_prevent_the_end() {
    let moves = "os.setgroups([]); become(60901); tell(os.getpid()); rest()";
    let Some(mut python) = python_with_namespaces(moves) else {
        return;
    };
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let script = Script::spawn(&test_box, &mut python);
    let [pid] = script.next_pids();
    procfs.link_with_changed_files(pid, &[("cgroup", Some(&own_container(0)))]);
    let cgroup = procfs.root().join(format!("{pid}/cgroup"));
    let (is_done, started_at) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = test_box.path("moved");
            for number in (1..50).cycle() {
                if is_done.load(Ordering::Relaxed) || started_at.elapsed() > MAX_DURATION {
                    break;
                }
                std::fs::write(&new, own_container(number)).unwrap();
                std::fs::rename(&new, &cgroup).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let (driver, daemon) = start_with_procfs(&test_box, &procfs);
        driver.add_processes(&[pid]);
        eventually("it was acted on", || process_has_ended(pid).then_some(()));
        is_done.store(true, Ordering::Relaxed);
        daemon.stop();
    });
}

#[test]
fn root_in_a_users_container_survives() {
    let two = "
tell(os.getpid())
if not os.fork():
    os.setgroups([]); become(60901); tell(os.getpid())
rest()";
    let Some(mut python) = python_with_namespaces(two) else {
        return;
    };
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let script = Script::spawn(&test_box, &mut python);
    let [root, own] = script.next_pids();
    for pid in [root, own] {
        procfs.link_with_changed_files(pid, &[("cgroup", Some(&own_container(1)))]);
    }
    let (driver, daemon) = start_with_procfs(&test_box, &procfs);
    driver.add_processes(&[own]);
    eventually_equals(&true, || process_has_ended(own));
    let rest = "the rest of its job is not ended: other users run processes in its container";
    assert_eq!(last_outcome(&test_box), json!([1, 0, rest]));
    wait_for_polls(&test_box);
    assert!(!process_has_ended(root));
    daemon.stop();
}

/// Python code for a container as LXC creates it, with uids mapped from 300000 on. User 1000 of
/// the container has user and PID namespaces of their own; the first process in them has a child
/// with another uid; user 1001 has one process. Prints the pids of the container's root, of user
/// 1001's process, and of the first process of the inner namespace.
const NESTED_NAMESPACES: &str = "
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
fn nested_namespace_belongs_to_its_creator() {
    let Some(mut python) = python_with_namespaces(NESTED_NAMESPACES) else {
        return;
    };
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let script = Script::spawn(&test_box, &mut python);
    let [root, other, first] = script.next_pids();
    let child = eventually("its child", || first_child(first));
    let is_user = |pid: u32, uid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}"))
    };
    eventually_equals(&true, || is_user(other, 301_001) && is_user(child, 302_004));
    for pid in [root, other, first, child] {
        let cgroup = Some("0::/lxc.payload.lab/init.scope\n");
        procfs.link_with_changed_files(pid, &[("cgroup", cgroup)]);
    }
    let (driver, daemon) = start_with_procfs(&test_box, &procfs);
    driver.add_processes(&[first]);
    eventually_equals(&true, || {
        process_has_ended(first) && process_has_ended(child)
    });
    wait_for_polls(&test_box);
    assert!(!process_has_ended(root) && !process_has_ended(other));
    daemon.stop();
}
