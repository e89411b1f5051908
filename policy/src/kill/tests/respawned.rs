//! Who came in the place of ended ones.

use super::super::respawned::respawned;
use super::super::*;
use super::scene::*;
use gpukill_proto::kill::{Reaper, Respawn};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;

/// A launcher of alice's with a worker, in a service.
fn before() -> Scene {
    let mut scene = Scene::new();
    let launcher = scene.add(process(300, 1, ALICE, "torchrun"));
    launcher.kin.unit = Some(unit("train.service", None));
    scene.fork(310, 300, "python");
    scene
}

/// Who is said to have come in the place of 310, where this came: by pid, unit and
/// parent. `members` were ended, or tried.
fn came(members: &[u32], change: impl FnOnce(&mut Scene)) -> Vec<(u32, bool, Option<u32>)> {
    came_instead(&before(), members, change)
}

fn came_instead(
    first: &Scene,
    members: &[u32],
    change: impl FnOnce(&mut Scene),
) -> Vec<(u32, bool, Option<u32>)> {
    let mut now = before();
    now.crowd.remove(&310);
    change(&mut now);
    let key = |pid: &u32| ProcessKey {
        pid: *pid,
        start_ticks: u64::from(*pid),
    };
    let members: BTreeSet<ProcessKey> = members.iter().map(key).collect();
    let ended = [key(&310)].into();
    let found = respawned(&ended, &members, &first.crowd, &now.crowd);
    let told = found.into_iter().map(|it| {
        let parent = it.parent.map(|parent| parent.pid);
        (it.key.pid, it.unit.is_some(), parent)
    });
    told.collect()
}

/// As 310 was.
fn anew(now: &mut Scene) -> &mut Candidate {
    now.fork(320, 300, "python")
}

#[test]
fn whoever_started_the_ended_one_and_starts_it_again_is_named() {
    let mut now = before();
    now.crowd.remove(&310);
    anew(&mut now);
    let ended: BTreeSet<ProcessKey> = [before().crowd[&310].kin.key].into();
    let found = respawned(&ended, &ended, &before().crowd, &now.crowd);
    let expected = Respawn {
        key: now.crowd[&320].kin.key,
        name: "python".into(),
        unit: Some(unit("train.service", None)),
        parent: Some(Reaper {
            pid: 300,
            name: Reading::Value("torchrun".into()),
        }),
    };
    assert_eq!(found, [expected]);
}

#[test]
fn the_unit_or_the_parent_alone_is_enough() {
    let elsewhere = came(&[310], |now| {
        anew(now).kin.unit = Some(unit("other.service", None));
    });
    assert_eq!(elsewhere, [(320, false, Some(300))]);
    let of_systemd = came(&[310], |now| anew(now).parent = 1);
    assert_eq!(of_systemd, [(320, true, None)]);
    // What was ended too starts nobody, and no more does another with its pid.
    assert_eq!(
        came(&[300, 310], |now| {
            anew(now);
        }),
        [(320, true, None)]
    );
    let replaced = came(&[310], |now| {
        anew(now);
        now.at(300).kin.key.start_ticks = 9_000;
    });
    assert_eq!(replaced, [(320, true, None)]);
}

#[test]
fn neither_a_scope_nor_process_1_starts_anybody() {
    let mut first = before();
    let of_scope = |scene: &mut Scene, pid: u32| {
        scene.at(pid).kin.unit = Some(unit("session-3.scope", None));
    };
    of_scope(&mut first, 310);
    first.at(310).parent = 1;
    let found = came_instead(&first, &[310], |now| {
        anew(now).parent = 1;
        of_scope(now, 320);
    });
    assert_eq!(found, []);
}

#[test]
fn who_does_something_else_or_was_there_or_is_ended_with_them_came_in_nobodys_place() {
    type Change = fn(&mut Scene);
    let cases: [(&str, Change); 6] = [
        ("another program", |now| {
            anew(now).kin.executable = Some("/usr/bin/tee".into());
        }),
        ("another user", |now| anew(now).kin.uid = Some(BOB)),
        ("another command", |now| {
            anew(now).command = Reading::Value("python eval.py".into());
        }),
        ("a program that is not known", |now| {
            anew(now).kin.executable = None;
        }),
        ("a user who is not known", |now| anew(now).kin.uid = None),
        ("nobody", |_| {}),
    ];
    for (what, change) in cases {
        assert_eq!(came(&[310], change), [], "{what}");
    }
    assert_eq!(
        came(&[310, 320], |now| {
            anew(now);
        }),
        []
    );
    let mut first = before();
    anew(&mut first);
    assert_eq!(
        came_instead(&first, &[310], |now| {
            anew(now);
        }),
        []
    );
    // What is not known of the ended one is no reason to take another for it.
    let mut first = before();
    first.at(310).kin.executable = None;
    let found = came_instead(&first, &[310], |now| anew(now).kin.executable = None);
    assert_eq!(found, []);
    let mut first = before();
    first.at(310).command = Reading::Failed("x".into());
    let found = came_instead(&first, &[310], |now| {
        anew(now);
    });
    assert_eq!(found, [(320, true, Some(300))]);
}
