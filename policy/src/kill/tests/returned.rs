//! How much memory of the ended ones is free again.

use super::super::returned::{is_back, returned};
use super::super::*;
use super::scene::*;
use gpukill_proto::kill::MemoryReturn;
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

fn keys(pids: &[u32]) -> BTreeSet<ProcessKey> {
    let key = |pid: &u32| ProcessKey {
        pid: *pid,
        start_ticks: u64::from(*pid),
    };
    pids.iter().map(key).collect()
}

/// 300 has 10 GiB of GPU 0 and 4 GiB of GPU 1, 301 has 5 GiB of GPU 0.
fn before() -> Scene {
    let mut scene = Scene::new();
    for pid in [300, 301, 302] {
        scene.add(process(pid, 1, ALICE, "python"));
    }
    for (pid, gpu, gib) in [(300, 0, 10), (300, 1, 4), (301, 0, 5)] {
        scene.uses(pid, gpu, gib);
    }
    scene
}

fn unattributed(scene: &mut Scene, gib: u64) {
    scene.snapshot.devices[0].memory_unattributed = gibs(gib);
}

fn gibs(gib: u64) -> Reading<Bytes> {
    Reading::Value(Bytes(gib * GIB))
}

/// What came back of GPU 0, when 300 has ended and 301 has not.
fn of_gpu_0(change: impl FnOnce(&mut Scene, &mut Scene)) -> Reading<Bytes> {
    let mut first = before();
    let mut now = before();
    now.snapshot.processes.retain(|process| process.pid != 300);
    change(&mut first, &mut now);
    let all = returned(
        &keys(&[300]),
        &keys(&[301]),
        &first.snapshot,
        &[],
        &now.snapshot,
    );
    all[0].returned.clone()
}

#[test]
fn what_the_ended_held_is_told_of_each_device_and_who_still_holds_some() {
    let mut now = before();
    now.snapshot.processes.retain(|process| process.pid != 300);
    let found = returned(
        &keys(&[300]),
        &keys(&[301, 302]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    let of = |index: u32, gib: u64, still_held_by: Vec<u32>| MemoryReturn {
        device: DeviceId(format!("GPU-{index}000aaaa")),
        index,
        held: gibs(gib),
        returned: gibs(gib),
        after_ms: None,
        still_held_by,
    };
    assert_eq!(found, [of(0, 10, vec![301]), of(1, 4, vec![])]);
    let nobody = returned(
        &keys(&[]),
        &keys(&[301]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    assert_eq!(nobody, []);
    // They hold none.
    now.snapshot.processes[0].memory = gibs(0);
    let found = returned(
        &keys(&[300]),
        &keys(&[301]),
        &before().snapshot,
        &[],
        &now.snapshot,
    );
    assert_eq!(found[0].still_held_by, [0; 0]);
}

#[test]
fn what_is_listed_as_theirs_or_newly_unattributed_has_not_come_back() {
    let all = of_gpu_0(|_, _| {});
    assert_eq!(all, gibs(10));
    let lingering = of_gpu_0(|_, now| unattributed(now, 3));
    assert_eq!(lingering, gibs(7));
    let before_already = of_gpu_0(|first, now| {
        unattributed(first, 3);
        unattributed(now, 3);
    });
    assert_eq!(before_already, gibs(10));
    let more_than_it_held = of_gpu_0(|_, now| unattributed(now, 60));
    assert_eq!(more_than_it_held, gibs(0));
    let freed_by_others = of_gpu_0(|first, _| unattributed(first, 20));
    assert_eq!(freed_by_others, gibs(10));
    // Of another process with its pid.
    let reused = of_gpu_0(|_, now| {
        now.at(300).kin.key.start_ticks = 9_000;
        now.uses(300, 0, 10);
    });
    assert_eq!(reused, gibs(10));
    let still_listed = of_gpu_0(|_, now| now.uses(300, 0, 6));
    assert_eq!(still_listed, gibs(4));
    // By a driver that lists pids of which there is no process any more.
    let listed_and_gone = of_gpu_0(|_, now| {
        now.uses(300, 0, 6);
        let gone = now.snapshot.processes.last_mut().unwrap();
        gone.start_ticks = Reading::Failed("no such process".into());
    });
    assert_eq!(listed_and_gone, gibs(4));
}

#[test]
fn what_nobody_explained_was_theirs_who_had_the_device_open_without_being_listed() {
    let mut first = before();
    unattributed(&mut first, 20);
    first.opens(302, 0);
    let ended = keys(&[302]);
    let found = |now_unattributed, ended: &BTreeSet<ProcessKey>| {
        let mut now = before();
        unattributed(&mut now, now_unattributed);
        let none = BTreeSet::new();
        let all = returned(ended, &none, &first.snapshot, &first.holders, &now.snapshot);
        let told = all
            .first()
            .map(|it| (it.held.clone(), it.returned.clone(), is_back(it)));
        (all.len(), told)
    };
    assert_eq!(found(0, &ended), (1, Some((gibs(20), gibs(20), true))));
    assert_eq!(found(5, &ended), (1, Some((gibs(20), gibs(15), false))));
    assert_eq!(found(30, &ended), (1, Some((gibs(20), gibs(0), false))));
    // One that had nothing open had none of it.
    assert_eq!(found(0, &keys(&[303])), (0, None));
    // Nor had one that was listed, or had only open what all devices share.
    for (listed, holds_this_device) in [(true, true), (false, false)] {
        let mut first = before();
        unattributed(&mut first, 20);
        let holder = first.opens(302, 0);
        (holder.listed, holder.holds_this_device) = (listed, holds_this_device);
        let none = BTreeSet::new();
        let all = returned(
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
fn what_is_not_known_is_not_taken_for_returned() {
    let why = |text: &str| Reading::Failed(text.to_owned());
    let stale = of_gpu_0(|_, now| {
        now.snapshot.devices[0].memory_unattributed = Reading::Stale(Bytes(0), 30);
    });
    assert_eq!(stale, why("the device was not read since"));
    let failed = of_gpu_0(|_, now| {
        now.snapshot.devices[0].memory_unattributed = why("x");
    });
    assert_eq!(failed, why("x"));
    let lost = of_gpu_0(|_, now| {
        now.snapshot.devices.remove(0);
    });
    assert_eq!(lost, why("the device is not there"));
    let listed = of_gpu_0(|_, now| {
        now.uses(300, 0, 6);
        now.snapshot.processes.last_mut().unwrap().memory = Reading::Unsupported;
    });
    assert_eq!(listed, why("what is still listed as theirs is not known"));
    let never_known = of_gpu_0(|first, _| first.snapshot.processes[0].memory = why("x"));
    assert_eq!(never_known, why("x"));
    // What was unattributed before is not known: all that is now may be theirs.
    let unknown_before = of_gpu_0(|first, now| {
        first.snapshot.devices[0].memory_unattributed = why("x");
        unattributed(now, 3);
    });
    assert_eq!(unknown_before, gibs(7));
}
