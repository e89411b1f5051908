//! Tests of containers with several users: which processes end for the violation of one
//! of them.

use super::super::ProcessInfo;
use super::super::shared_container::{NarrowedPlan, narrow_plan};
use super::fixture::*;
use gpukill_proto::kill::{KillPlan, KillRequest, KillScope, KillTarget};
use gpukill_proto::model::{Job, ProcessKey};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// A process of the container: pid, parent, user, and creator of its user namespace.
type ContainerMember = (u32, u32, u32, Option<u32>);

/// A host with a container of these processes. Root of the container is uid `root`.
fn container_of(members: &[ContainerMember], root: u32) -> KillTestHost {
    let mut test_host = KillTestHost::new();
    for (pid, parent, uid, namespace_creator) in members {
        let mut member = process(*pid, *parent, *uid, "python");
        let container = container('a', "lab", None);
        member.job = Reading::Value(Job::Container {
            id: container.id.clone(),
            manager: None,
        });
        member.container = Reading::Value(Some(container));
        member.namespace_owner = Reading::Value(*namespace_creator);
        member.lineage.namespace_creator =
            namespace_creator.filter(|namespace_creator| *namespace_creator != 0);
        member.namespace_root = (*namespace_creator == Some(0)).then_some(root);
        member.pid_namespace = Some(7);
        member.is_namespace_init = *pid == 300;
        test_host.add(member);
    }
    // A process of another user, outside the container.
    test_host.add(process(900, 1, BOB, "python"));
    test_host
}

/// The remaining targets of a plan for the whole container after these processes were
/// evaluated, and the users that may add later processes.
fn narrowed(
    test_host: &KillTestHost,
    evaluated: &[u32],
) -> Result<(Vec<u32>, Option<Vec<u32>>), String> {
    let key = |pid: &u32| test_host.process_table[pid].lineage.key;
    let target = |it: &ProcessInfo| KillTarget {
        key: it.lineage.key,
        name: it.lineage.name.clone(),
        command: Reading::Unsupported,
        uid: it.uids.clone().map(|uids| uids.real),
        owner: Reading::Value("container lab".into()),
        holds: Vec::new(),
        named: evaluated.contains(&it.lineage.key.pid),
        job: it.job.clone(),
        action: gpukill_proto::kill::PlannedAction::End(Vec::new()),
        overridden: None,
    };
    let members = test_host.process_table.values();
    let members = members.filter(|it| matches!(it.container, Reading::Value(Some(_))));
    let plan = KillPlan {
        request: KillRequest {
            scope: KillScope::Job,
            ..KillRequest::default()
        },
        targets: members.map(target).collect(),
        ..KillPlan::default()
    };
    let evaluated: BTreeSet<ProcessKey> = evaluated.iter().map(key).collect();
    let NarrowedPlan { plan, users } = narrow_plan(plan, &evaluated, &test_host.process_table)?;
    let pids = plan.targets.iter().map(|target| target.key.pid).collect();
    Ok((pids, users.map(|people| people.users.into_iter().collect())))
}

#[test]
fn one_user_and_root_end_as_a_whole() {
    let cases: [(&str, &[ContainerMember], u32); 4] = [
        ("root alone", &[(300, 1, 0, None), (301, 300, 0, None)], 0),
        (
            "root of the host and one user",
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
            narrowed(&container_of(members, root), &[301]),
            Ok((all, None)),
            "{what}"
        );
    }
}

#[test]
fn only_the_judged_person_ends() {
    let shared = |root, namespace_creator| {
        container_of(
            &[
                (300, 1, root, namespace_creator),
                (301, 300, root + 1001, namespace_creator),
                (302, 301, root + 1001, namespace_creator),
                (303, 300, root + 1002, namespace_creator),
            ],
            root,
        )
    };
    for (root, namespace_creator) in [(0, None), (100_000, Some(0))] {
        let of = |evaluated: &[u32]| narrowed(&shared(root, namespace_creator), evaluated);
        let users = |uids: &[u32]| Some(uids.iter().map(|uid| root + uid).collect::<Vec<_>>());
        assert_eq!(of(&[301]), Ok((vec![301, 302], users(&[1001]))));
        assert_eq!(of(&[303]), Ok((vec![303], users(&[1002]))));
        // Root runs its processes in the container for all users.
        assert_eq!(
            of(&[300]).unwrap_err(),
            "process 300 is the init process of its container, and processes of other users would \
            end with it"
        );
    }
    // A user behind another uid of a nested namespace is known as the creator of that
    // namespace.
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
        narrowed(&nested, &[303]),
        Ok((vec![303, 304], Some(vec![1002])))
    );
    // A process of an unknown user may belong to anyone.
    let mut unknown = container_of(
        &[
            (300, 1, 0, None),
            (301, 300, 1001, None),
            (302, 300, 7, None),
        ],
        0,
    );
    unknown.process_mut(302).uids = Reading::Failed("gone".into());
    assert_eq!(
        narrowed(&unknown, &[301]),
        Ok((vec![301], Some(vec![1001])))
    );
}

#[test]
fn own_container_spares_root_and_others() {
    let own = |members: &[ContainerMember]| {
        let mut test_host = container_of(members, 0);
        for (pid, ..) in members {
            let member = test_host.process_mut(*pid);
            let container = container('c', "mine", Some(1001));
            member.job = Reading::Value(Job::Container {
                id: container.id.clone(),
                manager: container.manager,
            });
            member.container = Reading::Value(Some(container));
        }
        test_host
    };
    // She put her shell there, and ran `sudo` and `su` in it.
    let with_root = own(&[
        (301, 1, 1001, None),
        (302, 301, 60_006, Some(1001)),
        (303, 301, 0, None),
        (304, 303, 1002, None),
        // `nsenter --user` by root.
        (305, 1, 0, Some(1001)),
    ]);
    let of = |evaluated: &[u32]| narrowed(&with_root, evaluated);
    assert_eq!(of(&[302]), Ok((vec![301, 302], Some(vec![1001]))));
    assert_eq!(of(&[304]), Ok((vec![304], Some(vec![1002]))));
    assert_eq!(of(&[303]), Ok((vec![303, 305], Some(vec![0]))));
    // All her processes, where no other user is in the container.
    let alone = own(&[(301, 1, 1001, None), (302, 301, 60_006, Some(1001))]);
    assert_eq!(narrowed(&alone, &[302]), Ok((vec![301, 302], None)));
}

#[test]
fn nested_namespace_belongs_to_its_creator() {
    // Carol, as LXC maps her, with a namespace of hers, first process 350; bob;
    // and a namespace that the root of the container created for bob.
    let nested = |child: Option<u32>| {
        let root = Some(0);
        let mut test_host = container_of(
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
            test_host.process_mut(pid).lineage.namespace_creator = Some(101_001);
            test_host.process_mut(pid).pid_namespace = Some(8);
        }
        test_host.process_mut(351).lineage.namespace_creator = child;
        test_host.process_mut(350).is_namespace_init = true;
        test_host.process_mut(304).lineage.namespace_creator = Some(100_000);
        test_host
    };
    let carols = Ok((vec![301, 350, 351], Some(vec![101_001])));
    assert_eq!(narrowed(&nested(Some(101_001)), &[350]), carols);
    let bobs = Ok((vec![303, 304], Some(vec![101_002])));
    assert_eq!(narrowed(&nested(Some(101_001)), &[303]), bobs);
    // Without a known creator of its namespace, the child may belong to another person.
    let why = "process 350 is the init process of its container, and processes of other users \
               would end with it";
    assert_eq!(narrowed(&nested(None), &[350]), Err(why.into()));
}

#[test]
fn namespace_init_ends_only_own_processes() {
    // Carol's process was started from outside, as `docker exec` does.
    let members = [
        (300, 1, 1001, None),
        (301, 300, 1001, None),
        (400, 1, 1002, None),
    ];
    let test_host = container_of(&members, 0);
    assert!(narrowed(&test_host, &[300, 301]).is_err());
    assert_eq!(
        narrowed(&test_host, &[301]),
        Ok((vec![301], Some(vec![1001])))
    );
    // In a PID namespace of its own, no other process ends with it.
    let mut apart = container_of(&members, 0);
    apart.process_mut(400).pid_namespace = Some(8);
    assert_eq!(
        narrowed(&apart, &[300]),
        Ok((vec![300, 301], Some(vec![1001])))
    );
    // The same where a process of another user descends from it, in a nested namespace.
    apart.process_mut(400).parent = 301;
    assert!(narrowed(&apart, &[300]).is_err());
}
