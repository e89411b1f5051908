//! Whether a kill plan may be executed for the job that the guard chose.

use super::super::enforcement::plan_check::{
    EnforcementTarget, PlanVeto, SIGNAL_TIMEOUT_MS, job_plan_veto, kill_request, process_plan_veto,
};
use super::*;
use crate::access::Uids;
use crate::job::ProcessLineage;
use crate::kill::{ProcessInfo, ProcessTable, ProgramOrigin};
use gpukill_proto::guard::OwnedJob;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{
    KillPlan, KillScope, KillSignal, KillTarget, MAX_PIDS, PlannedAction, Reaper,
};
use gpukill_proto::model::{ContainerId, Job, ProcessKey, Scheduler, SchedulerJob, Unit};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

pub(super) const fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: pid as u64 * 10,
    }
}

pub(super) fn tree(pid: u32) -> Job {
    Job::Tree(key(pid))
}

pub(super) fn evaluated_job(job: &Job) -> OwnedJob {
    OwnedJob {
        owner: person("bob"),
        id: job.id(),
        shown: job.to_string(),
    }
}

fn target(pid: u32, job: Reading<Job>, action: PlannedAction) -> KillTarget {
    KillTarget {
        key: key(pid),
        name: "python".into(),
        command: Reading::Unsupported,
        uid: Reading::Value(1_001),
        owner: Reading::Value("bob".into()),
        holds: Vec::new(),
        named: true,
        job,
        action,
        overridden: None,
    }
}

fn plan(targets: Vec<KillTarget>) -> KillPlan {
    KillPlan {
        targets,
        ..KillPlan::default()
    }
}

fn end_action() -> PlannedAction {
    PlannedAction::End(vec![KillSignal::Terminate, KillSignal::Kill])
}

pub(super) fn reaper() -> Reaper {
    Reaper {
        pid: 1,
        name: Reading::Unsupported,
    }
}

const fn enforcement_target<'a>(
    job: &'a OwnedJob,
    processes: &'a BTreeSet<(u32, u64)>,
    rules: &'a RuleSet,
    process_table: &'a ProcessTable,
) -> EnforcementTarget<'a> {
    EnforcementTarget {
        job,
        processes,
        rules,
        process_table,
        uid_min: 1000,
    }
}

/// An empty process table.
static EMPTY_TABLE: ProcessTable = ProcessTable::new();

/// A process with these uids, in a user namespace of this owner.
fn process(pid: u32, uids: Uids, namespace_creator: Option<u32>) -> ProcessInfo {
    ProcessInfo {
        lineage: ProcessLineage {
            key: key(pid),
            uid: Some(uids.real),
            uid_min: 1000,
            namespace_creator,
            name: "python".into(),
            group: pid,
            session: pid,
            on_terminal: false,
            executable: None,
            arguments: None,
            unit: None,
        },
        parent: 1,
        is_kernel_thread: false,
        state: ProcessState::Sleeping,
        uids: Reading::Value(uids),
        namespace_owner: Reading::Value(namespace_creator),
        namespace_root: None,
        pid_namespace: None,
        is_namespace_init: false,
        owner: Reading::Unsupported,
        person_name: Reading::Unsupported,
        command: Reading::Unsupported,
        container: Reading::Value(None),
        job: Reading::Unsupported,
        program: Reading::Value(ProgramOrigin::Host),
        at_seat: Reading::Unsupported,
    }
}

#[test]
fn requests_the_job_with_time_before_sigkill() {
    let asked = kill_request(
        &BTreeSet::from([(100, 1_000), (101, 1_010)]),
        KillScope::Job,
    );
    assert_eq!(asked.selector.pids, [100, 101]);
    assert_eq!((asked.scope, asked.force), (KillScope::Job, true));
    assert_eq!(
        (asked.signal_timeout_ms, asked.signal),
        (SIGNAL_TIMEOUT_MS, None)
    );
    assert!(!asked.dry_run && !asked.any_process);
    let many = (0..5_000).map(|pid| (pid, 1)).collect();
    let asked = kill_request(&many, KillScope::Process);
    assert_eq!(
        (asked.selector.pids.len(), asked.scope),
        (MAX_PIDS, KillScope::Process)
    );
}

#[test]
fn plan_must_match_the_chosen_job() {
    let job = || Reading::Value(tree(99));
    let whole = || target(99, job(), end_action());
    let plan_with = |action| plan(vec![whole(), target(100, job(), action)]);
    let is_there = BTreeSet::from([(100, 1_000)]);
    let zombie = || PlannedAction::Zombie(reaper());
    let whole_plan_veto = |why: &str| Some(PlanVeto::WholePlan(why.to_owned()));
    let rest = |why: &str| Some(PlanVeto::RestOfJob(why.to_owned()));
    let elsewhere = target(100, Reading::Value(tree(98)), end_action());
    let unknown = target(100, Reading::Failed("gone".into()), end_action());
    for (plan, there, why) in [
        (plan_with(end_action()), &is_there, None),
        // A display server in the job does not protect the rest of the job.
        (
            plan(vec![
                target(
                    99,
                    job(),
                    PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always(
                        "it is Xorg",
                    )),
                ),
                target(100, job(), end_action()),
            ]),
            &is_there,
            rest("process 99 is protected: it is Xorg"),
        ),
        (
            plan(vec![
                target(
                    98,
                    job(),
                    PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always(
                        "it is Xorg",
                    )),
                ),
                target(99, job(), PlannedAction::Denied("root".into())),
                target(100, job(), end_action()),
            ]),
            &is_there,
            rest("process 98 is protected: it is Xorg"),
        ),
        (
            plan_with(PlannedAction::Protected(
                gpukill_proto::kill::ProtectionReason::always("it is Xorg"),
            )),
            &is_there,
            whole_plan_veto("process 100 is protected: it is Xorg"),
        ),
        (
            plan_with(PlannedAction::Denied("root".into())),
            &is_there,
            whole_plan_veto("process 100 cannot be ended: not permitted"),
        ),
        (
            plan_with(PlannedAction::Unclear("its start".into())),
            &is_there,
            rest("process 100 cannot be checked: its start"),
        ),
        (plan_with(zombie()), &is_there, None),
        (
            plan(vec![target(100, job(), zombie())]),
            &is_there,
            whole_plan_veto("none of its processes can be ended"),
        ),
        (
            plan(vec![]),
            &BTreeSet::new(),
            whole_plan_veto("none of its processes can be ended"),
        ),
        (
            plan(vec![whole()]),
            &is_there,
            whole_plan_veto("process 100 is not part of the plan"),
        ),
        // The pid belongs to another process by now.
        (
            plan_with(end_action()),
            &BTreeSet::from([(100, 999)]),
            whole_plan_veto("process 100 is not part of the plan"),
        ),
        (
            plan(vec![whole(), elsewhere]),
            &is_there,
            rest("process 100 is now part of another job"),
        ),
        (
            plan(vec![whole(), unknown]),
            &is_there,
            rest("the job of process 100 is not known"),
        ),
    ] {
        let of_job = evaluated_job(&tree(99));
        let actual = job_plan_veto(
            &plan,
            enforcement_target(&of_job, there, &RuleSet::default(), &EMPTY_TABLE),
        );
        assert_eq!(actual, why, "{plan:?}");
    }
}

#[test]
fn moved_process_is_ended_alone() {
    let unit = |uid| Job::Unit {
        unit: Unit {
            name: "hop.scope".into(),
            manager: Some(uid),
        },
        uid,
    };
    let container = |manager| Job::Container {
        id: ContainerId {
            runtime: "docker".into(),
            id: "0123".into(),
        },
        manager,
    };
    let scheduler = Job::Scheduler(SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "12".into(),
        step: None,
    });
    let there = BTreeSet::from([(100, 1_000)]);
    let other = || target(101, Reading::Value(tree(98)), end_action());
    let of = |job| target(100, Reading::Value(job), end_action());
    let moved = || Some("process 100 is now part of another job".to_owned());
    let others = |target: KillTarget| KillTarget {
        uid: Reading::Value(1_002),
        owner: Reading::Value("alice".into()),
        ..target
    };
    // In a user namespace of bob's.
    let numbered = |target: KillTarget| KillTarget {
        uid: Reading::Value(100_999),
        ..target
    };
    let another = || Some("process 100 now belongs to another person".to_owned());
    for (targets, whole, alone) in [
        (vec![of(tree(99))], None, None),
        (vec![of(tree(98))], moved(), None),
        (vec![of(unit(1_001))], moved(), None),
        (vec![of(container(None))], moved(), moved()),
        // A container of bob's own, which he makes and names as he likes, and a container
        // of alice's.
        (vec![of(container(Some(1_001)))], moved(), None),
        (vec![of(container(Some(1_002)))], moved(), moved()),
        (
            vec![others(of(container(Some(1_001))))],
            another(),
            another(),
        ),
        (vec![of(scheduler)], moved(), moved()),
        (vec![numbered(of(tree(98)))], moved(), None),
        (vec![others(of(tree(98)))], another(), another()),
        (vec![others(of(tree(99)))], another(), another()),
        (
            vec![of(tree(98)), other()],
            moved(),
            Some("process 101 was not evaluated".to_owned()),
        ),
    ] {
        let plan = plan(targets);
        let (of_job, rules) = (evaluated_job(&tree(99)), RuleSet::default());
        let actual = job_plan_veto(
            &plan,
            enforcement_target(&of_job, &there, &rules, &EMPTY_TABLE),
        );
        assert_eq!(actual.as_ref().map(ToString::to_string), whole, "{plan:?}");
        let is_of_the_rest = matches!(actual, Some(PlanVeto::RestOfJob(_)));
        let actual = process_plan_veto(
            &plan,
            enforcement_target(&of_job, &there, &rules, &EMPTY_TABLE),
        );
        let actual = actual.as_ref().map(ToString::to_string);
        assert_eq!(actual, alone, "{plan:?}");
        assert_eq!(is_of_the_rest, whole == moved(), "{plan:?}");
    }
}

#[test]
fn protected_name_is_excluded_from_the_job() {
    let there = BTreeSet::from([(100, 1_000)]);
    let mut rules = parse::parse("[protect]\nprocesses = ['stor*']\n").unwrap();
    let helper = KillTarget {
        name: "storaged".into(),
        uid: Reading::Value(999),
        ..target(99, Reading::Value(tree(99)), end_action())
    };
    let plan = plan(vec![
        helper,
        target(100, Reading::Value(tree(99)), end_action()),
    ]);
    let of_job = evaluated_job(&tree(99));
    let actual = job_plan_veto(
        &plan,
        enforcement_target(&of_job, &there, &rules, &EMPTY_TABLE),
    );
    let why = "process 99 is protected by its name, storaged";
    assert_eq!(actual, Some(PlanVeto::RestOfJob(why.into())));
    // The name of a person's process protects nothing.
    let mut of_a_person = plan.clone();
    of_a_person.targets[0].uid = Reading::Value(1000);
    assert_eq!(
        job_plan_veto(
            &of_a_person,
            enforcement_target(&of_job, &there, &rules, &EMPTY_TABLE)
        ),
        None
    );
    rules.protect.processes.clear();
    assert_eq!(
        job_plan_veto(
            &plan,
            enforcement_target(&of_job, &there, &rules, &EMPTY_TABLE)
        ),
        None
    );
}

#[test]
fn owner_without_uid_is_not_ended_alone() {
    let there = BTreeSet::from([(100, 1_000)]);
    let plan = plan(vec![target(100, Reading::Value(tree(98)), end_action())]);
    let mut job = evaluated_job(&tree(99));
    job.owner.uid = None;
    let why = process_plan_veto(
        &plan,
        enforcement_target(&job, &there, &RuleSet::default(), &EMPTY_TABLE),
    );
    assert_eq!(
        why.map(|it| it.to_string()).as_deref(),
        Some("process 100 is now part of another job")
    );
}

#[test]
fn mixed_uids_are_the_same_person() {
    let there = BTreeSet::from([(100, 1_000)]);
    let toggled = |real, saved| Uids {
        real,
        effective: real,
        saved,
    };
    for (uids, namespace_creator, is_bobs) in [
        (toggled(60_020, 1_001), None, true),
        (toggled(1_001, 60_020), None, true),
        (Uids::from_single(60_020), Some(1_001), true),
        (Uids::from_single(60_020), None, false),
        (Uids::from_single(1_002), None, false),
        (Uids::from_single(60_020), Some(1_002), false),
        // Root that entered bob's namespace.
        (Uids::from_single(0), Some(1_001), false),
    ] {
        let process_table = ProcessTable::from([(100, process(100, uids, namespace_creator))]);
        let now = KillTarget {
            uid: Reading::Value(uids.real),
            owner: Reading::Value(uids.real.to_string()),
            ..target(100, Reading::Value(tree(99)), end_action())
        };
        let (of_job, rules) = (evaluated_job(&tree(99)), RuleSet::default());
        let actual = job_plan_veto(
            &plan(vec![now]),
            enforcement_target(&of_job, &there, &rules, &process_table),
        );
        let another = PlanVeto::WholePlan("process 100 now belongs to another person".to_owned());
        assert_eq!(
            actual,
            (!is_bobs).then_some(another),
            "{uids:?} {namespace_creator:?}"
        );
    }
}
