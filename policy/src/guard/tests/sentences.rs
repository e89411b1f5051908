//! Whether a plan is carried out for the job that was chosen, what came of it, and that
//! no job is ended twice, wherever the daemon is interrupted.

use super::super::sentence::{Judged, Objection, PATIENCE_MS, objection, objection_alone, request};
use super::*;
use crate::access::Uids;
use crate::guard::rules::PersonBy;
use crate::job::Kin;
use crate::kill::{Candidate, Crowd, ProgramOrigin};
use gpukill_proto::guard::JudgedJob;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{Fate, KillPlan, KillScope, KillSignal, KillTarget, MOST_PIDS, Reaper};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ContainerId, Job, ProcessKey, Scheduler, SchedulerJob, Unit};
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

pub(super) fn judged(job: &Job) -> JudgedJob {
    JudgedJob {
        owner: person("bob"),
        id: job.id(),
        shown: job.to_string(),
    }
}

fn target(pid: u32, job: Reading<Job>, fate: Fate) -> KillTarget {
    KillTarget {
        key: key(pid),
        name: "python".into(),
        command: Reading::Unsupported,
        uid: Reading::Value(1_001),
        owner: Reading::Value("bob".into()),
        holds: Vec::new(),
        named: true,
        job,
        fate,
        overridden: None,
    }
}

fn plan(targets: Vec<KillTarget>) -> KillPlan {
    KillPlan {
        targets,
        ..KillPlan::default()
    }
}

fn ends() -> Fate {
    Fate::End(vec![KillSignal::Terminate, KillSignal::Kill])
}

pub(super) fn reaper() -> Reaper {
    Reaper {
        pid: 1,
        name: Reading::Unsupported,
    }
}

const fn those<'a>(
    job: &'a JudgedJob,
    processes: &'a BTreeSet<(u32, u64)>,
    rules: &'a Rules,
    crowd: &'a Crowd,
) -> Judged<'a> {
    Judged {
        job,
        processes,
        rules,
        crowd,
        uid_min: 1000,
    }
}

/// No process.
static NOBODY: Crowd = Crowd::new();

/// A process of these users and of the user namespace of this maker.
fn process(pid: u32, uids: Uids, maker: Option<u32>) -> Candidate {
    Candidate {
        kin: Kin {
            key: key(pid),
            uid: Some(uids.real),
            maker,
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
        namespace_owner: Reading::Value(maker),
        namespace_root: None,
        pid_namespace: None,
        is_namespace_init: false,
        owner: Reading::Unsupported,
        command: Reading::Unsupported,
        container: Reading::Value(None),
        job: Reading::Unsupported,
        program: Reading::Value(ProgramOrigin::Host),
        at_seat: Reading::Unsupported,
    }
}

#[test]
fn all_of_a_job_is_asked_for_and_sigkill_only_after_time_for_a_checkpoint() {
    let asked = request(
        &BTreeSet::from([(100, 1_000), (101, 1_010)]),
        KillScope::Job,
    );
    assert_eq!(asked.selector.pids, [100, 101]);
    assert_eq!((asked.scope, asked.force), (KillScope::Job, true));
    assert_eq!((asked.patience_ms, asked.signal), (PATIENCE_MS, None));
    assert!(!asked.dry_run && !asked.any_process);
    let many = (0..5_000).map(|pid| (pid, 1)).collect();
    let asked = request(&many, KillScope::Process);
    assert_eq!(
        (asked.selector.pids.len(), asked.scope),
        (MOST_PIDS, KillScope::Process)
    );
}

#[test]
fn a_plan_is_carried_out_for_the_whole_job_that_was_judged_and_nothing_else() {
    let job = || Reading::Value(tree(99));
    let whole = || target(99, job(), ends());
    let of = |fate| plan(vec![whole(), target(100, job(), fate)]);
    let is_there = BTreeSet::from([(100, 1_000)]);
    let zombie = || Fate::Zombie(reaper());
    let said = |why: &str| Some(Objection::ToAll(why.to_owned()));
    let rest = |why: &str| Some(Objection::ToTheRest(why.to_owned()));
    let elsewhere = target(100, Reading::Value(tree(98)), ends());
    let unknown = target(100, Reading::Failed("gone".into()), ends());
    for (plan, there, why) in [
        (of(ends()), &is_there, None),
        // Whoever starts a display server in their job does not protect the whole of it.
        (
            plan(vec![
                target(
                    99,
                    job(),
                    Fate::Protected(gpukill_proto::kill::Protected::always("it is Xorg")),
                ),
                target(100, job(), ends()),
            ]),
            &is_there,
            rest("process 99 is protected: it is Xorg"),
        ),
        (
            plan(vec![
                target(
                    98,
                    job(),
                    Fate::Protected(gpukill_proto::kill::Protected::always("it is Xorg")),
                ),
                target(99, job(), Fate::Denied("root".into())),
                target(100, job(), ends()),
            ]),
            &is_there,
            rest("process 98 is protected: it is Xorg"),
        ),
        (
            of(Fate::Protected(gpukill_proto::kill::Protected::always(
                "it is Xorg",
            ))),
            &is_there,
            said("process 100 is protected: it is Xorg"),
        ),
        (
            of(Fate::Denied("root".into())),
            &is_there,
            said("process 100 is nobody's to end here"),
        ),
        (
            of(Fate::Unclear("its start".into())),
            &is_there,
            rest("process 100 cannot be judged: its start"),
        ),
        (of(zombie()), &is_there, None),
        (
            plan(vec![target(100, job(), zombie())]),
            &is_there,
            said("none of its processes can be ended"),
        ),
        (
            plan(vec![]),
            &BTreeSet::new(),
            said("none of its processes can be ended"),
        ),
        (
            plan(vec![whole()]),
            &is_there,
            said("process 100 is no part of what would be ended"),
        ),
        // The pid is another process's by now.
        (
            of(ends()),
            &BTreeSet::from([(100, 999)]),
            said("process 100 is no part of what would be ended"),
        ),
        (
            plan(vec![whole(), elsewhere]),
            &is_there,
            rest("process 100 is part of another job by now"),
        ),
        (
            plan(vec![whole(), unknown]),
            &is_there,
            rest("what job process 100 is part of is not known"),
        ),
    ] {
        let of_job = judged(&tree(99));
        let told = objection(&plan, those(&of_job, there, &Rules::default(), &NOBODY));
        assert_eq!(told, why, "{plan:?}");
    }
}

#[test]
fn who_is_in_another_job_by_now_is_ended_alone_as_long_as_that_is_of_the_same_person() {
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
    let other = || target(101, Reading::Value(tree(98)), ends());
    let of = |job| target(100, Reading::Value(job), ends());
    let moved = || Some("process 100 is part of another job by now".to_owned());
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
    let another = || Some("process 100 is another person's by now".to_owned());
    for (targets, whole, alone) in [
        (vec![of(tree(99))], None, None),
        (vec![of(tree(98))], moved(), None),
        (vec![of(unit(1_001))], moved(), None),
        (vec![of(container(None))], moved(), moved()),
        // One of bob's own, which he makes and names as he likes, and one of alice's.
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
            Some("process 101 was not judged".to_owned()),
        ),
    ] {
        let plan = plan(targets);
        let (of_job, rules) = (judged(&tree(99)), Rules::default());
        let told = objection(&plan, those(&of_job, &there, &rules, &NOBODY));
        assert_eq!(told.as_ref().map(ToString::to_string), whole, "{plan:?}");
        let is_of_the_rest = matches!(told, Some(Objection::ToTheRest(_)));
        let told = objection_alone(&plan, those(&of_job, &there, &rules, &NOBODY));
        let told = told.as_ref().map(ToString::to_string);
        assert_eq!(told, alone, "{plan:?}");
        assert_eq!(is_of_the_rest, whole == moved(), "{plan:?}");
    }
}

#[test]
fn by_login_a_process_that_changes_its_user_is_still_that_persons() {
    let there = BTreeSet::from([(100, 1_000)]);
    let as_root = KillTarget {
        uid: Reading::Value(0),
        owner: Reading::Value("root".into()),
        ..target(100, Reading::Value(tree(99)), ends())
    };
    let plan = plan(vec![as_root]);
    let of_job = judged(&tree(99));
    let told = |person| {
        let rules = Rules {
            person,
            ..Rules::default()
        };
        objection(&plan, those(&of_job, &there, &rules, &NOBODY)).map(|it| it.to_string())
    };
    assert_eq!(told(PersonBy::Login), None);
    let another = "process 100 is another person's by now";
    assert_eq!(told(PersonBy::Owner).as_deref(), Some(another));
}

#[test]
fn what_rules_protect_by_name_is_not_ended_with_a_job() {
    let there = BTreeSet::from([(100, 1_000)]);
    let mut rules = super::super::read::read("[protect]\nprocesses = ['stor*']\n").unwrap();
    let helper = KillTarget {
        name: "storaged".into(),
        uid: Reading::Value(999),
        ..target(99, Reading::Value(tree(99)), ends())
    };
    let plan = plan(vec![helper, target(100, Reading::Value(tree(99)), ends())]);
    let of_job = judged(&tree(99));
    let told = objection(&plan, those(&of_job, &there, &rules, &NOBODY));
    let why = "process 99 is protected by its name, storaged";
    assert_eq!(told, Some(Objection::ToTheRest(why.into())));
    // What a person's process calls itself protects nothing.
    let mut of_a_person = plan.clone();
    of_a_person.targets[0].uid = Reading::Value(1000);
    assert_eq!(
        objection(&of_a_person, those(&of_job, &there, &rules, &NOBODY)),
        None
    );
    rules.protect.processes.clear();
    assert_eq!(
        objection(&plan, those(&of_job, &there, &rules, &NOBODY)),
        None
    );
}

#[test]
fn who_has_no_number_is_not_ended_alone() {
    let there = BTreeSet::from([(100, 1_000)]);
    let plan = plan(vec![target(100, Reading::Value(tree(98)), ends())]);
    let mut job = judged(&tree(99));
    job.owner.uid = None;
    let why = objection_alone(&plan, those(&job, &there, &Rules::default(), &NOBODY));
    assert_eq!(
        why.map(|it| it.to_string()).as_deref(),
        Some("process 100 is part of another job by now")
    );
}

#[test]
fn who_takes_turns_with_their_users_is_still_who_was_judged() {
    let there = BTreeSet::from([(100, 1_000)]);
    let toggled = |real, saved| Uids {
        real,
        effective: real,
        saved,
    };
    for (uids, maker, is_bobs) in [
        (toggled(60_020, 1_001), None, true),
        (toggled(1_001, 60_020), None, true),
        (Uids::all(60_020), Some(1_001), true),
        (Uids::all(60_020), None, false),
        (Uids::all(1_002), None, false),
        (Uids::all(60_020), Some(1_002), false),
        // Root that went into bob's namespace.
        (Uids::all(0), Some(1_001), false),
    ] {
        let crowd = Crowd::from([(100, process(100, uids, maker))]);
        let now = KillTarget {
            uid: Reading::Value(uids.real),
            owner: Reading::Value(uids.real.to_string()),
            ..target(100, Reading::Value(tree(99)), ends())
        };
        let (of_job, rules) = (judged(&tree(99)), Rules::default());
        let told = objection(&plan(vec![now]), those(&of_job, &there, &rules, &crowd));
        let another = Objection::ToAll("process 100 is another person's by now".to_owned());
        assert_eq!(told, (!is_bobs).then_some(another), "{uids:?} {maker:?}");
    }
}
