//! A container of several people: whose processes end for what one of them did.

use super::super::Candidate;
use super::super::shared::{Narrowed, narrow};
use super::scene::*;
use gpukill_proto::kill::{KillPlan, KillRequest, KillScope, KillTarget};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, ProcessKey};
use std::collections::BTreeSet;

/// The pid of a process in the box's container, its parent, its user, and who made its
/// user namespace.
type Member = (u32, u32, u32, Option<u32>);

/// A box with a container of these processes. The container's root is uid `root`.
fn container_of(members: &[Member], root: u32) -> Scene {
    let mut scene = Scene::new();
    for (pid, parent, uid, maker) in members {
        let mut member = process(*pid, *parent, *uid, "python");
        let container = container('a', "lab", None);
        member.job = Reading::Value(Job::Container {
            id: container.id.clone(),
            manager: None,
        });
        member.container = Reading::Value(Some(container));
        member.namespace_owner = Reading::Value(*maker);
        member.kin.maker = maker.filter(|maker| *maker != 0);
        member.namespace_root = (*maker == Some(0)).then_some(root);
        member.pid_namespace = Some(7);
        member.is_namespace_init = *pid == 300;
        scene.add(member);
    }
    // Somebody else's, on the box itself.
    scene.add(process(900, 1, BOB, "python"));
    scene
}

/// What is left of a plan for the whole container after these were judged, and whose later
/// processes may join it.
fn left(scene: &Scene, judged: &[u32]) -> Result<(Vec<u32>, Option<Vec<u32>>), String> {
    let key = |pid: &u32| scene.crowd[pid].kin.key;
    let target = |it: &Candidate| KillTarget {
        key: it.kin.key,
        name: it.kin.name.clone(),
        command: Reading::Unsupported,
        uid: it.uids.clone().map(|uids| uids.real),
        owner: Reading::Value("container lab".into()),
        holds: Vec::new(),
        named: judged.contains(&it.kin.key.pid),
        job: it.job.clone(),
        fate: gpukill_proto::kill::Fate::End(Vec::new()),
        overridden: None,
    };
    let members = scene.crowd.values();
    let members = members.filter(|it| matches!(it.container, Reading::Value(Some(_))));
    let plan = KillPlan {
        request: KillRequest {
            scope: KillScope::Job,
            ..KillRequest::default()
        },
        targets: members.map(target).collect(),
        ..KillPlan::default()
    };
    let judged: BTreeSet<ProcessKey> = judged.iter().map(key).collect();
    let Narrowed { plan, users } = narrow(plan, &judged, &scene.crowd)?;
    let pids = plan.targets.iter().map(|target| target.key.pid).collect();
    Ok((pids, users.map(|people| people.users.into_iter().collect())))
}

#[test]
fn one_user_and_root_are_ended_as_a_whole() {
    let cases: [(&str, &[Member], u32); 4] = [
        ("root alone", &[(300, 1, 0, None), (301, 300, 0, None)], 0),
        (
            "root of the box and one user",
            &[(300, 1, 0, None), (301, 300, 1001, None)],
            0,
        ),
        (
            "a root that is mapped, and one user",
            &[(300, 1, 100_000, Some(0)), (301, 300, 101_001, Some(0))],
            100_000,
        ),
        (
            "a rootless container with subordinate users",
            &[
                (300, 1, ALICE, Some(ALICE)),
                (301, 300, 165_537, Some(ALICE)),
                (302, 300, 165_538, Some(ALICE)),
            ],
            0,
        ),
    ];
    for (what, members, root) in cases {
        let all: Vec<u32> = members.iter().map(|(pid, ..)| *pid).collect();
        assert_eq!(
            left(&container_of(members, root), &[301]),
            Ok((all, None)),
            "{what}"
        );
    }
}

#[test]
fn only_the_judged_persons_processes_end_where_several_share_a_container() {
    let shared = |root, maker| {
        container_of(
            &[
                (300, 1, root, maker),
                (301, 300, root + 1001, maker),
                (302, 301, root + 1001, maker),
                (303, 300, root + 1002, maker),
            ],
            root,
        )
    };
    for (root, maker) in [(0, None), (100_000, Some(0))] {
        let of = |judged: &[u32]| left(&shared(root, maker), judged);
        let users = |uids: &[u32]| Some(uids.iter().map(|uid| root + uid).collect::<Vec<_>>());
        assert_eq!(of(&[301]), Ok((vec![301, 302], users(&[1001]))));
        assert_eq!(of(&[303]), Ok((vec![303], users(&[1002]))));
        // What root runs there it runs for all.
        assert_eq!(
            of(&[300]).unwrap_err(),
            "process 300 is the first of its container, and other users' processes would end with it"
        );
    }
    // Whom a nested namespace hides behind another number is known by who made that.
    let nested = container_of(
        &[
            (300, 1, 0, None),
            (301, 300, 1001, None),
            (302, 301, 1001, Some(1001)),
            (303, 300, 1002, Some(1002)),
            (304, 303, 4_000_000, Some(1002)),
        ],
        0,
    );
    assert_eq!(
        left(&nested, &[303]),
        Ok((vec![303, 304], Some(vec![1002])))
    );
    // A process of an unknown user may be anybody's.
    let mut unknown = container_of(
        &[
            (300, 1, 0, None),
            (301, 300, 1001, None),
            (302, 300, 7, None),
        ],
        0,
    );
    unknown.at(302).uids = Reading::Failed("gone".into());
    assert_eq!(left(&unknown, &[301]), Ok((vec![301], Some(vec![1001]))));
}

#[test]
fn in_a_persons_own_container_root_and_others_are_left_alone() {
    let own = |members: &[Member]| {
        let mut scene = container_of(members, 0);
        for (pid, ..) in members {
            let member = scene.at(*pid);
            let container = container('c', "mine", Some(1001));
            member.job = Reading::Value(Job::Container {
                id: container.id.clone(),
                manager: container.manager,
            });
            member.container = Reading::Value(Some(container));
        }
        scene
    };
    // She put her shell there, and ran `sudo` and `su` in it.
    let with_root = own(&[
        (301, 1, 1001, None),
        (302, 301, 60_006, Some(1001)),
        (303, 301, 0, None),
        (304, 303, 1002, None),
        // `nsenter --user` of root's.
        (305, 1, 0, Some(1001)),
    ]);
    let of = |judged: &[u32]| left(&with_root, judged);
    assert_eq!(of(&[302]), Ok((vec![301, 302], Some(vec![1001]))));
    assert_eq!(of(&[304]), Ok((vec![304], Some(vec![1002]))));
    assert_eq!(of(&[303]), Ok((vec![303, 305], Some(vec![0]))));
    // All of hers, where nobody else is in it.
    let alone = own(&[(301, 1, 1001, None), (302, 301, 60_006, Some(1001))]);
    assert_eq!(left(&alone, &[302]), Ok((vec![301, 302], None)));
}

#[test]
fn in_a_container_of_roots_a_nested_namespace_is_its_makers() {
    // Carol's, as LXC maps her, with a namespace of hers where 350 is the first process;
    // bob's; and one that the container's root made for bob.
    let nested = |child: Option<u32>| {
        let root = Some(0);
        let mut scene = container_of(
            &[
                (300, 1, 100_000, root),
                (301, 300, 101_001, root),
                (350, 301, 101_001, root),
                (351, 350, 102_005, root),
                (303, 300, 101_002, root),
                (304, 300, 101_002, root),
            ],
            100_000,
        );
        for pid in [350, 351] {
            scene.at(pid).kin.maker = Some(101_001);
            scene.at(pid).pid_namespace = Some(8);
        }
        scene.at(351).kin.maker = child;
        scene.at(350).is_namespace_init = true;
        scene.at(304).kin.maker = Some(100_000);
        scene
    };
    let carols = Ok((vec![301, 350, 351], Some(vec![101_001])));
    assert_eq!(left(&nested(Some(101_001)), &[350]), carols);
    let bobs = Ok((vec![303, 304], Some(vec![101_002])));
    assert_eq!(left(&nested(Some(101_001)), &[303]), bobs);
    // In a namespace of nobody's else that child may be another person's.
    let why =
        "process 350 is the first of its container, and other users' processes would end with it";
    assert_eq!(left(&nested(None), &[350]), Err(why.into()));
}

#[test]
fn the_first_process_of_a_namespace_ends_only_with_its_owners_processes() {
    // carol's was started from outside, as `docker exec` does.
    let members = [
        (300, 1, 1001, None),
        (301, 300, 1001, None),
        (400, 1, 1002, None),
    ];
    let scene = container_of(&members, 0);
    assert!(left(&scene, &[300, 301]).is_err());
    assert_eq!(left(&scene, &[301]), Ok((vec![301], Some(vec![1001]))));
    // In a namespace of its own nobody else ends with it.
    let mut apart = container_of(&members, 0);
    apart.at(400).pid_namespace = Some(8);
    assert_eq!(left(&apart, &[300]), Ok((vec![300, 301], Some(vec![1001]))));
    // Or where somebody else's descends from it, in a namespace below.
    apart.at(400).parent = 301;
    assert!(left(&apart, &[300]).is_err());
}
