//! Victim selection: which job is ended for a violation, and which never is.

mod idle;

use super::dry_run_rules;
use super::*;
use gpukill_proto::guard::{GuardStep, Victim};
use gpukill_proto::model::Scheduler;

fn enforce_memory_rules(memory: u64) -> RuleSet {
    RuleSet {
        mode: GuardMode::Enforce,
        defaults: Limits {
            memory: gib(memory),
            ..Limits::default()
        },
        ..dry_run_rules()
    }
}

/// Jobs of bob's that started ten seconds after each other: name and GiB.
fn host_with_jobs(jobs: &[(&str, u64)]) -> TestHost {
    let mut world = TestHost::new(1);
    for (pid, (job, gib)) in (100..).zip(jobs) {
        world.now = Timestamp(i64::from(pid) * 10_000);
        world.start(pid, "bob").uses(0, *gib, 50).job(job);
    }
    world
}

fn decided_steps(rules: RuleSet, world: &mut TestHost) -> Vec<GuardStep> {
    let records = TestGuard::new(rules).evaluate_samples(world, 2);
    records
        .into_iter()
        .map(|it| it.step)
        .filter(|step| *step != GuardStep::Violated)
        .collect()
}

fn victims(rules: RuleSet, world: &mut TestHost) -> Vec<String> {
    decided_steps(rules, world)
        .into_iter()
        .map(|step| match step {
            GuardStep::Ended(Victim { job, .. }) => job.id,
            GuardStep::Exempt(why) => why,
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Outcome(_)
            | GuardStep::Tripped { .. } => {
                panic!("{step:?}")
            }
        })
        .collect()
}

#[test]
fn newest_sufficient_job_goes() {
    for (held, expected) in [
        (&[("old", 20), ("mid", 20), ("new", 5)][..], "mid"),
        (&[("old", 20), ("mid", 10), ("new", 15)], "new"),
        (&[("old", 4), ("mid", 5), ("new", 5), ("more", 31)], "more"),
    ] {
        assert_eq!(
            victims(enforce_memory_rules(35), &mut host_with_jobs(held)),
            [expected],
            "{held:?}"
        );
    }
}

#[test]
fn largest_job_goes_if_none_suffices() {
    let mut world = host_with_jobs(&[("old", 20), ("mid", 20), ("new", 15)]);
    assert_eq!(victims(enforce_memory_rules(10), &mut world), ["mid"]);
}

#[test]
fn two_samples_between_victims() {
    let mut rules = enforce_memory_rules(10);
    rules.mode = GuardMode::DryRun;
    rules.armed_mode = EnforcementMode::Enforce;
    rules.enforcement.cooldown = Duration::ZERO;
    let mut world = host_with_jobs(&[("old", 20), ("mid", 20), ("new", 15)]);
    let start = world.now.0;
    let records = TestGuard::new(rules).evaluate_samples(&mut world, 8);
    let actual: Vec<_> = records
        .iter()
        .map(|it| {
            let job = match &it.step {
                GuardStep::Ended(victim) => victim.job.id.as_str(),
                other => other.name(),
            };
            ((it.at.0 - start) / 1_000, job)
        })
        .collect();
    let expected = [(20, "violated"), (20, "mid"), (40, "old"), (60, "new")];
    assert_eq!(actual, expected);
}

#[test]
fn lowest_priority_goes_first() {
    let mut world = TestHost::new(1);
    world.start(100, "alice").uses(0, 30, 50).job("alice's");
    world.start(101, "bob").uses(0, 5, 50).job("bob's");
    world.start(102, "carol").uses(0, 30, 50).job("carol's");
    let rules = |bob: Option<u8>, group: Option<u8>| RuleSet {
        mode: GuardMode::Enforce,
        users: vec![UserPolicy {
            name: "bob".into(),
            priority: bob,
            ..UserPolicy::default()
        }],
        groups: vec![
            GroupPolicy {
                name: "all".into(),
                members: Members {
                    users: names(&["alice", "bob", "carol"]),
                    ..Members::default()
                },
                total_memory: gib(60),
                priority: group,
                ..GroupPolicy::default()
            },
            GroupPolicy {
                name: "staff".into(),
                members: Members {
                    users: names(&["carol"]),
                    ..Members::default()
                },
                priority: Some(7),
                ..GroupPolicy::default()
            },
        ],
        ..dry_run_rules()
    };
    for (bob, group, expected) in [
        (None, None, "bob's"),
        (Some(6), None, "alice's"),
        (Some(6), Some(9), "bob's"),
        (Some(10), Some(9), "carol's"),
    ] {
        let victims = victims(rules(bob, group), &mut world.clone());
        assert_eq!(victims, [expected], "{bob:?} {group:?}");
    }
}

#[test]
fn protected_process_is_never_ended() {
    let rules = |protect: ProtectRules| RuleSet {
        mode: GuardMode::Enforce,
        protect,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            reserved_memory: gib(60),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let cases = [
        ProtectRules {
            users: names(&["bob"]),
            ..ProtectRules::default()
        },
        ProtectRules {
            processes: globs(&["pyth?n"]),
            ..ProtectRules::default()
        },
        ProtectRules {
            command: pattern("train"),
            ..ProtectRules::default()
        },
        ProtectRules {
            images: globs(&["vllm*"]),
            ..ProtectRules::default()
        },
        ProtectRules {
            units: globs(&["train.service"]),
            ..ProtectRules::default()
        },
        ProtectRules {
            units: globs(&["other.service", "tr*.service"]),
            ..ProtectRules::default()
        },
    ];
    let mut world = host_with_jobs(&[("job", 40)]);
    world.process(100).facts.owner = Some(person("container vllm"));
    world.process(100).facts.image = Some(Some("vllm:1".into()));
    world.process(100).facts.unit = Some(Some("train.service".into()));
    assert_eq!(
        victims(rules(ProtectRules::default()), &mut world.clone()),
        ["job"]
    );
    let nobody = "no known process would change the reserved memory";
    for protect in cases {
        assert_eq!(
            victims(rules(protect.clone()), &mut world.clone()),
            [nobody]
        );
        // Unknown facts protect the process.
        let mut unknown = world.clone();
        unknown.process(100).facts = facts_of_unknown_process("bob");
        if protect.users.is_empty() {
            assert_eq!(victims(rules(protect), &mut unknown), [nobody]);
        }
    }
}

#[test]
fn unit_pattern_does_not_protect_sessions() {
    let rules = |pattern: &str| RuleSet {
        protect: ProtectRules {
            units: globs(&[pattern]),
            ..ProtectRules::default()
        },
        ..enforce_memory_rules(30)
    };
    for (pattern, unit, spares) in [
        ("*.service", "vllm@0.service", true),
        ("*.service", "user@1001.service", false),
        ("*.scope", "session-3.scope", false),
        ("session-3.scope", "session-3.scope", true),
    ] {
        let mut world = host_with_jobs(&[("job", 40)]);
        world.process(100).facts.unit = Some(Some(unit.into()));
        let is_exempt = victims(rules(pattern), &mut world) != ["job"];
        assert_eq!(is_exempt, spares, "{pattern} {unit}");
    }
}

/// A process with only its owner and job known.
fn facts_of_unknown_process(owner: &str) -> super::super::sample::ProcessFacts {
    super::super::sample::ProcessFacts {
        owner: Some(person(owner)),
        job: Some(("job".into(), "job".into())),
        ..super::super::sample::ProcessFacts::default()
    }
}

#[test]
fn protected_process_is_not_counted() {
    let mut rules = enforce_memory_rules(30);
    rules.protect.processes = globs(&["Xorg"]);
    let mut world = host_with_jobs(&[("job", 20)]);
    world.start(200, "bob").uses(0, 20, 0).named("Xorg");
    assert_eq!(victims(rules, &mut world), [""; 0]);
}

#[test]
fn one_protected_process_protects_its_job() {
    let mut rules = enforce_memory_rules(10);
    rules.protect.processes = globs(&["Xorg"]);
    let with = |change: fn(&mut TestProcess)| {
        let mut world = host_with_jobs(&[("job", 20)]);
        change(world.start(200, "bob").uses(0, 1, 0).job("job"));
        victims(rules.clone(), &mut world)
    };
    assert_eq!(with(|_| ()), ["job"]);
    assert_eq!(
        with(|it| _ = it.named("Xorg")),
        ["job: a process of it is protected"]
    );
    assert_eq!(
        with(|it| it.facts.owner = Some(person("alice"))),
        ["job: one of its processes belongs to another person"]
    );
    assert_eq!(
        with(|it| it.facts.owner = None),
        ["job: the owner of one of its processes is not known"]
    );
    assert_eq!(
        with(|it| (it.facts.pod, it.facts.unit) = (None, None)),
        ["job: whether a scheduler or Kubernetes owns it is not known"]
    );
}

#[test]
fn unknown_memory_makes_no_victim() {
    let mut world = host_with_jobs(&[("unknown", 20), ("known", 20)]);
    world.process(100).memory(0, TestReading::Failed);
    let mut low = enforce_memory_rules(10);
    low.users = vec![UserPolicy {
        name: "bob".into(),
        ..UserPolicy::default()
    }];
    assert_eq!(victims(low, &mut world), ["known"]);
}

#[test]
fn scheduler_job_is_reported_once() {
    let leave = |change: fn(&mut TestProcess)| {
        let mut world = host_with_jobs(&[("job", 20)]);
        change(world.process(100));
        let records = TestGuard::new(enforce_memory_rules(10)).evaluate_samples(&mut world, 20);
        let left = records.iter().filter_map(|it| {
            let victim = it.step.victim()?;
            Some(victim.leave_to.clone())
        });
        left.collect::<Vec<_>>()
    };
    assert_eq!(
        leave(|it| put_in_scheduler(it, Scheduler::Slurm, "1234")),
        [Some("scancel 1234".to_owned())]
    );
    assert_eq!(
        leave(|it| put_in_scheduler(it, Scheduler::Pbs, "7[].head;rm")),
        [Some("qdel 7[].head_rm".to_owned())]
    );
    assert_eq!(
        leave(|it| {
            it.facts.owner = Some(person("pod ml/train-0"));
            it.facts.pod = Some(Some(("ml".into(), "train-0".into())));
        }),
        [Some("kubectl delete pod --namespace ml train-0".to_owned())]
    );
}

fn put_in_scheduler(process: &mut TestProcess, scheduler: Scheduler, id: &str) {
    process.facts.scheduler = Some(Some((scheduler, id.into())));
}

#[test]
fn no_other_victim_while_one_is_ending() {
    let mut rules = enforce_memory_rules(30);
    rules.gpus = vec![GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        reserved_memory: gib(50),
        ..GpuPolicy::default()
    }];
    // The same memory breaks both rules: ending one job satisfies both.
    let mut world = host_with_jobs(&[("old", 30), ("new", 10)]);
    let ended = |records: Vec<gpukill_proto::guard::GuardRecord>| {
        let ended = records.into_iter().filter(|it| it.step.name() == "ended");
        ended.map(|it| it.rule.to_string()).collect::<Vec<_>>()
    };
    let mut guard = TestGuard::new(rules);
    assert_eq!(
        ended(guard.evaluate_samples(&mut world, 6)),
        ["default: memory"]
    );
    world.processes.remove(&101);
    assert_eq!(ended(guard.evaluate_samples(&mut world, 6)), [""; 0]);
}

#[test]
fn absent_process_is_not_ended() {
    let mut rules = enforce_memory_rules(10);
    rules.gpus = vec![GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        blocked_users: names(&["bob"]),
        ..GpuPolicy::default()
    }];
    let mut world = host_with_jobs(&[("job", 1)]);
    world.process(100).is_present = false;
    let records = TestGuard::new(rules).evaluate_samples(&mut world, 1);
    let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated"]);
}

#[test]
fn late_member_counts_as_ended() {
    let mut rules = enforce_memory_rules(10);
    rules.mode = GuardMode::DryRun;
    rules.armed_mode = EnforcementMode::Enforce;
    let mut guard = TestGuard::new(rules);
    let mut world = host_with_jobs(&[("job", 20)]);
    let names = |records: Vec<gpukill_proto::guard::GuardRecord>| {
        let steps = records.iter().map(|it| it.step.name());
        steps.collect::<Vec<_>>()
    };
    assert_eq!(
        names(guard.evaluate_samples(&mut world, 2)),
        ["violated", "ended"]
    );
    world.start(200, "bob").uses(0, 20, 50).job("job");
    assert_eq!(names(guard.evaluate_samples(&mut world, 3)), [""; 0]);
    // The first process is gone; the second belongs to the same job.
    world.processes.remove(&100);
    assert_eq!(names(guard.evaluate_samples(&mut world, 3)), [""; 0]);
    // All processes are gone. A new process is another job.
    world.processes.remove(&200);
    world.start(300, "bob").uses(0, 20, 50).job("job");
    assert_eq!(names(guard.evaluate_samples(&mut world, 8)), ["ended"]);
}

#[test]
fn renamed_job_counts_as_ended() {
    let mut rules = enforce_memory_rules(10);
    rules.mode = GuardMode::DryRun;
    rules.armed_mode = EnforcementMode::Enforce;
    let mut guard = TestGuard::new(rules);
    let mut world = host_with_jobs(&[("job", 20)]);
    guard.evaluate_samples(&mut world, 3);
    world.process(100).job("container web");
    assert_eq!(guard.evaluate_samples(&mut world, 3), []);
}
