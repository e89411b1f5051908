//! What is said of a process to whom.

mod never;

mod shares;
use super::*;
use crate::server::holder_pages::tests::{NOW, device, holder};
use crate::state;
use gpukill_policy::access::LimitGroup;
use gpukill_policy::guard::read::read;
use gpukill_policy::guard::schedule::Civil;
use gpukill_policy::guard::{Rulebook, SimulatedEnd};
use gpukill_proto::guard::{
    Evidence, GuardAction, GuardMode, HeldTo, JudgedAs, JudgedJob, JudgedRun, Measured,
    OpenViolation, Person as Owns, RuleKind, RuleName, RuleSource, Ruled, Subject, Told,
};
use gpukill_proto::holders::Cause;
use gpukill_proto::snapshot::{
    Device, DeviceId, Owner, OwnerKind, ProcessKey, Scheduler, SchedulerJob, Vendor,
};
use gpukill_proto::units::Bytes;
use std::sync::Arc;
use std::time::Duration;

const OPERATORS: u32 = 800;

fn process(index: u32, pid: u32, uid: u32, memory: Reading<Bytes>) -> GpuProcess {
    let device = DeviceId(format!("GPU-{index}"));
    GpuProcess {
        start_ticks: Reading::Value(1),
        uid: Reading::Value(uid),
        owner: Reading::Value(Owner {
            name: format!("user{uid}"),
            uid: Some(uid),
            kind: OwnerKind::User,
        }),
        namespace_owner: Reading::Value(None),
        name: Reading::Value("python".into()),
        command: Reading::Value("python train.py".into()),
        executable: Reading::Value("/usr/bin/python3".into()),
        memory,
        ..GpuProcess::unknown(device, pid, NOW, &Reading::Unsupported)
    }
}

/// Two devices: 71 is listed on both, 72 has the second open, 73 is a monitor.
fn published() -> Published {
    let (_, reader) = state::channel("box".into(), Duration::from_secs(2));
    let mut published = reader.borrow().clone();
    let mut snapshot = (*published.snapshot).clone();
    for index in 0..2 {
        let id = DeviceId(format!("GPU-{index}"));
        snapshot.devices.push(Device::unknown(
            id,
            index,
            Vendor::Nvidia,
            &Reading::Unsupported,
        ));
        let memory = Reading::Value(Bytes(5 << 30));
        snapshot.processes.push(process(index, 71, 1000, memory));
    }
    let monitor = Holder {
        name: Reading::Value("nvidia-persiste".into()),
        ..holder(73, 0)
    };
    published.snapshot = Arc::new(snapshot);
    published.holders = Arc::new(vec![device(1, vec![holder(72, 1001), monitor])]);
    published
}

fn owns(uid: u32) -> Owns {
    Owns {
        name: format!("user{uid}"),
        uid: Some(uid),
    }
}

fn memory(source: RuleSource) -> RuleName {
    RuleName {
        source,
        kind: RuleKind::Memory,
    }
}

/// Group ml holds too much: a process of each of these users is told of.
fn too_much(told: &[(u32, u32)]) -> OpenViolation {
    let runs = told.iter().map(|(pid, uid)| Told {
        run: JudgedRun {
            pid: *pid,
            start_ticks: 1,
            device: DeviceId("GPU-0".into()),
            instance: None,
        },
        gpu_index: 0,
        owner: Some(owns(*uid)),
        name: None,
        memory: Some(5 << 30),
        utilization: None,
        job: None,
        context: Default::default(),
    });
    let (value, limit) = (10 << 30, 7 << 30);
    let measured = Measured { value, limit };
    OpenViolation {
        rule: RuleName {
            source: RuleSource::Group("ml".into()),
            kind: RuleKind::TotalMemory,
        },
        subject: Subject::Group("ml".into()),
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: NOW,
        warned_at: None,
        warnings: 0,
        deadline: None,
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: Some(measured),
            since: NOW,
            runs: runs.collect(),
            count: u32::try_from(told.len()).unwrap(),
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        message: None,
    }
}

/// For what the job of 71 would have been ended.
fn gone() -> OpenViolation {
    let job = JudgedJob {
        owner: owns(1000),
        id: "tree 71 1".into(),
        shown: "tree 71".into(),
    };
    OpenViolation {
        rule: memory(RuleSource::User("user1000".into())),
        subject: Subject::Job(job),
        ended_at: Some(NOW),
        ..too_much(&[(71, 1000)])
    }
}

/// Rules, two violations, one of 71 and somebody else's, one of others, and whose jobs
/// would have been ended.
fn guarded() -> (Rulebook, Vec<OpenViolation>, Vec<SimulatedEnd>) {
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [group_policies.ml]\nunix_groups = [\"ml\"]\nmemory_limit_gb = 4\ntotal_memory_limit_gb = 7\n\
        [user_policies.user1000]\nmemory_limit_gb = 40\n";
    let rules = read(rules).unwrap();
    let open = vec![
        too_much(&[(71, 1000), (80, 1005)]),
        too_much(&[(80, 1005), (81, 1006)]),
    ];
    let end = |pid, start_ticks| SimulatedEnd {
        violation: gone(),
        processes: [(pid, start_ticks)].into(),
    };
    // Another process has had that pid.
    let mut simulated = vec![end(72, 1), end(71, 2), end(71, 1)];
    simulated[1].violation = too_much(&[]);
    (Rulebook::of(rules), open, simulated)
}

#[test]
fn a_process_is_told_the_rules_that_it_breaks_and_what_holds_for_its_owner() {
    let limits = || {
        vec![
            HeldTo {
                rule: memory(RuleSource::User("user1000".into())),
                limit: Some(40 << 30),
                replaces: vec![
                    (memory(RuleSource::Group("ml".into())), 4 << 30),
                    (memory(RuleSource::Default), 2 << 30),
                ],
            },
            HeldTo {
                rule: RuleName {
                    source: RuleSource::Group("ml".into()),
                    kind: RuleKind::TotalMemory,
                },
                limit: Some(7 << 30),
                replaces: Vec::new(),
            },
        ]
    };
    let ruled = |violations| {
        Reading::Value(Ruled {
            mode: GuardMode::DryRun,
            is_stopped: false,
            violations,
            would_have_ended: vec![gone()],
            protected: None,
            limits: limits(),
            judged_as: JudgedAs::Owner,
        })
    };
    let both = too_much(&[(71, 1000), (80, 1005)]);
    let mut own = both.clone();
    own.evidence.runs.truncate(1);
    // Others' doings are hidden here from whoever does not run the box.
    let cases: [(u32, &[u32], Reading<Ruled>); 3] = [
        (0, &[], ruled(vec![both])),
        (1000, &[], ruled(vec![own])),
        (1005, &[], Reading::Withheld),
    ];
    for (uid, groups, expected) in cases {
        assert_eq!(
            asked(71, uid, groups, None).unwrap().guard,
            expected,
            "{uid}"
        );
    }
    // For which rule its job would have been ended is told once.
    let (book, open, mut simulated) = guarded();
    simulated[2].violation.rule = open[0].rule.clone();
    let once = asked_by(&(book, open, simulated), &published(), 71, 0, &[], None);
    let once = once.unwrap().guard.known().cloned().unwrap();
    assert_eq!((once.violations.len(), once.would_have_ended.len()), (0, 1));
    // No driver lists it, and no rule is about it.
    let holder = asked(72, 0, &[], None).unwrap();
    assert_eq!(holder.guard, Reading::Unsupported);
}

/// Who is protected by the rules of a kill.
const PROTECTED: u32 = 73;

fn asked(pid: u32, uid: u32, groups: &[u32], will_not_act: Option<&str>) -> Option<Explanation> {
    asked_of(&published(), pid, uid, groups, will_not_act)
}

#[test]
fn a_group_of_an_account_holds_for_whom_the_judge_takes_to_be_of_it() {
    let rules = "[group_policies.vision]\nslurm_accounts = [\"vision\"]\nmemory_limit_gb = 4\n";
    let guarded = (Rulebook::of(read(rules).unwrap()), Vec::new(), Vec::new());
    let mut published = published();
    let snapshot = Arc::make_mut(&mut published.snapshot);
    let job = SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "12".into(),
        step: None,
    };
    for process in &mut snapshot.processes {
        process.place.scheduler = Reading::Value(Some(job.clone()));
    }
    let key = snapshot.processes[0].key().unwrap();
    let of_vision = HeldTo {
        rule: memory(RuleSource::Group("vision".into())),
        limit: Some(4 << 30),
        replaces: Vec::new(),
    };
    for (account, expected) in [("vision", vec![of_vision]), ("audio", Vec::new())] {
        published.accounts = Arc::new([(key, account.to_owned())].into());
        let explained = asked_by(&guarded, &published, 71, 0, &[], None).unwrap();
        let limits = explained.guard.known().map(|ruled| ruled.limits.clone());
        assert_eq!(limits, Some(expected), "{account}");
    }
}

#[test]
fn a_process_is_told_as_whom_it_is_judged_where_that_is_not_its_owner() {
    let guarded = |person: &str| {
        let rules = format!("[global]\nperson = \"{person}\"\n");
        (Rulebook::of(read(&rules).unwrap()), Vec::new(), Vec::new())
    };
    let login = Owns {
        name: "bob".into(),
        uid: Some(1001),
    };
    let logged_in = || Reading::Value(Some(1001));
    for (person, uid, expected) in [
        ("owner", logged_in(), JudgedAs::Owner),
        ("login", logged_in(), JudgedAs::Login(login)),
        ("login", Reading::Value(Some(1000)), JudgedAs::Owner),
        ("login", Reading::Value(None), JudgedAs::Owner),
        ("login", Reading::Failed("x".into()), JudgedAs::Unknown),
    ] {
        let mut published = published();
        for process in &mut Arc::make_mut(&mut published.snapshot).processes {
            process.login_uid = uid.clone();
            process.login_user = Reading::Value(Some("bob".into()));
            process.place.unit = Reading::Value(None);
            process.place.scheduler = Reading::Value(None);
        }
        let explained = asked_by(&guarded(person), &published, 71, 0, &[], None).unwrap();
        let told = explained.guard.known().map(|ruled| ruled.judged_as.clone());
        assert_eq!(told, Some(expected), "{person} {uid:?}");
    }
}

fn asked_of(
    published: &Published,
    pid: u32,
    uid: u32,
    groups: &[u32],
    will_not_act: Option<&str>,
) -> Option<Explanation> {
    asked_by(&guarded(), published, pid, uid, groups, will_not_act)
}

fn asked_by(
    (book, open, simulated): &(Rulebook, Vec<OpenViolation>, Vec<SimulatedEnd>),
    published: &Published,
    pid: u32,
    uid: u32,
    groups: &[u32],
    will_not_act: Option<&str>,
) -> Option<Explanation> {
    let caller = Caller {
        uid,
        groups: groups.iter().copied().collect(),
        contained: false,
        limit_group: LimitGroup::Person(uid),
    };
    let roles = Roles {
        operator_group: Some(OPERATORS),
        hide_other_users: true,
        ..Roles::default()
    };
    let asker = Asker {
        caller: &caller,
        roles: &roles,
        will_not_act,
        protected: (pid == PROTECTED).then_some("it watches the devices"),
        judged: Judged {
            book,
            is_stopped: false,
            open,
            simulated,
            civil: Civil::default(),
            groups: &|uid| (uid == 1000).then(|| vec!["ml".into()]),
            accounts: &published.accounts,
        },
    };
    let called = |person| match person {
        Person::User(uid) => format!("user {uid}"),
        Person::Group(group) => format!("group {group}"),
    };
    explain(published, pid, NOW, &asker, called)
}

#[test]
fn a_listed_process_is_explained_on_every_device() {
    let explained = asked(71, 1000, &[], None).unwrap();
    let indices = explained.uses.iter().map(|(label, _)| label.index);
    assert_eq!(indices.collect::<Vec<_>>(), [0, 1]);
    assert_eq!(explained.holds, []);
    assert_eq!(explained.frees, Reading::Value(Bytes(10 << 30)));
    assert_eq!(
        explained.may_end,
        MayEnd {
            people: vec!["user 1000".into(), "group 800".into(), "user 0".into()],
            you: true,
            never: None,
        }
    );
    assert_eq!(
        explained.uses[0].1,
        process(0, 71, 1000, Reading::Value(Bytes(5 << 30)))
    );
}

#[test]
fn others_get_no_command_line_and_may_not_end_it() {
    let explained = asked(71, 1002, &[], None).unwrap();
    assert_eq!(explained.uses[1].1.command, Reading::Withheld);
    assert_eq!(explained.uses[1].1.executable, Reading::Withheld);
    assert!(!explained.may_end.you);
    assert!(asked(71, 1002, &[OPERATORS], None).unwrap().may_end.you);
    let holder = &asked(72, 1002, &[], None).unwrap().holds[0].1;
    assert_eq!(holder.command, Reading::Withheld);
}

#[test]
fn a_process_that_only_has_a_device_open_is_explained_by_what_is_found_of_it() {
    let explained = asked(72, 1001, &[], None).unwrap();
    assert_eq!(explained.uses, []);
    let (label, open, role) = &explained.holds[0];
    assert_eq!((label.index, open.pid), (1, 72));
    assert!(matches!(role, Role::Orphan { of: Some(7), .. }));
    let causes = explained
        .findings
        .iter()
        .map(|(at, found)| (*at, found.cause));
    assert_eq!(causes.collect::<Vec<_>>(), [(1, Cause::Orphans)]);
    assert_eq!(explained.frees, Reading::Unsupported);
    assert_eq!(explained.may_end.never, None);
}
