//! Who uses a device, and whether one that is called a zombie has ended.

use super::super::usage::{is_zombie, usage, users};
use super::super::*;
use super::scene::*;
use gpukill_proto::units::Bytes;

/// Alice's 300 to 303; nobody uses a device yet.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for pid in 300..304 {
        scene.add(process(pid, 1, ALICE, "python"));
    }
    scene
}

fn pids_of_users(scene: &Scene) -> Vec<u32> {
    let users = users(&scene.snapshot, &scene.holders);
    users.iter().map(|key| key.pid).collect()
}

#[test]
fn whoever_is_listed_or_has_a_device_open_or_shares_anothers_uses_one() {
    let mut scene = scene();
    scene.uses(300, 0, 1);
    scene.opens(301, 0);
    let shares = scene.opens(302, 0);
    (shares.holds_this_device, shares.shares_with) = (false, Some(301));
    let listed = scene.opens(303, 1);
    (listed.holds_this_device, listed.listed) = (false, true);
    assert_eq!(pids_of_users(&scene), [300, 301, 302, 303]);
    // Only what all devices share.
    for held in &mut scene.holders {
        for holder in &mut held.holders {
            (holder.holds_this_device, holder.listed) = (false, false);
            holder.shares_with = None;
        }
    }
    assert_eq!(pids_of_users(&scene), [300]);
}

#[test]
fn memory_that_the_driver_lists_is_not_counted_again_for_who_has_the_device_open() {
    let mut scene = scene();
    scene.uses(300, 0, 2);
    let holder = scene.opens(300, 0);
    holder.memory = Reading::Value(Bytes(2 * GIB));
    let used = usage(&scene.snapshot, &scene.holders);
    let used = &used[&scene.crowd[&300].kin.key];
    let parts = &used.memory[&scene.snapshot.devices[0].id];
    assert_eq!(**parts, [&Reading::Value(Bytes(2 * GIB))]);
}

#[test]
fn one_whose_first_thread_alone_has_ended_has_files_open_and_is_no_zombie() {
    let mut scene = scene();
    scene.at(300).state = ProcessState::Zombie;
    scene.opens(300, 0);
    scene.at(301).state = ProcessState::Zombie;
    scene.uses(301, 0, 1);
    let used = usage(&scene.snapshot, &scene.holders);
    let is = |pid: u32| {
        let process = &scene.crowd[&pid];
        is_zombie(process, used.get(&process.kin.key))
    };
    assert_eq!([300, 301, 302].map(is), [false, true, false]);
}
