//! Whole plans of boxes as people have them, each a golden file.

use super::scene::*;
use crate::access::Caller;
use crate::golden::compare as golden;
use gpukill_proto::kill::KillScope::{Container, Job, Process, Tree};
use gpukill_proto::kill::{Fate, KillRequest, KillSelector, KillSignal};
use gpukill_proto::reading::Reading;

#[test]
fn torchrun_ends_with_its_workers_and_the_shell_above_goes_on() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "torchrun");
    for worker in 0..4 {
        let pid = 310 + worker;
        let python = scene.fork(pid, 300, "python");
        (python.kin.group, python.kin.session) = (pid, pid);
        scene.uses(pid, worker as usize, 15);
        scene.fork(320 + worker, pid, "pt_data_worker");
    }
    // Alice's other run is another job.
    scene.command(400, 202, "python");
    scene.uses(400, 0, 2);
    let scene = scene.with_jobs();
    golden(
        "plans/torchrun",
        &scene.told(&[
            ("alice", alice(), request(pids(&[310]), Process)),
            ("alice", alice(), request(pids(&[310]), Tree)),
            ("alice", alice(), request(pids(&[310]), Job)),
            ("alice", alice(), request(by_gpu("0"), Job)),
            ("alice", alice(), request(by_user("alice"), Process)),
            ("alice", alice(), request(pids(&[310]), Container)),
            ("alice", alice(), request(pids(&[300]), Process)),
            ("bob", bob(), request(pids(&[310]), Job)),
            (
                "olga",
                olga(),
                KillRequest {
                    force: true,
                    ..request(pids(&[310]), Job)
                },
            ),
        ]),
    );
}

#[test]
fn a_launcher_without_a_gpu_is_named_for_the_sake_of_its_workers() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "torchrun");
    for pid in [310, 311] {
        scene.command(pid, 300, "python");
    }
    scene.uses(310, 4, 15);
    scene.uses(311, 0, 15);
    scene.command(400, 202, "vim");
    let scene = scene.with_jobs();
    let of_alice = KillSelector {
        user: Some("alice".into()),
        ..pids(&[300])
    };
    golden(
        "plans/launcher",
        &scene.told(&[
            ("alice", alice(), request(pids(&[300]), Process)),
            ("alice", alice(), request(pids(&[300]), Tree)),
            ("alice", alice(), request(pids(&[300, 310]), Job)),
            ("alice", alice(), request(pids(&[300, 400]), Job)),
            ("alice", alice(), request(pids(&[202]), Tree)),
            ("alice", alice(), request(of_alice, Tree)),
            ("bob", bob(), request(pids(&[300]), Tree)),
            ("root", caller(0, &[]), request(pids(&[1]), Tree)),
        ]),
    );
}

#[test]
fn mpi_ranks_in_groups_of_their_own_are_one_job_with_their_launcher() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "mpirun");
    scene.command(301, 300, "prted");
    for rank in 0..2 {
        let pid = 310 + rank;
        scene.command(pid, 301, "lmp");
        scene.uses(pid, rank as usize, 8);
    }
    // In the same pipeline: `mpirun … | tee log`.
    scene.fork(330, 202, "tee").kin.group = 300;
    let scene = scene.with_jobs();
    golden(
        "plans/mpi",
        &scene.told(&[
            ("alice", alice(), request(pids(&[311]), Process)),
            ("alice", alice(), request(pids(&[311]), Job)),
            ("alice", alice(), request(by_user("alice"), Tree)),
        ]),
    );
}

#[test]
fn a_slurm_step_ends_without_slurmstepd() {
    let mut scene = Scene::new();
    scene.add(process(200, 1, 0, "slurmd"));
    scene.add(process(210, 200, 0, "slurmstepd"));
    scene.slurm(210, "1234", "0");
    let mut script = process(300, 210, ALICE, "bash");
    script.kin.executable = Some("/usr/bin/bash".into());
    scene.add(script);
    scene.slurm(300, "1234", "0");
    scene.fork(310, 300, "python");
    scene.fork(311, 310, "python");
    scene.uses(310, 0, 40);
    // Root's own step on the same box, below the same kind of parent.
    scene.add(process(220, 200, 0, "slurmstepd"));
    scene.slurm(220, "1235", "0");
    scene.fork(320, 220, "python");
    scene.uses(320, 1, 40);
    let job = |name: &str| KillSelector {
        job: Some(name.to_owned()),
        ..KillSelector::default()
    };
    let scene = scene.with_jobs();
    golden(
        "plans/slurm",
        &scene.told(&[
            ("alice", alice(), request(pids(&[310]), Job)),
            ("alice", alice(), request(job("1234"), Process)),
            ("alice", alice(), request(job("slurm 1234.0"), Job)),
            ("olga", olga(), request(job("1235.0"), Job)),
            ("olga", olga(), request(job("123"), Job)),
        ]),
    );
}

#[test]
fn a_container_of_docker_is_its_operators_and_nobody_elses() {
    let mut scene = Scene::new();
    scene.add(process(200, 1, 0, "containerd-shim"));
    for (pid, parent, uid, name) in [
        (300, 200, 0, "tini"),
        (310, 300, 0, "python"),
        (311, 310, 0, "python"),
        (312, 300, 65_534, "helper"),
        (313, 300, 0, "bash"),
    ] {
        let mut inside = process(pid, parent, uid, name);
        inside.container = Reading::Value(Some(container('a', "train", None)));
        inside.owner = Reading::Value("container train".into());
        scene.add(inside);
    }
    scene.uses(310, 0, 30);
    // Another one of the same image.
    let mut other = process(400, 200, 0, "python");
    other.container = Reading::Value(Some(container('b', "other", None)));
    scene.add(other);
    scene.uses(400, 0, 1);
    let called = |name: &str| KillSelector {
        container: Some(name.to_owned()),
        ..KillSelector::default()
    };
    let of_image = |image: &str| KillSelector {
        image: Some(image.to_owned()),
        ..KillSelector::default()
    };
    let contained = Caller {
        contained: true,
        ..caller(0, &[0, OPERATORS])
    };
    let scene = scene.with_jobs();
    golden(
        "plans/docker",
        &scene.told(&[
            ("alice", alice(), request(called("train"), Container)),
            ("olga", olga(), request(called("train"), Container)),
            ("olga", olga(), request(called("train"), Job)),
            ("olga", olga(), request(called("aaaa"), Process)),
            ("olga", olga(), request(of_image("lab/*"), Process)),
            ("olga", olga(), request(called("aaa"), Process)),
            (
                "root in a container",
                contained,
                request(called("train"), Container),
            ),
        ]),
    );
}

#[test]
fn a_rootless_container_is_its_owners() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.add(process(300, 1, ALICE, "conmon"));
    for (pid, parent, uid, name) in [
        (310, 300, ALICE, "python"),
        (311, 310, 100_999, "python"),
        (312, 310, ALICE, "conmon"),
    ] {
        let mut inside = process(pid, parent, uid, name);
        inside.container = Reading::Value(Some(container('c', "mine", Some(ALICE))));
        inside.namespace_owner = Reading::Value(Some(ALICE));
        inside.kin.maker = Some(ALICE);
        inside.owner = Reading::Value("alice".into());
        scene.add(inside);
    }
    scene.uses(311, 0, 30);
    let scene = scene.with_jobs();
    golden(
        "plans/rootless",
        &scene.told(&[
            ("alice", alice(), request(pids(&[311]), Process)),
            ("alice", alice(), request(pids(&[311]), Tree)),
            ("alice", alice(), request(pids(&[311]), Job)),
            ("alice", alice(), request(by_user("alice"), Container)),
            ("bob", bob(), request(by_user("alice"), Container)),
        ]),
    );
}

#[test]
fn what_was_started_with_nohup_ends_and_the_shell_and_the_login_go_on() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "python");
    scene.fork(301, 300, "sh");
    scene.fork(302, 301, "python");
    scene.uses(300, 0, 10);
    let scene = scene.with_jobs();
    golden(
        "plans/nohup",
        &scene.told(&[
            ("alice", alice(), request(pids(&[300]), Tree)),
            ("alice", alice(), request(pids(&[300]), Job)),
            ("alice", alice(), request(by_user("alice"), Job)),
            ("alice", alice(), request(pids(&[202]), Tree)),
            ("alice", alice(), request(pids(&[4711]), Tree)),
            (
                "root",
                caller(0, &[]),
                KillRequest {
                    any_process: true,
                    ..request(pids(&[202]), Process)
                },
            ),
            (
                "root",
                caller(0, &[]),
                KillRequest {
                    any_process: true,
                    ..request(pids(&[201]), Tree)
                },
            ),
        ]),
    );
}

#[test]
fn what_another_ones_scope_reaches_is_ended_though_its_own_is_not_known() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "torchrun");
    scene.command(310, 300, "python");
    // In the group of 310, and of no job that is known.
    scene.fork(320, 310, "python");
    for pid in [310, 320] {
        scene.uses(pid, 0, 1);
    }
    let mut scene = scene.with_jobs();
    scene.at(320).job = Reading::Failed("x".into());
    let fates = |pids: &[u32]| -> Vec<bool> {
        let plan = scene.plan(&alice(), &request(super::scene::pids(pids), Job));
        let targets = plan.unwrap().targets;
        targets
            .iter()
            .map(|target| matches!(target.fate, Fate::End(_)))
            .collect()
    };
    assert_eq!(fates(&[320]), [false]);
    assert_eq!(fates(&[310]), [true, true, true]);
    assert_eq!(fates(&[310, 320]), [true, true, true]);
}

#[test]
fn each_job_of_which_one_is_named_is_reached_whole() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "python");
    // A job of its own, in the group of the other one, and a part of it that is not.
    scene.fork(310, 202, "consumer").kin.group = 300;
    scene.command(311, 310, "python");
    for pid in [300, 310] {
        scene.uses(pid, 0, 1);
    }
    let scene = scene.with_jobs();
    let plan = scene.plan(&alice(), &request(by_user("alice"), Job));
    let pids: Vec<u32> = plan.unwrap().targets.iter().map(|t| t.key.pid).collect();
    assert_eq!(pids, [300, 310, 311]);
}

#[test]
fn a_zombie_of_a_job_is_nothing_that_goes_on() {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "python");
    scene.fork(301, 300, "python");
    scene.fork(302, 300, "python").state = gpukill_proto::holders::ProcessState::Zombie;
    scene.uses(300, 0, 1);
    let scene = scene.with_jobs();
    let plan = scene.plan(&alice(), &request(pids(&[300]), Process));
    let rest = plan.unwrap().rest;
    let others: Vec<u32> = rest.iter().map(|rest| rest.others).collect();
    assert_eq!(others, [1]);
}

#[test]
fn a_process_whose_user_is_not_known_is_unclear_to_all_but_operators() {
    let mut scene = Scene::new();
    scene.add(process(300, 1, ALICE, "python"));
    scene.uses(300, 0, 1);
    let mut scene = scene.with_jobs();
    scene.at(300).uids = Reading::Failed("x".into());
    let fate = |caller: Caller| {
        let plan = scene.plan(&caller, &request(pids(&[300]), Process));
        plan.unwrap().targets.remove(0).fate
    };
    let unclear = Fate::Unclear("whose it is is not known".into());
    assert_eq!(fate(alice()), unclear);
    assert_eq!(fate(olga()), Fate::End(vec![KillSignal::Terminate]));
}
