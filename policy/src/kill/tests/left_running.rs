//! Whole plans that leave some processes running, each a golden file.

use super::fixture::*;
use crate::golden::compare as golden;
use gpukill_proto::kill::KillScope::{Job, Process, Tree};
use gpukill_proto::kill::KillSelector;
use gpukill_proto::reading::Reading;

#[test]
fn jupyter_kernel_ends_and_server_stays() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    let server = test_host.command(250, 202, "python");
    server.lineage.arguments = Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
    for (pid, gpu) in [(300, 0), (301, 1)] {
        let kernel = test_host.fork(pid, 250, "python");
        (kernel.lineage.group, kernel.lineage.session) = (pid, pid);
        test_host.list_process(pid, gpu, 20);
    }
    test_host.fork(310, 300, "python");
    // The server has a GPU open itself: one of its extensions reads it.
    test_host.open_device(250, 0);
    let test_host = test_host.with_jobs();
    golden(
        "plans/jupyter",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[300]), Job)),
            ("alice", alice(), request(by_user("alice"), Tree)),
            ("alice", alice(), request(pids(&[250]), Tree)),
            ("alice", alice(), request(pids(&[250]), Process)),
        ]),
    );
}

#[test]
fn parent_of_jupyter_server_stays() {
    // As the first process of a container, and as a script that Slurm runs: ending
    // either would end the server too.
    let ended = |first: &str, module: &str, in_slurm: bool| {
        let mut test_host = KillTestHost::new();
        let first = test_host.add(process(300, 1, ALICE, first));
        first.container = Reading::Value((!in_slurm).then(|| container('a', "notebook", None)));
        let server = test_host.fork(301, 300, "python");
        server.lineage.arguments = Some(["python", "-m", module].map(str::to_owned).into());
        // A kernel has a session of its own.
        test_host.fork(302, 301, "python").lineage.session = 302;
        // A process without a server below it is part of the job.
        test_host.fork(303, 300, "sh");
        if in_slurm {
            (300..=303).for_each(|pid| test_host.slurm(pid, "7", "batch"));
        }
        test_host.list_process(302, 0, 10);
        let test_host = test_host.with_jobs();
        let plan = test_host.plan(&caller(0, &[]), &request(pids(&[302]), Job));
        let targets = plan.unwrap().targets;
        let pids = targets.iter().map(|target| target.key.pid);
        pids.collect::<Vec<u32>>()
    };
    for (first, in_slurm) in [("sh", false), ("tini", false), ("sh", true)] {
        assert_eq!(ended(first, "jupyterlab", in_slurm), [302, 303], "{first}");
        assert_eq!(
            ended(first, "launch", in_slurm),
            [300, 301, 302, 303],
            "{first}"
        );
    }
}

#[test]
fn user_service_ends_and_systemd_stays() {
    let mut test_host = KillTestHost::new();
    let manager = test_host.add(process(200, 1, ALICE, "systemd"));
    manager.lineage.unit = Some(unit("user@1000.service", None));
    test_host.fork(201, 200, "(sd-pam)");
    let service = test_host.fork(300, 200, "sh");
    service.lineage.unit = Some(unit("train.service", Some(ALICE)));
    test_host.fork(301, 300, "python");
    test_host.fork(302, 301, "python");
    test_host.list_process(301, 0, 10);
    let test_host = test_host.with_jobs();
    golden(
        "plans/user-service",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[301]), Process)),
            ("alice", alice(), request(pids(&[301]), Job)),
            (
                "alice",
                alice(),
                request(
                    KillSelector {
                        job: Some("train.service".into()),
                        ..KillSelector::default()
                    },
                    Job,
                ),
            ),
        ]),
    );
}

#[test]
fn other_users_of_the_unit_stay() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    let service = test_host.add(process(300, 1, ALICE, "python"));
    service.lineage.unit = Some(unit("shared.service", None));
    test_host.fork(301, 300, "python");
    let other = test_host.fork(302, 300, "python");
    (other.lineage.uid, other.uids) = (
        Some(BOB),
        Reading::Value(crate::access::Uids::from_single(BOB)),
    );
    other.owner = Reading::Value("bob".into());
    // It has the rights of root, and does not belong to the user who runs it.
    let ping = test_host.fork(303, 300, "ping");
    ping.uids = Reading::Value(crate::access::Uids {
        real: ALICE,
        effective: 0,
        saved: 0,
    });
    let sudo = test_host.fork(310, 300, "sudo");
    (sudo.lineage.uid, sudo.uids) = (Some(0), Reading::Value(crate::access::Uids::from_single(0)));
    sudo.owner = Reading::Value("root".into());
    test_host.fork(311, 310, "python");
    test_host.list_process(301, 0, 10);
    test_host.list_process(302, 0, 10);
    test_host.list_process(311, 1, 10);
    let test_host = test_host.with_jobs();
    golden(
        "plans/shared-unit",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[301]), Job)),
            ("alice", alice(), request(pids(&[301]), Tree)),
            ("alice", alice(), request(by_gpu("0-1"), Job)),
            ("olga", olga(), request(pids(&[301]), Job)),
            ("olga", olga(), request(by_gpu("0-1"), Job)),
        ]),
    );
}

#[test]
fn desktop_tmux_and_sshd_stay() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(210, 1, "nonsense");
    let tmux = process(220, 1, ALICE, "tmux: server");
    test_host.add(tmux);
    let pane = test_host.command(221, 220, "bash");
    (pane.lineage.session, pane.lineage.on_terminal) = (221, true);
    test_host.command(300, 221, "python");
    test_host.list_process(300, 0, 10);
    test_host.add(process(230, 1, ALICE, "gnome-shell"));
    test_host.add(process(231, 230, ALICE, "Xwayland"));
    test_host.command(240, 230, "kitty");
    test_host.command(241, 230, "firefox");
    for pid in [230, 231] {
        test_host.process_mut(pid).at_seat = Reading::Value(true);
    }
    test_host
        .add(process(232, 1, ALICE, "Xorg"))
        .lineage
        .executable = Some("/home/alice/Xorg".into());
    for pid in [230, 231, 240, 241, 232] {
        test_host.list_process(pid, 1, 1);
    }
    test_host.add(process(250, 1, 0, "nvidia-persistenced"));
    test_host.open_device(250, 1);
    let test_host = test_host.with_jobs();
    golden(
        "plans/desktop",
        &test_host.render(&[
            ("alice", alice(), request(by_user("alice"), Process)),
            ("alice", alice(), request(by_gpu("1"), Tree)),
            ("alice", alice(), request(pids(&[240]), Process)),
            ("alice", alice(), request(pids(&[300]), Job)),
            ("olga", olga(), request(by_gpu("0,1"), Process)),
        ]),
    );
}

#[test]
fn orphans_zombies_and_amd() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    for pid in [310, 311] {
        let orphan = test_host.add(process(pid, 1, ALICE, "python"));
        orphan.lineage.group = 300;
        test_host.open_device(pid, 2);
    }
    let zombie = test_host.command(320, 202, "python");
    zombie.state = gpukill_proto::holders::ProcessState::Zombie;
    test_host.list_process(320, 2, 5);
    let ended = test_host.command(321, 202, "python");
    ended.state = gpukill_proto::holders::ProcessState::Zombie;
    test_host.command(330, 202, "hip");
    test_host.fork(331, 330, "hip");
    test_host.list_process(330, 4, 60);
    // Only files that all devices share.
    test_host.command(340, 202, "nvtop");
    let monitor = test_host.open_device(340, 0);
    (monitor.holds, monitor.holds_this_device) = (vec!["nvidiactl".into()], false);
    let test_host = test_host.with_jobs();
    golden(
        "plans/orphans",
        &test_host.render(&[
            ("alice", alice(), request(pids(&[310, 311]), Process)),
            ("alice", alice(), request(by_gpu("2"), Job)),
            ("alice", alice(), request(pids(&[321, 340, 5]), Process)),
            ("alice", alice(), request(pids(&[330]), Tree)),
            (
                "alice",
                alice(),
                request(
                    KillSelector {
                        min_memory: Some(gpukill_proto::units::Bytes(5 * GIB)),
                        ..by_user("alice")
                    },
                    Process,
                ),
            ),
        ]),
    );
}
