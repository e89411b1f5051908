//! What a scope reaches, and what is born to it later.

use super::super::belongs::reach;
use super::super::newcomers::newborn;
use super::super::*;
use super::scene::*;
use gpukill_proto::kill::KillScope::{self, Container, Job, Process, Tree};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

fn reached(scene: &Scene, pid: u32, scope: KillScope) -> Result<Vec<u32>, String> {
    let keys = reach(&scene.crowd[&pid], scope, &scene.crowd)?;
    Ok(keys.iter().map(|key| key.pid).collect())
}

/// A run of alice's with two workers.
pub(super) fn run() -> Scene {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "torchrun");
    scene.command(310, 300, "python");
    scene.command(311, 300, "python");
    scene
}

#[test]
fn a_scope_that_cannot_be_told_says_why() {
    let mut scene = run().with_jobs();
    scene.at(310).job = Reading::Failed("it has too many ancestors to look at".into());
    let job = "its job is not known: failed: it has too many ancestors to look at";
    assert_eq!(reached(&scene, 310, Job), Err(job.into()));
    assert_eq!(
        reached(&scene, 310, Container),
        Err("it is in no container".into())
    );
    scene.at(310).container = Reading::Failed("x".into());
    let container = "its container is not known: failed: x";
    assert_eq!(reached(&scene, 310, Container), Err(container.into()));
    scene.at(300).kin.uid = None;
    let whose = "whose it is is not known";
    assert_eq!(reached(&scene, 300, Tree), Err(whose.into()));
    assert_eq!(reached(&scene, 300, Job), Err(whose.into()));
    assert_eq!(reached(&scene, 300, Process), Ok(vec![300]));
}

#[test]
fn a_tree_goes_through_shells_and_ends_at_servers_and_at_other_users() {
    let mut scene = run();
    scene.fork(400, 310, "sh");
    scene.fork(401, 400, "python");
    scene.fork(410, 310, "tmux: server");
    scene.command(411, 410, "python");
    let other = scene.fork(420, 310, "python");
    other.kin.uid = Some(BOB);
    scene.fork(421, 420, "python").kin.uid = Some(ALICE);
    // As read when pid 310 was another's.
    scene.fork(309, 310, "python");
    let scene = scene.with_jobs();
    assert_eq!(reached(&scene, 310, Tree), Ok(vec![310, 401]));
    assert_eq!(reached(&scene, 410, Tree), Ok(vec![410, 411]));
}

#[test]
fn a_job_has_the_groups_that_its_processes_lead_and_no_other_users() {
    let mut scene = run();
    scene.fork(330, 202, "tee").kin.group = 310;
    let other = scene.fork(331, 202, "tee");
    (other.kin.group, other.kin.uid) = (310, Some(BOB));
    scene.fork(332, 202, "bash").kin.group = 310;
    let scene = scene.with_jobs();
    assert_eq!(reached(&scene, 311, Job), Ok(vec![300, 310, 311, 330]));
}

#[test]
fn two_containers_of_one_id_are_two() {
    let mut scene = run();
    for (pid, manager) in [(400, None), (401, None), (402, Some(ALICE))] {
        let mut inside = process(pid, 1, ALICE, "python");
        let mut podmans = container('a', "x", manager);
        podmans.id.runtime = "podman".into();
        inside.container = Reading::Value(Some(podmans));
        scene.add(inside);
    }
    let scene = scene.with_jobs();
    assert_eq!(reached(&scene, 400, Container), Ok(vec![400, 401]));
    assert_eq!(reached(&scene, 402, Container), Ok(vec![402]));
}

#[test]
fn a_schedulers_job_has_no_other_users() {
    let mut scene = Scene::new();
    for (pid, uid) in [(300, ALICE), (301, ALICE), (302, BOB)] {
        scene.add(process(pid, 1, uid, "python"));
        scene.slurm(pid, "1234", "0");
    }
    let scene = scene.with_jobs();
    assert_eq!(reached(&scene, 300, Job), Ok(vec![300, 301]));
}

#[test]
fn shells_and_runtimes_keep_work_where_people_are_at_them_and_where_they_are_real() {
    let mut scene = Scene::new();
    let mut add = |pid, name: &str| {
        let mut inside = process(pid, 1, ALICE, name);
        inside.container = Reading::Value(Some(container('a', "x", None)));
        scene.add(inside).clone()
    };
    add(400, "python");
    // The script of the container, and who came in by `docker exec -it`.
    add(401, "bash");
    add(402, "bash");
    add(403, "sshd");
    add(404, "conmon");
    add(405, "conmon");
    scene.at(402).kin.on_terminal = true;
    scene.at(405).kin.executable = Some("/home/eve/conmon".into());
    let scene = scene.with_jobs();
    assert_eq!(reached(&scene, 400, Container), Ok(vec![400, 401, 405]));
}

pub(super) fn keys(scene: &Scene, pids: &[u32]) -> BTreeSet<ProcessKey> {
    pids.iter().map(|pid| scene.crowd[pid].kin.key).collect()
}

/// These, as they are in this scene.
pub(super) fn seen(scene: &Scene, pids: &[u32]) -> BTreeMap<ProcessKey, Candidate> {
    let members = pids.iter().map(|pid| scene.crowd[pid].clone());
    members.map(|member| (member.kin.key, member)).collect()
}

/// Who is born to 310, of a run whose crowd changes so.
fn born(scope: KillScope, change: impl FnOnce(&mut Scene)) -> Vec<u32> {
    let first = run().with_jobs();
    let members = seen(&first, &[310]);
    let mut now = run();
    change(&mut now);
    let now = now.with_jobs();
    let found = newborn(&members, scope, &first.crowd, &now.crowd);
    found.iter().map(|key| key.pid).collect()
}

#[test]
fn those_below_a_member_are_born_to_it_and_those_that_were_there_are_not() {
    let forks = |now: &mut Scene| {
        now.fork(500, 310, "python");
        now.fork(501, 500, "python");
        now.fork(510, 311, "python");
        now.command(520, 202, "python");
    };
    assert_eq!(born(Tree, forks), [500, 501]);
    // Of the same job.
    assert_eq!(born(Job, forks), [500, 501, 510]);
    assert_eq!(born(Process, forks), [0; 0]);
    assert_eq!(born(Tree, |_| {}), [0; 0]);
    assert_eq!(born(Job, |_| {}), [0; 0]);
}

#[test]
fn those_whose_parent_has_ended_are_known_by_its_group_or_session() {
    let orphans = |now: &mut Scene| {
        now.crowd.remove(&310);
        // The first one is older than 310: the group had the number before it.
        for (pid, group, session) in [
            (309, 310, 7),
            (500, 310, 7),
            (501, 501, 310),
            (502, 502, 502),
        ] {
            let orphan = now.add(process(pid, 1, ALICE, "python"));
            (orphan.kin.group, orphan.kin.session) = (group, session);
        }
        now.fork(503, 501, "python").kin.group = 503;
    };
    assert_eq!(born(Tree, orphans), [500, 501, 503]);
}

#[test]
fn what_a_late_member_began_is_known_by_it_after_it_has_ended() {
    let first = run().with_jobs();
    let mut members = seen(&first, &[310]);
    let mut later = run();
    let late = later.fork(500, 310, "python");
    (late.kin.group, late.kin.session) = (500, 500);
    let later = later.with_jobs();
    let found = newborn(&members, Tree, &first.crowd, &later.crowd);
    assert_eq!(found, keys(&later, &[500]));
    members.extend(seen(&later, &[500]));
    let mut now = run();
    let orphan = now.add(process(501, 1, ALICE, "python"));
    (orphan.kin.group, orphan.kin.session) = (500, 500);
    let now = now.with_jobs();
    let found = newborn(&members, Tree, &first.crowd, &now.crowd);
    assert_eq!(found, keys(&now, &[501]));
}

#[test]
fn a_pid_that_was_given_again_has_no_part() {
    let reused = |now: &mut Scene| {
        now.at(310).kin.key.start_ticks = 9_000;
        let child = now.fork(500, 310, "python");
        child.kin.key.start_ticks = 9_001;
    };
    assert_eq!(born(Tree, reused), [0; 0]);
}

#[test]
fn neither_another_users_nor_what_keeps_peoples_work_is_born_to_a_member() {
    let others = |now: &mut Scene| {
        now.fork(500, 310, "sudo").kin.uid = Some(0);
        now.fork(501, 310, "bash");
        now.fork(502, 501, "python");
        now.fork(503, 310, "python").kin.uid = None;
        let of_group = now.add(process(504, 1, BOB, "python"));
        of_group.kin.group = 310;
    };
    for scope in [Tree, Job] {
        assert_eq!(born(scope, others), [502], "{scope:?}");
    }
}

#[test]
fn what_starts_in_the_container_is_born_to_it_and_what_starts_elsewhere_is_not() {
    let inside = |scene: &mut Scene, pid: u32, uid: u32, id: char| {
        let mut inside = process(pid, 1, uid, "python");
        inside.container = Reading::Value(Some(container(id, "x", None)));
        scene.add(inside);
    };
    let mut first = run();
    inside(&mut first, 400, 0, 'a');
    let first = first.with_jobs();
    let mut now = run();
    inside(&mut now, 500, 0, 'a');
    inside(&mut now, 501, 0, 'b');
    inside(&mut now, 502, BOB, 'a');
    let now = now.with_jobs();
    let members = seen(&first, &[400]);
    for scope in [Container, Job] {
        let found = newborn(&members, scope, &first.crowd, &now.crowd);
        assert_eq!(found, keys(&now, &[500]), "{scope:?}");
    }
}
