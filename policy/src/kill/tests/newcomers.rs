//! What comes to a job between its plan and its end.

use super::super::newcomers::{joined, strays};
use super::super::*;
use super::born::{keys, run, seen};
use super::scene::*;
use gpukill_proto::kill::KillScope::{self, Job, Process, Tree};
use gpukill_proto::kill::{Fate, KillPlan, KillRequest, KillTarget};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

fn youngest(scene: &Scene) -> u64 {
    let starts = scene.crowd.values().map(|it| it.kin.key.start_ticks);
    starts.max().unwrap()
}

/// A plan of alice's that names these and ends them, and reaches those.
fn planned(scene: &Scene, scope: KillScope, named: &[u32], reached: &[u32]) -> KillPlan {
    let target = |pid: &u32, named| {
        let process = &scene.crowd[pid];
        KillTarget {
            key: process.kin.key,
            name: process.kin.name.clone(),
            command: Reading::Unsupported,
            uid: Reading::Unsupported,
            owner: Reading::Unsupported,
            holds: Vec::new(),
            named,
            job: process.job.clone(),
            fate: Fate::End(Vec::new()),
            overridden: None,
        }
    };
    let named = named.iter().map(|pid| target(pid, true));
    let reached = reached.iter().map(|pid| target(pid, false));
    KillPlan {
        at: Timestamp(7),
        youngest_start_ticks: youngest(scene),
        request: KillRequest {
            scope,
            ..KillRequest::default()
        },
        targets: named.chain(reached).collect(),
        unjudged: 0,
        rest: Vec::new(),
    }
}

#[test]
fn what_came_to_a_job_since_it_was_planned_joins_it() {
    let before = run().with_jobs();
    let plan = |scope| planned(&before, scope, &[310], &[300, 311]);
    let mut later = run();
    later.fork(312, 300, "python");
    later.fork(320, 310, "python");
    later.fork(321, 310, "python").kin.uid = Some(BOB);
    let later = later.with_jobs();
    let joins = |plan: &KillPlan| {
        let keys = joined(plan, &later.crowd);
        keys.iter().map(|key| key.pid).collect::<Vec<u32>>()
    };
    assert_eq!(joins(&plan(Job)), [312, 320]);
    assert_eq!(joins(&planned(&before, Tree, &[310], &[])), [320]);
    assert_eq!(joins(&plan(Process)), [0u32; 0]);
    // A job of its own, in the group of another one, is looked at for itself.
    let two = |with_child: bool| {
        let mut scene = Scene::new();
        scene.login(200, ALICE);
        scene.command(300, 202, "python");
        scene.fork(310, 202, "consumer").kin.group = 300;
        if with_child {
            scene.command(311, 310, "python");
        }
        scene.with_jobs()
    };
    let found = joined(
        &planned(&two(false), Job, &[300, 310], &[]),
        &two(true).crowd,
    );
    assert_eq!(found, keys(&two(true), &[311]));
    // In a person's own container: the person's, and not root's, whom the plan did not show.
    let contained = |later: &[(u32, u32, Option<u32>)], manager| {
        let mut scene = Scene::new();
        for (pid, uid, maker) in [(300, ALICE, None)].iter().chain(later) {
            let member = scene.add(process(*pid, 1, *uid, "python"));
            member.kin.maker = *maker;
            member.container = Reading::Value(Some(container('c', "mine", manager)));
        }
        scene.with_jobs()
    };
    let came = [(301, 60_006, Some(ALICE)), (302, 0, None), (303, BOB, None)];
    for (manager, expected) in [(Some(ALICE), &[301][..]), (None, &[301, 302, 303])] {
        let plan = planned(&contained(&[], manager), Job, &[300], &[]);
        let later = contained(&came, manager);
        assert_eq!(joined(&plan, &later.crowd), keys(&later, expected));
    }
    // Nothing joins what is not ended, nor a process that has the pid by now.
    let mut spared = plan(Job);
    spared.targets[0].fate =
        Fate::Protected(gpukill_proto::kill::Protected::always("the admin says so"));
    assert_eq!(joins(&spared), [0u32; 0]);
    let mut replaced = planned(&before, Job, &[310], &[]);
    replaced.targets[0].key.start_ticks += 1;
    assert_eq!(joins(&replaced), [0u32; 0]);
}

#[test]
fn of_a_job_whose_parents_have_ended_those_of_its_process_group_are_named() {
    // 310 lost its parent, and so it is a job of its own within the group of 300.
    let scene = |later: &[(u32, u32)]| {
        let mut scene = Scene::new();
        scene.login(200, ALICE);
        scene.command(300, 202, "python");
        let orphan = scene.fork(310, 300, "python");
        orphan.parent = 1;
        scene.fork(311, 310, "python");
        for (pid, parent) in later {
            let came = scene.fork(*pid, 310, "python");
            came.parent = *parent;
        }
        scene.with_jobs()
    };
    let before = scene(&[]);
    let plan = planned(&before, Job, &[310], &[311]);
    let members = seen(&before, &[310, 311]);
    // A child of 300, who lives and is no part of it; one whose parent has ended, and its
    // child; a child of a member.
    let mut later = scene(&[(320, 300), (330, 1), (331, 330), (340, 310)]);
    let found = strays(&plan, &members, &later.crowd);
    assert_eq!(found, keys(&later, &[330, 331]));
    let mut whole = plan.clone();
    whole.request.scope = Tree;
    assert_eq!(strays(&whole, &members, &later.crowd), BTreeSet::new());
    // Another person's, and one of another group, are nobody's business.
    later.at(330).kin.uid = Some(BOB);
    later.at(331).kin.uid = Some(BOB);
    assert_eq!(strays(&plan, &members, &later.crowd), BTreeSet::new());
    let mut later = scene(&[(330, 1)]);
    later.at(330).kin.group = 330;
    assert_eq!(strays(&plan, &members, &later.crowd), BTreeSet::new());
    // One that is older than the plan was there when it was made.
    let mut later = scene(&[(330, 1)]);
    later.at(330).kin.key.start_ticks = youngest(&before);
    assert_eq!(strays(&plan, &members, &later.crowd), BTreeSet::new());
}

#[test]
fn what_began_below_a_planned_process_joins_it_though_its_job_is_not_known() {
    let unread = |mut scene: Scene| {
        for process in scene.crowd.values_mut() {
            process.job = Reading::Failed("it was not read yet".into());
        }
        scene
    };
    let before = run().with_jobs();
    let mut later = run();
    // 305 is older than the plan: it was there, and was not planned.
    later.fork(305, 300, "python").kin.key.start_ticks = youngest(&before);
    later.fork(3_200, 310, "python");
    later.fork(3_201, 310, "python").kin.uid = Some(BOB);
    // Their parent has ended: the session tells whose they are.
    let orphan = later.fork(3_202, 1, "python");
    (orphan.kin.session, orphan.kin.uid) = (300, Some(ALICE));
    let later = unread(later.with_jobs());
    let mut plan = planned(&before, Job, &[310], &[300, 311]);
    assert_eq!(joined(&plan, &later.crowd), keys(&later, &[3_200, 3_202]));
    plan.request.scope = Process;
    assert_eq!(joined(&plan, &later.crowd), BTreeSet::new());
}
