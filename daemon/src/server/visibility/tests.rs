//! Which callers see which violations.

mod own;
mod simulated;
use super::*;
use crate::guard::DailyCounts;
use gpukill_policy::guard::rules::RuleSet;
use gpukill_proto::guard::{
    Evidence, GuardAction, GuardMode, OwnedJob, RuleKind, RuleName, RuleSource, Victim,
};
use gpukill_proto::model::{DeviceId, Job, Owner, OwnerKind, ProcessKey};
use gpukill_proto::reading::Reading;
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

fn evidence_process(pid: u32, uid: u32) -> EvidenceProcess {
    EvidenceProcess {
        run: RunKey {
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

fn open_violation(subject: ViolationSubject, runs: Vec<EvidenceProcess>) -> OpenViolation {
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
        unfinished_end: None,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            count: u32::try_from(runs.len()).unwrap(),
            runs,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

fn job(uid: u32) -> OwnedJob {
    OwnedJob {
        owner: person(uid),
        id: Job::Tree(ProcessKey {
            pid: 1,
            start_ticks: 7,
        })
        .id(),
        shown: "tree 1".into(),
    }
}

/// One violation of each kind of subject.
fn violations() -> Vec<OpenViolation> {
    let mut unknown = evidence_process(9, BOB);
    unknown.owner = None;
    let device = || DeviceId("GPU-0".into());
    vec![
        open_violation(
            ViolationSubject::Person(person(ALICE)),
            vec![evidence_process(1, ALICE)],
        ),
        open_violation(
            ViolationSubject::Person(person(BOB)),
            vec![evidence_process(2, BOB)],
        ),
        open_violation(
            ViolationSubject::PersonOn(person(BOB), device()),
            vec![evidence_process(2, BOB)],
        ),
        open_violation(
            ViolationSubject::Job(job(BOB)),
            vec![evidence_process(2, BOB)],
        ),
        open_violation(
            ViolationSubject::Run(evidence_process(2, BOB).run),
            vec![evidence_process(2, BOB)],
        ),
        open_violation(ViolationSubject::Run(unknown.run.clone()), vec![unknown]),
        open_violation(
            ViolationSubject::Group("ml".into()),
            vec![evidence_process(1, ALICE), evidence_process(2, BOB)],
        ),
        open_violation(
            ViolationSubject::GroupOn("ml".into(), device()),
            vec![evidence_process(2, BOB)],
        ),
        open_violation(
            ViolationSubject::Device(device()),
            vec![evidence_process(2, BOB)],
        ),
    ]
}

fn guard_status(open: Vec<OpenViolation>) -> GuardStatus {
    GuardStatus {
        open,
        ..GuardStatus::default()
    }
}

fn snapshot(processes: Vec<GpuProcess>) -> Snapshot {
    Snapshot {
        host: "box".into(),
        taken_at: Timestamp(0),
        polls: 1,
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
fn plain_user_sees_only_their_own() {
    let rules = RuleSet::default();
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
        let visibility = Visibility {
            caller: &caller,
            roles: &roles,
        };
        let brief = visibility.guard_summary(
            &CompiledRules::new(rules.clone()),
            &guard_status(violations()),
            &snapshot(Vec::new()),
        );
        let pids: Vec<u32> = brief.marks.iter().map(|mark| mark.run.pid).collect();
        assert_eq!((brief.open, pids), (count, marked), "{hide} {caller:?}");
        // The processes in the evidence of one violation are the marked ones.
        let open = violations();
        let redacted = open.iter().filter_map(|open| {
            visibility.redact_violation(open, &CompiledRules::new(RuleSet::default()))
        });
        let reported = redacted.flat_map(|open| open.evidence.runs);
        let reported: Vec<u32> = reported.map(|reported| reported.run.pid).collect();
        let pids: Vec<u32> = brief.marks.iter().map(|mark| mark.run.pid).collect();
        assert_eq!(reported, pids);
    }
}

#[test]
fn victims_of_others_are_hidden() {
    let record = |subject: ViolationSubject, step| GuardRecord {
        at: Timestamp(0),
        rule: violations()[0].rule.clone(),
        subject,
        mode: GuardMode::DryRun,
        step,
        evidence: open_violation(
            ViolationSubject::Group("ml".into()),
            vec![evidence_process(1, ALICE), evidence_process(2, BOB)],
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
    let group = || ViolationSubject::Group("ml".into());
    let exempt = || GuardStep::Exempt("tree 1: it is protected".into());
    let (caller, roles) = (caller(ALICE, &[]), roles(true));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let cases = [
        ("hers of a group", record(group(), victim(ALICE)), true),
        ("bob's of a group", record(group(), victim(BOB)), false),
        ("nobody of a group", record(group(), exempt()), false),
        (
            "nobody of hers",
            record(ViolationSubject::Person(person(ALICE)), exempt()),
            true,
        ),
        ("a group", record(group(), GuardStep::Violated), true),
        (
            "bob",
            record(ViolationSubject::Person(person(BOB)), GuardStep::Violated),
            false,
        ),
    ];
    for (what, record, expected) in cases {
        let visible = visibility
            .redact_record(record)
            .map(|record| record.evidence.runs);
        let hers = expected.then(|| vec![alice_evidence()]);
        assert_eq!(visible, hers, "{what}");
    }
}

fn alice_evidence() -> EvidenceProcess {
    evidence_process(1, ALICE)
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
fn whole_job_is_marked() {
    let snapshot = snapshot(vec![
        process(1, ALICE, 1),
        process(2, ALICE, 1),
        process(3, ALICE, 1),
        process(4, ALICE, 4),
        process(5, BOB, 1),
    ]);
    let mut many = open_violation(
        ViolationSubject::Job(job(ALICE)),
        vec![evidence_process(1, ALICE)],
    );
    many.evidence.count = 3;
    let (caller, roles) = (caller(BOB, &[]), roles(false));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let pids = |open: &OpenViolation| {
        let brief = visibility.guard_summary(
            &CompiledRules::new(RuleSet::default()),
            &guard_status(vec![open.clone()]),
            &snapshot,
        );
        let pids = brief.marks.iter().map(|mark| mark.run.pid);
        pids.collect::<Vec<u32>>()
    };
    assert_eq!(pids(&many), [1, 2, 3]);
    let parts: Vec<bool> = snapshot
        .processes
        .iter()
        .map(|it| is_process_of_violation(&many, it))
        .collect();
    assert_eq!(parts, [true, true, true, false, false]);
    many.evidence.count = 1;
    assert_eq!(pids(&many), [1]);
}

#[test]
fn marks_are_bounded() {
    let many: Vec<OpenViolation> = (1..2_000)
        .map(|pid| {
            open_violation(
                ViolationSubject::Person(person(pid)),
                vec![evidence_process(pid, pid)],
            )
        })
        .collect();
    let (caller, roles) = (caller(0, &[]), roles(true));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let brief = visibility.guard_summary(
        &CompiledRules::new(RuleSet::default()),
        &guard_status(many),
        &snapshot(Vec::new()),
    );
    assert_eq!((brief.open, brief.marks.len()), (1_999, MAX_MARKED));
}

/// A job of this user with these processes.
#[test]
fn has_rules_counts_any_rule() {
    let (caller, roles) = (caller(0, &[]), roles(false));
    let visibility = Visibility {
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
        let rules = gpukill_policy::guard::rules::parse::parse(text).unwrap();
        let brief = visibility.guard_summary(
            &CompiledRules::new(rules.clone()),
            &GuardStatus::default(),
            &snapshot(Vec::new()),
        );
        assert_eq!(brief.has_rules, expected, "{text}");
    }
}

#[test]
fn today_counts_only_visible() {
    let record = |subject: ViolationSubject, runs: Vec<EvidenceProcess>, step: GuardStep| {
        let open = open_violation(subject, runs);
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
    let (alice, bob) = (|| evidence_process(1, ALICE), || evidence_process(2, BOB));
    let device = || ViolationSubject::Device(DeviceId("GPU-0".into()));
    let mut today = DailyCounts::default();
    today.add(
        Timestamp(0),
        &[
            record(
                ViolationSubject::Person(person(ALICE)),
                vec![alice()],
                warned(1),
            ),
            record(
                ViolationSubject::Person(person(ALICE)),
                vec![alice()],
                warned(2),
            ),
            record(device(), vec![alice(), bob(), bob()], warned(1)),
            record(ViolationSubject::Job(job(BOB)), vec![bob()], warned(1)),
            // The owner of the job counts, not the other users of the device.
            record(device(), vec![alice(), bob()], ended(BOB, None)),
            record(device(), vec![bob()], ended(BOB, Some("scancel 7"))),
        ],
        |it| matches!(it.step, GuardStep::Warned { times: 1, .. }),
    );
    let counted = |uid, groups: &[u32], hides| {
        let (caller, roles) = (caller(uid, groups), roles(hides));
        let visibility = Visibility {
            caller: &caller,
            roles: &roles,
        };
        let ActionCounts { warned, ended } = visibility.today_counts(today.simulated());
        (warned, ended)
    };
    assert_eq!(counted(ALICE, &[], true), (2, 0));
    assert_eq!(counted(BOB, &[], true), (2, 1));
    assert_eq!(counted(1002, &[], true), (0, 0));
    assert_eq!(counted(1002, &[OPERATORS], true), (3, 1));
    assert_eq!(counted(0, &[], true), (3, 1));
    assert_eq!(counted(1002, &[], false), (3, 1));
}
