//! Tests of reclaimed memory.

use super::super::reclaimed::{is_reclaimed, reclaimed_memory};
use super::super::*;
use super::fixture::*;
use gpukill_proto::kill::MemoryReclaim;
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

fn keys(pids: &[u32]) -> BTreeSet<ProcessKey> {
    let key = |pid: &u32| ProcessKey {
        pid: *pid,
        start_ticks: u64::from(*pid),
    };
    pids.iter().map(key).collect()
}

/// 300 has 10 GiB of GPU 0 and 4 GiB of GPU 1. 301 has 5 GiB of GPU 0.
fn before() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    for pid in [300, 301, 302] {
        test_host.add(process(pid, 1, ALICE, "python"));
    }
    for (pid, gpu, gib) in [(300, 0, 10), (300, 1, 4), (301, 0, 5)] {
        test_host.list_process(pid, gpu, gib);
    }
    test_host
}

fn unattributed(test_host: &mut KillTestHost, gib: u64) {
    test_host.snapshot.devices[0].memory_unattributed = gibs(gib);
}

fn gibs(gib: u64) -> Reading<Bytes> {
    Reading::Value(Bytes(gib * GIB))
}

/// The reclaimed memory of GPU 0, where 300 has ended and 301 has not.
fn reclaimed_on_gpu_0(change: impl FnOnce(&mut KillTestHost, &mut KillTestHost)) -> Reading<Bytes> {
    let mut first = before();
    let mut now = before();
    now.snapshot.processes.retain(|process| process.pid != 300);
    change(&mut first, &mut now);
    let all = reclaimed_memory(
        &keys(&[300]),
        &keys(&[301]),
        &first.snapshot,
        &[],
        &now.snapshot,
    );
    all[0].returned.clone()
}

#[test]
fn reclaimed_memory_of_each_device() {
    let mut now = before();
    now.snapshot.processes.retain(|process| process.pid != 300);
    let found = reclaimed_memory(
        &keys(&[300]),
        &keys(&[301, 302]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    let of = |index: u32, gib: u64, still_held_by: Vec<u32>| MemoryReclaim {
        device: DeviceId(format!("GPU-{index}000aaaa")),
        index,
        held: gibs(gib),
        returned: gibs(gib),
        after_ms: None,
        still_held_by,
    };
    assert_eq!(found, [of(0, 10, vec![301]), of(1, 4, vec![])]);
    let nobody = reclaimed_memory(
        &keys(&[]),
        &keys(&[301]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    assert_eq!(nobody, []);
    // Listed without memory.
    now.snapshot.processes[0].memory = gibs(0);
    let found = reclaimed_memory(
        &keys(&[300]),
        &keys(&[301]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    assert_eq!(found[0].still_held_by, [0; 0]);
}

#[test]
fn listed_or_newly_unattributed_is_not_reclaimed() {
    let all = reclaimed_on_gpu_0(|_, _| {});
    assert_eq!(all, gibs(10));
    let lingering = reclaimed_on_gpu_0(|_, now| unattributed(now, 3));
    assert_eq!(lingering, gibs(7));
    let before_already = reclaimed_on_gpu_0(|first, now| {
        unattributed(first, 3);
        unattributed(now, 3);
    });
    assert_eq!(before_already, gibs(10));
    let more_than_it_held = reclaimed_on_gpu_0(|_, now| unattributed(now, 60));
    assert_eq!(more_than_it_held, gibs(0));
    let freed_by_others = reclaimed_on_gpu_0(|first, _| unattributed(first, 20));
    assert_eq!(freed_by_others, gibs(10));
    // Listed for another process with a reused pid.
    let reused = reclaimed_on_gpu_0(|_, now| {
        now.process_mut(300).lineage.key.start_ticks = 9_000;
        now.list_process(300, 0, 10);
    });
    assert_eq!(reused, gibs(10));
    let still_listed = reclaimed_on_gpu_0(|_, now| now.list_process(300, 0, 6));
    assert_eq!(still_listed, gibs(4));
    // A driver that lists pids of ended processes.
    let listed_and_gone = reclaimed_on_gpu_0(|_, now| {
        now.list_process(300, 0, 6);
        let gone = now.snapshot.processes.last_mut().unwrap();
        gone.start_ticks = Reading::Failed("no such process".into());
    });
    assert_eq!(listed_and_gone, gibs(4));
}

#[test]
fn unattributed_memory_of_unlisted_holder_counts() {
    let mut first = before();
    unattributed(&mut first, 20);
    first.open_device(302, 0);
    let ended = keys(&[302]);
    let found = |now_unattributed, ended: &BTreeSet<ProcessKey>| {
        let mut now = before();
        unattributed(&mut now, now_unattributed);
        let none = BTreeSet::new();
        let all = reclaimed_memory(ended, &none, &first.snapshot, &first.holders, &now.snapshot);
        let actual = all
            .first()
            .map(|it| (it.held.clone(), it.returned.clone(), is_reclaimed(it)));
        (all.len(), actual)
    };
    assert_eq!(found(0, &ended), (1, Some((gibs(20), gibs(20), true))));
    assert_eq!(found(5, &ended), (1, Some((gibs(20), gibs(15), false))));
    assert_eq!(found(30, &ended), (1, Some((gibs(20), gibs(0), false))));
    // A process without the device open had none of the memory.
    assert_eq!(found(0, &keys(&[303])), (0, None));
    // The same for a listed process, and for a process with only shared files open.
    for (listed, holds_this_device) in [(true, true), (false, false)] {
        let mut first = before();
        unattributed(&mut first, 20);
        let holder = first.open_device(302, 0);
        (holder.listed, holder.holds_this_device) = (listed, holds_this_device);
        let none = BTreeSet::new();
        let all = reclaimed_memory(
            &ended,
            &none,
            &first.snapshot,
            &first.holders,
            &before().snapshot,
        );
        assert_eq!(all, [], "{listed} {holds_this_device}");
    }
}

#[test]
fn unknown_is_not_reclaimed() {
    let why = |text: &str| Reading::Failed(text.to_owned());
    let stale = reclaimed_on_gpu_0(|_, now| {
        now.snapshot.devices[0].memory_unattributed = Reading::Stale(Bytes(0), 30);
    });
    assert_eq!(stale, why("the device was not read again"));
    let failed = reclaimed_on_gpu_0(|_, now| {
        now.snapshot.devices[0].memory_unattributed = why("x");
    });
    assert_eq!(failed, why("x"));
    let lost = reclaimed_on_gpu_0(|_, now| {
        now.snapshot.devices.remove(0);
    });
    assert_eq!(lost, why("the device is gone"));
    let listed = reclaimed_on_gpu_0(|_, now| {
        now.list_process(300, 0, 6);
        now.snapshot.processes.last_mut().unwrap().memory = Reading::Unsupported;
    });
    assert_eq!(
        listed,
        why("the memory still listed for the ended processes is not known")
    );
    let never_known = reclaimed_on_gpu_0(|first, _| first.snapshot.processes[0].memory = why("x"));
    assert_eq!(never_known, why("x"));
    // Where the earlier value is unknown, all unattributed memory may belong to the
    // ended processes.
    let unknown_before = reclaimed_on_gpu_0(|first, now| {
        first.snapshot.devices[0].memory_unattributed = why("x");
        unattributed(now, 3);
    });
    assert_eq!(unknown_before, gibs(7));
}
