//! Whole plans of typical hosts, each a golden file.

use super::fixture::*;
use crate::access::Caller;
use crate::golden::compare as golden;
use gpukill_proto::kill::KillScope::{Container, Job, Process, Tree};
use gpukill_proto::kill::{KillRequest, KillSelector, KillSignal, PlannedAction};
use gpukill_proto::reading::Reading;

#[test]
fn torchrun_ends_and_its_shell_stays() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "torchrun");
    for worker in 0..4 {
        let pid = 310 + worker;
        let python = test_host.fork(pid, 300, "python");
        (python.lineage.group, python.lineage.session) = (pid, pid);
        test_host.list_process(pid, worker as usize, 15);
        test_host.fork(320 + worker, pid, "pt_data_worker");
    }
    // Alice's other run is another job.
    test_host.command(400, 202, "python");
    test_host.list_process(400, 0, 2);
    let test_host = test_host.with_jobs();
    golden(
        "plans/torchrun",
        &test_host.render(&[
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
fn launcher_without_gpu_is_named() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "torchrun");
    for pid in [310, 311] {
        test_host.command(pid, 300, "python");
    }
    test_host.list_process(310, 4, 15);
    test_host.list_process(311, 0, 15);
    test_host.command(400, 202, "vim");
    let test_host = test_host.with_jobs();
    let of_alice = KillSelector {
        user: Some("alice".into()),
        ..pids(&[300])
    };
    golden(
        "plans/launcher",
        &test_host.render(&[
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
fn mpi_ranks_and_launcher_are_one_job() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "mpirun");
    test_host.command(301, 300, "prted");
    for rank in 0..2 {
        let pid = 310 + rank;
        test_host.command(pid, 301, "lmp");
        test_host.list_process(pid, rank as usize, 8);
    }
    // In the same pipeline: `mpirun … | tee log`.
    test_host.fork(330, 202, "tee").lineage.group = 300;
    let test_host = test_host.with_jobs();
    golden(
        "plans/mpi",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[311]), Process)),
            ("alice", alice(), request(pids(&[311]), Job)),
            ("alice", alice(), request(by_user("alice"), Tree)),
        ]),
    );
}

#[test]
fn slurm_step_ends_without_slurmstepd() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(200, 1, 0, "slurmd"));
    test_host.add(process(210, 200, 0, "slurmstepd"));
    test_host.slurm(210, "1234", "0");
    let mut script = process(300, 210, ALICE, "bash");
    script.lineage.executable = Some("/usr/bin/bash".into());
    test_host.add(script);
    test_host.slurm(300, "1234", "0");
    test_host.fork(310, 300, "python");
    test_host.fork(311, 310, "python");
    test_host.list_process(310, 0, 40);
    // A step of root's on the same host, below the same kind of parent.
    test_host.add(process(220, 200, 0, "slurmstepd"));
    test_host.slurm(220, "1235", "0");
    test_host.fork(320, 220, "python");
    test_host.list_process(320, 1, 40);
    let job = |name: &str| KillSelector {
        job: Some(name.to_owned()),
        ..KillSelector::default()
    };
    let test_host = test_host.with_jobs();
    golden(
        "plans/slurm",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[310]), Job)),
            ("alice", alice(), request(job("1234"), Process)),
            ("alice", alice(), request(job("slurm 1234.0"), Job)),
            ("olga", olga(), request(job("1235.0"), Job)),
            ("olga", olga(), request(job("123"), Job)),
        ]),
    );
}

#[test]
fn docker_container_needs_an_operator() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(200, 1, 0, "containerd-shim"));
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
        test_host.add(inside);
    }
    test_host.list_process(310, 0, 30);
    // Another container of the same image.
    let mut other = process(400, 200, 0, "python");
    other.container = Reading::Value(Some(container('b', "other", None)));
    test_host.add(other);
    test_host.list_process(400, 0, 1);
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
    let test_host = test_host.with_jobs();
    golden(
        "plans/docker",
        &test_host.render(&[
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
fn rootless_container_belongs_to_its_owner() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.add(process(300, 1, ALICE, "conmon"));
    for (pid, parent, uid, name) in [
        (310, 300, ALICE, "python"),
        (311, 310, 100_999, "python"),
        (312, 310, ALICE, "conmon"),
    ] {
        let mut inside = process(pid, parent, uid, name);
        inside.container = Reading::Value(Some(container('c', "mine", Some(ALICE))));
        inside.namespace_owner = Reading::Value(Some(ALICE));
        inside.lineage.namespace_creator = Some(ALICE);
        inside.owner = Reading::Value("alice".into());
        test_host.add(inside);
    }
    test_host.list_process(311, 0, 30);
    let test_host = test_host.with_jobs();
    golden(
        "plans/rootless",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[311]), Process)),
            ("alice", alice(), request(pids(&[311]), Tree)),
            ("alice", alice(), request(pids(&[311]), Job)),
            ("alice", alice(), request(by_user("alice"), Container)),
            ("bob", bob(), request(by_user("alice"), Container)),
        ]),
    );
}

#[test]
fn nohup_job_ends_and_login_stays() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "python");
    test_host.fork(301, 300, "sh");
    test_host.fork(302, 301, "python");
    test_host.list_process(300, 0, 10);
    let test_host = test_host.with_jobs();
    golden(
        "plans/nohup",
        &test_host.render(&[
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
fn reached_process_with_unknown_job_ends() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "torchrun");
    test_host.command(310, 300, "python");
    // In the group of 310, and of an unknown job.
    test_host.fork(320, 310, "python");
    for pid in [310, 320] {
        test_host.list_process(pid, 0, 1);
    }
    let mut test_host = test_host.with_jobs();
    test_host.process_mut(320).job = Reading::Failed("x".into());
    let are_ended = |pids: &[u32]| -> Vec<bool> {
        let plan = test_host.plan(&alice(), &request(super::fixture::pids(pids), Job));
        let targets = plan.unwrap().targets;
        targets
            .iter()
            .map(|target| matches!(target.action, PlannedAction::End(_)))
            .collect()
    };
    assert_eq!(are_ended(&[320]), [false]);
    assert_eq!(are_ended(&[310]), [true, true, true]);
    assert_eq!(are_ended(&[310, 320]), [true, true, true]);
}

#[test]
fn each_named_job_is_reached_whole() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "python");
    // A job of its own in the group of the other job, and a part of it that is not.
    test_host.fork(310, 202, "consumer").lineage.group = 300;
    test_host.command(311, 310, "python");
    for pid in [300, 310] {
        test_host.list_process(pid, 0, 1);
    }
    let test_host = test_host.with_jobs();
    let plan = test_host.plan(&alice(), &request(by_user("alice"), Job));
    let pids: Vec<u32> = plan.unwrap().targets.iter().map(|t| t.key.pid).collect();
    assert_eq!(pids, [300, 310, 311]);
}

#[test]
fn zombie_is_not_a_remaining_process() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "python");
    test_host.fork(301, 300, "python");
    test_host.fork(302, 300, "python").state = gpukill_proto::holders::ProcessState::Zombie;
    test_host.list_process(300, 0, 1);
    let test_host = test_host.with_jobs();
    let plan = test_host.plan(&alice(), &request(pids(&[300]), Process));
    let rest = plan.unwrap().remaining_jobs;
    let others: Vec<u32> = rest.iter().map(|rest| rest.remaining_processes).collect();
    assert_eq!(others, [1]);
}

#[test]
fn unknown_user_needs_an_operator() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(300, 1, ALICE, "python"));
    test_host.list_process(300, 0, 1);
    let mut test_host = test_host.with_jobs();
    test_host.process_mut(300).uids = Reading::Failed("x".into());
    let action_for = |caller: Caller| {
        let plan = test_host.plan(&caller, &request(pids(&[300]), Process));
        plan.unwrap().targets.remove(0).action
    };
    let unclear = PlannedAction::Unclear("its owner is not known".into());
    assert_eq!(action_for(alice()), unclear);
    assert_eq!(
        action_for(olga()),
        PlannedAction::End(vec![KillSignal::Terminate])
    );
}
