//! Who sees whose violations.

mod logins;
mod own;
mod simulated;
use super::*;
use crate::guard::Today;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::{
    Evidence, GuardAction, GuardMode, JudgedJob, RuleKind, RuleName, RuleSource, Victim,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, Job, Owner, OwnerKind, ProcessKey};
use gpukill_proto::units::Timestamp;

const OPERATORS: u32 = 800;
const ALICE: u32 = 1000;
const BOB: u32 = 1001;

fn person(uid: u32) -> Person {
    Person {
        name: format!("user{uid}"),
        uid: Some(uid),
    }
}

fn told(pid: u32, uid: u32) -> Told {
    Told {
        run: JudgedRun {
            pid,
            start_ticks: 7,
            device: DeviceId("GPU-0".into()),
            instance: None,
        },
        gpu_index: 0,
        owner: Some(person(uid)),
        name: None,
        memory: None,
        utilization: None,
        job: Some("tree 1".into()),
        context: Default::default(),
    }
}

fn open(subject: Subject, runs: Vec<Told>) -> OpenViolation {
    OpenViolation {
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Memory,
        },
        subject,
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: Timestamp(0),
        warned_at: None,
        warnings: 0,
        deadline: None,
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            count: u32::try_from(runs.len()).unwrap(),
            runs,
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        message: None,
    }
}

fn job(uid: u32) -> JudgedJob {
    JudgedJob {
        owner: person(uid),
        id: Job::Tree(ProcessKey {
            pid: 1,
            start_ticks: 7,
        })
        .id(),
        shown: "tree 1".into(),
    }
}

/// One of each subject.
fn violations() -> Vec<OpenViolation> {
    let mut unknown = told(9, BOB);
    unknown.owner = None;
    let device = || DeviceId("GPU-0".into());
    vec![
        open(Subject::Person(person(ALICE)), vec![told(1, ALICE)]),
        open(Subject::Person(person(BOB)), vec![told(2, BOB)]),
        open(Subject::PersonOn(person(BOB), device()), vec![told(2, BOB)]),
        open(Subject::Job(job(BOB)), vec![told(2, BOB)]),
        open(Subject::Run(told(2, BOB).run), vec![told(2, BOB)]),
        open(Subject::Run(unknown.run.clone()), vec![unknown]),
        open(
            Subject::Group("ml".into()),
            vec![told(1, ALICE), told(2, BOB)],
        ),
        open(Subject::GroupOn("ml".into(), device()), vec![told(2, BOB)]),
        open(Subject::Device(device()), vec![told(2, BOB)]),
    ]
}

fn standing(open: Vec<OpenViolation>) -> Standing {
    Standing {
        open,
        ..Standing::default()
    }
}

fn snapshot(processes: Vec<GpuProcess>) -> Snapshot {
    Snapshot {
        host: "box".into(),
        taken_at: Timestamp(0),
        tick: 1,
        devices: Vec::new(),
        processes,
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        groups: groups.iter().copied().collect(),
        contained: false,
        limit_group: gpukill_policy::access::LimitGroup::Person(uid),
    }
}

fn roles(hide_other_users: bool) -> Roles {
    Roles {
        operator_group: Some(OPERATORS),
        hide_other_users,
        ..Roles::default()
    }
}

#[test]
fn where_others_are_hidden_a_plain_user_sees_and_counts_their_own_violations_alone() {
    let rules = Rules::default();
    let all: Vec<u32> = vec![1, 2, 2, 2, 2, 9, 1, 2, 2, 2];
    let cases: [(bool, Caller, u32, Vec<u32>); 5] = [
        (false, caller(ALICE, &[]), 9, all.clone()),
        (true, caller(ALICE, &[OPERATORS]), 9, all.clone()),
        (true, caller(0, &[]), 9, all),
        (true, caller(ALICE, &[]), 2, vec![1, 1]),
        (true, caller(1002, &[]), 0, vec![]),
    ];
    for (hide, caller, count, marked) in cases {
        let roles = roles(hide);
        let sight = Sight {
            caller: &caller,
            roles: &roles,
        };
        let brief = sight.brief(
            &Rulebook::of(rules.clone()),
            &standing(violations()),
            &snapshot(Vec::new()),
        );
        let pids: Vec<u32> = brief.marked.iter().map(|mark| mark.run.pid).collect();
        assert_eq!((brief.open, pids), (count, marked), "{hide} {caller:?}");
        // What is told of one violation is what is marked.
        let open = violations();
        let seen = open
            .iter()
            .filter_map(|open| sight.open(open, &Rulebook::of(Rules::default())));
        let told = seen.flat_map(|open| open.evidence.runs);
        let told: Vec<u32> = told.map(|told| told.run.pid).collect();
        let pids: Vec<u32> = brief.marked.iter().map(|mark| mark.run.pid).collect();
        assert_eq!(told, pids);
    }
}

#[test]
fn who_is_ended_and_why_nobody_is_are_hidden_where_they_are_others() {
    let record = |subject: Subject, step| GuardRecord {
        at: Timestamp(0),
        rule: violations()[0].rule.clone(),
        subject,
        mode: GuardMode::DryRun,
        step,
        evidence: open(
            Subject::Group("ml".into()),
            vec![told(1, ALICE), told(2, BOB)],
        )
        .evidence,
        message: None,
    };
    let victim = |uid| {
        GuardStep::Ended(Victim {
            job: job(uid),
            priority: 5,
            runs: Vec::new(),
            count: 1,
            is_busy: None,
            leave_to: None,
        })
    };
    let group = || Subject::Group("ml".into());
    let spared = || GuardStep::Spared("tree 1: it is protected".into());
    let (caller, roles) = (caller(ALICE, &[]), roles(true));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let cases = [
        ("hers of a group", record(group(), victim(ALICE)), true),
        ("bob's of a group", record(group(), victim(BOB)), false),
        ("nobody of a group", record(group(), spared()), false),
        (
            "nobody of hers",
            record(Subject::Person(person(ALICE)), spared()),
            true,
        ),
        ("a group", record(group(), GuardStep::Violated), true),
        (
            "bob",
            record(Subject::Person(person(BOB)), GuardStep::Violated),
            false,
        ),
    ];
    for (what, record, expected) in cases {
        let told = sight.record(record).map(|record| record.evidence.runs);
        let hers = expected.then(|| vec![told_of_alice()]);
        assert_eq!(told, hers, "{what}");
    }
}

fn told_of_alice() -> Told {
    told(1, ALICE)
}

fn process(pid: u32, uid: u32, tree: u32) -> GpuProcess {
    GpuProcess {
        start_ticks: Reading::Value(7),
        owner: Reading::Value(Owner {
            name: format!("user{uid}"),
            uid: Some(uid),
            kind: OwnerKind::User,
        }),
        job: Reading::Value(Job::Tree(ProcessKey {
            pid: tree,
            start_ticks: 7,
        })),
        ..GpuProcess::unknown(
            DeviceId("GPU-0".into()),
            pid,
            Timestamp(0),
            &Reading::Unsupported,
        )
    }
}

#[test]
fn all_processes_of_a_job_are_marked_though_some_are_told_of() {
    let snapshot = snapshot(vec![
        process(1, ALICE, 1),
        process(2, ALICE, 1),
        process(3, ALICE, 1),
        process(4, ALICE, 4),
        process(5, BOB, 1),
    ]);
    let mut many = open(Subject::Job(job(ALICE)), vec![told(1, ALICE)]);
    many.evidence.count = 3;
    let (caller, roles) = (caller(BOB, &[]), roles(false));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let pids = |open: &OpenViolation| {
        let brief = sight.brief(
            &Rulebook::of(Rules::default()),
            &standing(vec![open.clone()]),
            &snapshot,
        );
        let pids = brief.marked.iter().map(|mark| mark.run.pid);
        pids.collect::<Vec<u32>>()
    };
    assert_eq!(pids(&many), [1, 2, 3]);
    let parts: Vec<bool> = snapshot
        .processes
        .iter()
        .map(|it| is_part(&many, PersonBy::Owner, it))
        .collect();
    assert_eq!(parts, [true, true, true, false, false]);
    many.evidence.count = 1;
    assert_eq!(pids(&many), [1]);
}

#[test]
fn however_many_break_rules_a_list_marks_a_bounded_number() {
    let many: Vec<OpenViolation> = (1..2_000)
        .map(|pid| open(Subject::Person(person(pid)), vec![told(pid, pid)]))
        .collect();
    let (caller, roles) = (caller(0, &[]), roles(true));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let brief = sight.brief(
        &Rulebook::of(Rules::default()),
        &standing(many),
        &snapshot(Vec::new()),
    );
    assert_eq!((brief.open, brief.marked.len()), (1_999, MOST_MARKED));
}

/// A job of this user's of which these processes are there.
#[test]
fn a_guard_has_rules_as_soon_as_anybody_can_break_one() {
    let (caller, roles) = (caller(0, &[]), roles(false));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let cases = [
        ("", false),
        ("[global]\nenabled = true\n", false),
        ("[global]\ndefault_idle_min_memory_gb = 2\n", false),
        ("[global]\ndefault_max_concurrent_processes = 9\n", true),
        ("[user_policies.alice]\nmemory_limit_gb = 8\n", true),
    ];
    for (text, expected) in cases {
        let rules = gpukill_policy::guard::read::read(text).unwrap();
        let brief = sight.brief(
            &Rulebook::of(rules.clone()),
            &Standing::default(),
            &snapshot(Vec::new()),
        );
        assert_eq!(brief.has_rules, expected, "{text}");
    }
}

#[test]
fn who_may_not_see_others_counts_only_their_own_of_today() {
    let record = |subject: Subject, runs: Vec<Told>, step: GuardStep| {
        let open = open(subject, runs);
        GuardRecord {
            at: Timestamp(0),
            rule: open.rule,
            subject: open.subject,
            mode: open.mode,
            step,
            evidence: open.evidence,
            message: None,
        }
    };
    let warned = |times| GuardStep::Warned {
        times,
        deadline: None,
    };
    let ended = |uid, leave_to: Option<&str>| {
        GuardStep::Ended(Victim {
            job: job(uid),
            priority: 5,
            runs: Vec::new(),
            count: 1,
            is_busy: None,
            leave_to: leave_to.map(str::to_owned),
        })
    };
    let (alice, bob) = (|| told(1, ALICE), || told(2, BOB));
    let device = || Subject::Device(DeviceId("GPU-0".into()));
    let mut today = Today::default();
    today.add(
        Timestamp(0),
        &[
            record(Subject::Person(person(ALICE)), vec![alice()], warned(1)),
            record(Subject::Person(person(ALICE)), vec![alice()], warned(2)),
            record(device(), vec![alice(), bob(), bob()], warned(1)),
            record(Subject::Job(job(BOB)), vec![bob()], warned(1)),
            // Whose job it is counts, whoever else is in the way.
            record(device(), vec![alice(), bob()], ended(BOB, None)),
            record(device(), vec![bob()], ended(BOB, Some("scancel 7"))),
        ],
        |it| matches!(it.step, GuardStep::Warned { times: 1, .. }),
    );
    let counted = |uid, groups: &[u32], hides| {
        let (caller, roles) = (caller(uid, groups), roles(hides));
        let sight = Sight {
            caller: &caller,
            roles: &roles,
        };
        let Counted { warned, ended } = sight.today(today.simulated());
        (warned, ended)
    };
    assert_eq!(counted(ALICE, &[], true), (2, 0));
    assert_eq!(counted(BOB, &[], true), (2, 1));
    assert_eq!(counted(1002, &[], true), (0, 0));
    assert_eq!(counted(1002, &[OPERATORS], true), (3, 1));
    assert_eq!(counted(0, &[], true), (3, 1));
    assert_eq!(counted(1002, &[], false), (3, 1));
}
