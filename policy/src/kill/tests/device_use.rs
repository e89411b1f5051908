//! Tests of device use, and of processes that the kernel reports as zombies.

use super::super::device_use::{device_use, device_users, is_zombie};
use super::super::*;
use super::fixture::*;
use gpukill_proto::units::Bytes;

/// Alice's 300 to 303. No process uses a device yet.
fn host() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    for pid in 300..304 {
        test_host.add(process(pid, 1, ALICE, "python"));
    }
    test_host
}

fn pids_of_users(test_host: &KillTestHost) -> Vec<u32> {
    let users = device_users(&test_host.snapshot, &test_host.holders);
    users.iter().map(|key| key.pid).collect()
}

#[test]
fn listed_open_and_shared_count_as_use() {
    let mut test_host = host();
    test_host.list_process(300, 0, 1);
    test_host.open_device(301, 0);
    let shares = test_host.open_device(302, 0);
    (shares.holds_this_device, shares.shares_with) = (false, Some(301));
    let listed = test_host.open_device(303, 1);
    (listed.holds_this_device, listed.listed) = (false, true);
    assert_eq!(pids_of_users(&test_host), [300, 301, 302, 303]);
    // Only files that all devices share.
    for held in &mut test_host.holders {
        for holder in &mut held.holders {
            (holder.holds_this_device, holder.listed) = (false, false);
            holder.shares_with = None;
        }
    }
    assert_eq!(pids_of_users(&test_host), [300]);
}

#[test]
fn listed_memory_is_counted_once() {
    let mut test_host = host();
    test_host.list_process(300, 0, 2);
    let holder = test_host.open_device(300, 0);
    holder.memory = Reading::Value(Bytes(2 * GIB));
    let used = device_use(&test_host.snapshot, &test_host.holders);
    let used = &used[&test_host.process_table[&300].lineage.key];
    let parts = &used.memory[&test_host.snapshot.devices[0].id];
    assert_eq!(**parts, [&Reading::Value(Bytes(2 * GIB))]);
}

#[test]
fn zombie_first_thread_is_no_zombie() {
    let mut test_host = host();
    test_host.process_mut(300).state = ProcessState::Zombie;
    test_host.open_device(300, 0);
    test_host.process_mut(301).state = ProcessState::Zombie;
    test_host.list_process(301, 0, 1);
    let used = device_use(&test_host.snapshot, &test_host.holders);
    let is = |pid: u32| {
        let process = &test_host.process_table[&pid];
        is_zombie(process, used.get(&process.lineage.key))
    };
    assert_eq!([300, 301, 302].map(is), [false, true, false]);
}
