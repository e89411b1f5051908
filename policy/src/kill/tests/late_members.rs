//! Tests of late members: processes that join a job between its plan and its end.

use super::super::late_members::{find_joined, find_strays};
use super::super::*;
use super::fixture::*;
use super::scope::{keys, processes_by_key, training_run};
use gpukill_proto::kill::KillScope::{self, Job, Process, Tree};
use gpukill_proto::kill::{KillPlan, KillRequest, KillTarget, PlannedAction};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

fn max_start_ticks(test_host: &KillTestHost) -> u64 {
    let starts = test_host
        .process_table
        .values()
        .map(|it| it.lineage.key.start_ticks);
    starts.max().unwrap()
}

/// A plan of alice's that names and ends `named`, and reaches `reached`.
fn planned(test_host: &KillTestHost, scope: KillScope, named: &[u32], reached: &[u32]) -> KillPlan {
    let target = |pid: &u32, named| {
        let process = &test_host.process_table[pid];
        KillTarget {
            key: process.lineage.key,
            name: process.lineage.name.clone(),
            command: Reading::Unsupported,
            uid: Reading::Unsupported,
            owner: Reading::Unsupported,
            holds: Vec::new(),
            named,
            job: process.job.clone(),
            action: PlannedAction::End(Vec::new()),
            overridden: None,
        }
    };
    let named = named.iter().map(|pid| target(pid, true));
    let reached = reached.iter().map(|pid| target(pid, false));
    KillPlan {
        at: Timestamp(7),
        youngest_start_ticks: max_start_ticks(test_host),
        request: KillRequest {
            scope,
            ..KillRequest::default()
        },
        targets: named.chain(reached).collect(),
        undetermined: 0,
        remaining_jobs: Vec::new(),
    }
}

#[test]
fn new_job_processes_join() {
    let before = training_run().with_jobs();
    let plan = |scope| planned(&before, scope, &[310], &[300, 311]);
    let mut later = training_run();
    later.fork(312, 300, "python");
    later.fork(320, 310, "python");
    later.fork(321, 310, "python").lineage.uid = Some(BOB);
    let later = later.with_jobs();
    let joins = |plan: &KillPlan| {
        let keys = find_joined(plan, &later.process_table);
        keys.iter().map(|key| key.pid).collect::<Vec<u32>>()
    };
    assert_eq!(joins(&plan(Job)), [312, 320]);
    assert_eq!(joins(&planned(&before, Tree, &[310], &[])), [320]);
    assert_eq!(joins(&plan(Process)), [0u32; 0]);
    // A job of its own in the process group of another job is checked separately.
    let two = |with_child: bool| {
        let mut test_host = KillTestHost::new();
        test_host.login(200, ALICE);
        test_host.command(300, 202, "python");
        test_host.fork(310, 202, "consumer").lineage.group = 300;
        if with_child {
            test_host.command(311, 310, "python");
        }
        test_host.with_jobs()
    };
    let found = find_joined(
        &planned(&two(false), Job, &[300, 310], &[]),
        &two(true).process_table,
    );
    assert_eq!(found, keys(&two(true), &[311]));
    // In a container of a person's own, that person's processes join. Root's do not:
    // the plan did not show root.
    let contained = |later: &[(u32, u32, Option<u32>)], manager| {
        let mut test_host = KillTestHost::new();
        for (pid, uid, namespace_creator) in [(300, ALICE, None)].iter().chain(later) {
            let member = test_host.add(process(*pid, 1, *uid, "python"));
            member.lineage.namespace_creator = *namespace_creator;
            member.container = Reading::Value(Some(container('c', "mine", manager)));
        }
        test_host.with_jobs()
    };
    let came = [(301, 60_006, Some(ALICE)), (302, 0, None), (303, BOB, None)];
    for (manager, expected) in [(Some(ALICE), &[301][..]), (None, &[301, 302, 303])] {
        let plan = planned(&contained(&[], manager), Job, &[300], &[]);
        let later = contained(&came, manager);
        assert_eq!(
            find_joined(&plan, &later.process_table),
            keys(&later, expected)
        );
    }
    // No process joins a job that is not ended, nor a reused pid.
    let mut protected = plan(Job);
    protected.targets[0].action = PlannedAction::Protected(
        gpukill_proto::kill::ProtectionReason::always("the admin says so"),
    );
    assert_eq!(joins(&protected), [0u32; 0]);
    let mut replaced = planned(&before, Job, &[310], &[]);
    replaced.targets[0].key.start_ticks += 1;
    assert_eq!(joins(&replaced), [0u32; 0]);
}

#[test]
fn orphans_of_the_group_are_strays() {
    // 310 lost its parent, so it is a job of its own within the group of 300.
    let test_host = |later: &[(u32, u32)]| {
        let mut test_host = KillTestHost::new();
        test_host.login(200, ALICE);
        test_host.command(300, 202, "python");
        let orphan = test_host.fork(310, 300, "python");
        orphan.parent = 1;
        test_host.fork(311, 310, "python");
        for (pid, parent) in later {
            let came = test_host.fork(*pid, 310, "python");
            came.parent = *parent;
        }
        test_host.with_jobs()
    };
    let before = test_host(&[]);
    let plan = planned(&before, Job, &[310], &[311]);
    let members = processes_by_key(&before, &[310, 311]);
    // A child of 300, which lives and is not a member; an orphan and its child; a child
    // of a member.
    let mut later = test_host(&[(320, 300), (330, 1), (331, 330), (340, 310)]);
    let found = find_strays(&plan, &members, &later.process_table);
    assert_eq!(found, keys(&later, &[330, 331]));
    let mut whole = plan.clone();
    whole.request.scope = Tree;
    assert_eq!(
        find_strays(&whole, &members, &later.process_table),
        BTreeSet::new()
    );
    // Processes of another person and of another group are not named.
    later.process_mut(330).lineage.uid = Some(BOB);
    later.process_mut(331).lineage.uid = Some(BOB);
    assert_eq!(
        find_strays(&plan, &members, &later.process_table),
        BTreeSet::new()
    );
    let mut later = test_host(&[(330, 1)]);
    later.process_mut(330).lineage.group = 330;
    assert_eq!(
        find_strays(&plan, &members, &later.process_table),
        BTreeSet::new()
    );
    // A process older than the plan existed when the plan was made.
    let mut later = test_host(&[(330, 1)]);
    later.process_mut(330).lineage.key.start_ticks = max_start_ticks(&before);
    assert_eq!(
        find_strays(&plan, &members, &later.process_table),
        BTreeSet::new()
    );
}

#[test]
fn descendants_join_without_known_job() {
    let unread = |mut test_host: KillTestHost| {
        for process in test_host.process_table.values_mut() {
            process.job = Reading::Failed("it was not read yet".into());
        }
        test_host
    };
    let before = training_run().with_jobs();
    let mut later = training_run();
    // 305 is older than the plan: it existed, and was not planned.
    later.fork(305, 300, "python").lineage.key.start_ticks = max_start_ticks(&before);
    later.fork(3_200, 310, "python");
    later.fork(3_201, 310, "python").lineage.uid = Some(BOB);
    // The parent has ended: the session shows the job.
    let orphan = later.fork(3_202, 1, "python");
    (orphan.lineage.session, orphan.lineage.uid) = (300, Some(ALICE));
    let later = unread(later.with_jobs());
    let mut plan = planned(&before, Job, &[310], &[300, 311]);
    assert_eq!(
        find_joined(&plan, &later.process_table),
        keys(&later, &[3_200, 3_202])
    );
    plan.request.scope = Process;
    assert_eq!(find_joined(&plan, &later.process_table), BTreeSet::new());
}
