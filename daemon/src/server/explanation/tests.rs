//! The content of an explanation for each caller.

mod shares;
use super::*;
use crate::poll::process_inspector::LiveIdentity;
use crate::server::holder_pages::tests::{NOW, device, holder};
use crate::state;
use gpukill_policy::access::LimitGroup;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::enforcement::ended_jobs::SimulatedEnd;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_policy::guard::schedule::LocalTime;
use gpukill_proto::guard::{
    AppliedLimit, Evidence, EvidenceProcess, GuardAction, GuardMode, Measurement, OpenViolation,
    OwnedJob, Person as Owns, ProcessGuardStatus, RuleKind, RuleName, RuleSource, RunKey,
    ViolationSubject,
};
use gpukill_proto::holders::Cause;
use gpukill_proto::model::{
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
fn published() -> PublishedPoll {
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

/// Group ml exceeds a limit: a process of each of these users is reported.
fn group_violation(processes: &[(u32, u32)]) -> OpenViolation {
    let runs = processes.iter().map(|(pid, uid)| EvidenceProcess {
        run: RunKey {
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
    let measured = Measurement { value, limit };
    OpenViolation {
        rule: RuleName {
            source: RuleSource::Group("ml".into()),
            kind: RuleKind::TotalMemory,
        },
        subject: ViolationSubject::Group("ml".into()),
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
        unfinished_end: None,
        evidence: Evidence {
            measured: Some(measured),
            since: NOW,
            runs: runs.collect(),
            count: u32::try_from(processes.len()).unwrap(),
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

/// The violation for which the job of 71 would have been ended.
fn simulated_violation() -> OpenViolation {
    let job = OwnedJob {
        owner: owns(1000),
        id: "tree 71 1".into(),
        shown: "tree 71".into(),
    };
    OpenViolation {
        rule: memory(RuleSource::User("user1000".into())),
        subject: ViolationSubject::Job(job),
        ended_at: Some(NOW),
        ..group_violation(&[(71, 1000)])
    }
}

/// Rules; two violations, one of 71 and another user, one of others only; and the jobs that would
/// have been ended.
fn guard_fixture() -> (CompiledRules, Vec<OpenViolation>, Vec<SimulatedEnd>) {
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [group_policies.ml]\nunix_groups = [\"ml\"]\nmemory_limit_gb = 4\ntotal_memory_limit_gb = 7\n\
        [user_policies.user1000]\nmemory_limit_gb = 40\n";
    let rules = parse(rules).unwrap();
    let open = vec![
        group_violation(&[(71, 1000), (80, 1005)]),
        group_violation(&[(80, 1005), (81, 1006)]),
    ];
    let end = |pid, start_ticks| SimulatedEnd {
        violation: simulated_violation(),
        processes: [(pid, start_ticks)].into(),
    };
    // Another process had this pid before.
    let mut simulated = vec![end(72, 1), end(71, 2), end(71, 1)];
    simulated[1].violation = group_violation(&[]);
    (CompiledRules::new(rules), open, simulated)
}

#[test]
fn reports_broken_rules_and_limits() {
    let limits = || {
        vec![
            AppliedLimit {
                rule: memory(RuleSource::User("user1000".into())),
                limit: Some(40 << 30),
                replaces: vec![
                    (memory(RuleSource::Group("ml".into())), 4 << 30),
                    (memory(RuleSource::Default), 2 << 30),
                ],
            },
            AppliedLimit {
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
        Reading::Value(ProcessGuardStatus {
            mode: GuardMode::DryRun,
            is_stopped: false,
            violations,
            would_have_ended: vec![simulated_violation()],
            protected: None,
            limits: limits(),
        })
    };
    let both = group_violation(&[(71, 1000), (80, 1005)]);
    let mut own = both.clone();
    own.evidence.runs.truncate(1);
    // Here others are hidden from plain users.
    let cases: [(u32, &[u32], Reading<ProcessGuardStatus>); 3] = [
        (0, &[], ruled(vec![both])),
        (1000, &[], ruled(vec![own])),
        (1005, &[], Reading::Withheld),
    ];
    for (uid, groups, expected) in cases {
        assert_eq!(
            explain_to(71, uid, groups, None).unwrap().guard,
            expected,
            "{uid}"
        );
    }
    // The rule for which its job would have been ended is reported once.
    let (compiled, open, mut simulated) = guard_fixture();
    simulated[2].violation.rule = open[0].rule.clone();
    let once = explain_as(&(compiled, open, simulated), &published(), 71, 0, &[], None);
    let once = once.unwrap().guard.known().cloned().unwrap();
    assert_eq!((once.violations.len(), once.would_have_ended.len()), (0, 1));
    // No driver lists it, and no rule is about it.
    let holder = explain_to(72, 0, &[], None).unwrap();
    assert_eq!(holder.guard, Reading::Unsupported);
}

/// A process that the kill rules protect.
const PROTECTED: u32 = 73;

fn explain_to(
    pid: u32,
    uid: u32,
    groups: &[u32],
    will_not_act: Option<&str>,
) -> Option<Explanation> {
    explain_with_snapshot(&published(), pid, uid, groups, will_not_act)
}

#[test]
fn account_group_applies_to_evaluated_members() {
    let rules = "[group_policies.vision]\nslurm_accounts = [\"vision\"]\nmemory_limit_gb = 4\n";
    let guarded = (
        CompiledRules::new(parse(rules).unwrap()),
        Vec::new(),
        Vec::new(),
    );
    let mut published = published();
    let snapshot = Arc::make_mut(&mut published.snapshot);
    let job = SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "12".into(),
        step: None,
    };
    for process in &mut snapshot.processes {
        process.location.scheduler = Reading::Value(Some(job.clone()));
    }
    let key = snapshot.processes[0].key().unwrap();
    let of_vision = AppliedLimit {
        rule: memory(RuleSource::Group("vision".into())),
        limit: Some(4 << 30),
        replaces: Vec::new(),
    };
    for (account, expected) in [("vision", vec![of_vision]), ("audio", Vec::new())] {
        published.accounts = Arc::new([(key, account.to_owned())].into());
        let explained = explain_as(&guarded, &published, 71, 0, &[], None).unwrap();
        let limits = explained.guard.known().map(|ruled| ruled.limits.clone());
        assert_eq!(limits, Some(expected), "{account}");
    }
}

fn explain_with_snapshot(
    published: &PublishedPoll,
    pid: u32,
    uid: u32,
    groups: &[u32],
    will_not_act: Option<&str>,
) -> Option<Explanation> {
    explain_as(&guard_fixture(), published, pid, uid, groups, will_not_act)
}

fn explain_as(
    guarded: &(CompiledRules, Vec<OpenViolation>, Vec<SimulatedEnd>),
    published: &PublishedPoll,
    pid: u32,
    uid: u32,
    groups: &[u32],
    will_not_act: Option<&str>,
) -> Option<Explanation> {
    let inspected = inspected(published, pid);
    explain_inspected(
        guarded,
        published,
        &inspected,
        pid,
        uid,
        groups,
        will_not_act,
    )
}

fn explain_inspected(
    (compiled, open, simulated): &(CompiledRules, Vec<OpenViolation>, Vec<SimulatedEnd>),
    published: &PublishedPoll,
    inspected: &InspectedProcess,
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
    let context = ExplanationContext {
        caller: &caller,
        roles: &roles,
        disabled_reason: will_not_act,
        protected: (pid == PROTECTED).then_some("it watches the devices"),
        guard: GuardContext {
            rules: compiled,
            is_stopped: false,
            open,
            simulated,
            local_time: LocalTime::default(),
            groups: &|uid| (uid == 1000).then(|| vec!["ml".into()]),
            accounts: &published.accounts,
        },
    };
    let called = |person| match person {
        Principal::User(uid) => format!("user {uid}"),
        Principal::Group(group) => format!("group {group}"),
    };
    explain(published, inspected, pid, NOW, &context, called)
}

/// The published devices, with files that were read now.
fn inspected(published: &PublishedPoll, pid: u32) -> InspectedProcess {
    InspectedProcess {
        identity: LiveIdentity::read(Path::new("/nowhere"), pid),
        devices: published.holders.to_vec(),
        files_read_at: Reading::Value(NOW),
        sharing: Vec::new(),
    }
}

/// Why this PID, which has no GPU, is not explained when its files were read like this.
fn absence(procfs: &Path, pid: u32, files_read_at: Reading<Timestamp>) -> Refusal {
    let published = published();
    let inspected = InspectedProcess {
        files_read_at,
        ..inspected(&published, pid)
    };
    explain_absence(&published, &inspected, procfs, pid)
}

#[test]
fn unread_files_are_no_missing_gpu() {
    let procfs = tempfile::tempdir().unwrap();
    std::fs::create_dir(procfs.path().join("70")).unwrap();
    let stat = "70 (bash) S 1 70 70 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0";
    std::fs::write(procfs.path().join("70/stat"), stat).unwrap();
    let denied = || Reading::Failed("not permitted".into());
    let why = "no driver lists process 70, and its open files are not known: not permitted";
    let cases = [
        (
            70,
            Reading::Value(NOW),
            "no process 70 uses a GPU or has one open",
        ),
        (70, denied(), why),
        (69, Reading::Value(NOW), "there is no process 69"),
        (69, denied(), &why.replace("70", "69")),
    ];
    for (pid, read_at, expected) in cases {
        let refusal = absence(procfs.path(), pid, read_at);
        assert_eq!(refusal, Refusal::NoMatch(expected.to_owned()));
    }
}

#[test]
fn listed_process_is_explained_on_every_device() {
    let explained = explain_to(71, 1000, &[], None).unwrap();
    let indices = explained.uses.iter().map(|(label, _)| label.index);
    assert_eq!(indices.collect::<Vec<_>>(), [0, 1]);
    assert_eq!(explained.holds, []);
    assert_eq!(explained.frees, Reading::Value(Bytes(10 << 30)));
    assert_eq!(
        explained.may_end,
        EndPermission {
            people: vec!["user 1000".into(), "group 800".into(), "user 0".into()],
            includes_caller: true,
            never_reason: None,
        }
    );
    assert_eq!(
        explained.uses[0].1,
        process(0, 71, 1000, Reading::Value(Bytes(5 << 30)))
    );
}

#[test]
fn others_get_no_command_and_may_not_end() {
    let explained = explain_to(71, 1002, &[], None).unwrap();
    assert_eq!(explained.uses[1].1.command, Reading::Withheld);
    assert_eq!(explained.uses[1].1.executable, Reading::Withheld);
    assert!(!explained.may_end.includes_caller);
    assert!(
        explain_to(71, 1002, &[OPERATORS], None)
            .unwrap()
            .may_end
            .includes_caller
    );
    let holder = &explain_to(72, 1002, &[], None).unwrap().holds[0].1;
    assert_eq!(holder.command, Reading::Withheld);
}

#[test]
fn open_device_is_explained_by_findings() {
    let explained = explain_to(72, 1001, &[], None).unwrap();
    assert_eq!(explained.uses, []);
    let (label, open, role) = &explained.holds[0];
    assert_eq!((label.index, open.pid), (1, 72));
    assert!(matches!(
        role,
        Role::Orphan {
            parent: Some(7),
            ..
        }
    ));
    let causes = explained
        .findings
        .iter()
        .map(|(at, found)| (*at, found.cause));
    assert_eq!(causes.collect::<Vec<_>>(), [(1, Cause::Orphans)]);
    assert_eq!(explained.frees, Reading::Unsupported);
    assert_eq!(explained.may_end.never_reason, None);
}

#[test]
fn protected_process_says_why() {
    let monitor = explain_to(PROTECTED, 0, &[], None).unwrap();
    assert_eq!(
        monitor.may_end.never_reason.as_deref(),
        Some("it watches the devices")
    );
    let elsewhere = explain_to(71, 0, &[], Some("pids would name others")).unwrap();
    assert_eq!(
        elsewhere.may_end.never_reason.as_deref(),
        Some("pids would name others")
    );
}

#[test]
fn process_without_device_is_not_explained() {
    for pid in [0, 1, 70, u32::MAX] {
        assert_eq!(explain_to(pid, 0, &[], None), None, "{pid}");
    }
}
