//! Who is ended for a violation, and who never is.

mod idle;

use super::rules as disarmed;
use super::*;
use gpukill_proto::guard::{GuardStep, Victim};
use gpukill_proto::snapshot::Scheduler;

fn enforcing(memory: u64) -> Rules {
    Rules {
        mode: GuardMode::Enforce,
        defaults: Limits {
            memory: gib(memory),
            ..Limits::default()
        },
        ..rules()
    }
}

/// Jobs of bob's that began ten seconds after each other: job and GiB.
fn jobs(jobs: &[(&str, u64)]) -> World {
    let mut world = World::new(1);
    for (pid, (job, gib)) in (100..).zip(jobs) {
        world.now = Timestamp(i64::from(pid) * 10_000);
        world.start(pid, "bob").uses(0, *gib, 50).job(job);
    }
    world
}

fn chosen(rules: Rules, world: &mut World) -> Vec<GuardStep> {
    let records = Guard::new(rules).watches(world, 2);
    records
        .into_iter()
        .map(|it| it.step)
        .filter(|step| *step != GuardStep::Violated)
        .collect()
}

fn victims(rules: Rules, world: &mut World) -> Vec<String> {
    chosen(rules, world)
        .into_iter()
        .map(|step| match step {
            GuardStep::Ended(Victim { job, .. }) => job.id,
            GuardStep::Spared(why) => why,
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Acted(_)
            | GuardStep::Tripped { .. } => {
                panic!("{step:?}")
            }
        })
        .collect()
}

#[test]
fn the_newest_of_those_that_suffice_alone_goes() {
    for (held, expected) in [
        (&[("old", 20), ("mid", 20), ("new", 5)][..], "mid"),
        (&[("old", 20), ("mid", 10), ("new", 15)], "new"),
        (&[("old", 4), ("mid", 5), ("new", 5), ("more", 31)], "more"),
    ] {
        assert_eq!(
            victims(enforcing(35), &mut jobs(held)),
            [expected],
            "{held:?}"
        );
    }
}

#[test]
fn where_none_suffices_the_one_that_frees_most_goes() {
    let mut world = jobs(&[("old", 20), ("mid", 20), ("new", 15)]);
    assert_eq!(victims(enforcing(10), &mut world), ["mid"]);
}

#[test]
fn after_one_is_ended_two_looks_tell_whether_another_must_go() {
    let mut rules = enforcing(10);
    rules.mode = GuardMode::DryRun;
    rules.rehearsed = Rehearsed::Enforce;
    rules.enforcement.cooldown = Duration::ZERO;
    let mut world = jobs(&[("old", 20), ("mid", 20), ("new", 15)]);
    let began = world.now.0;
    let records = Guard::new(rules).watches(&mut world, 8);
    let told: Vec<_> = records
        .iter()
        .map(|it| {
            let job = match &it.step {
                GuardStep::Ended(victim) => victim.job.id.as_str(),
                other => other.name(),
            };
            ((it.at.0 - began) / 1_000, job)
        })
        .collect();
    let expected = [(20, "violated"), (20, "mid"), (40, "old"), (60, "new")];
    assert_eq!(told, expected);
}

#[test]
fn the_lowest_priority_goes_first() {
    let mut world = World::new(1);
    world.start(100, "alice").uses(0, 30, 50).job("alice's");
    world.start(101, "bob").uses(0, 5, 50).job("bob's");
    world.start(102, "carol").uses(0, 30, 50).job("carol's");
    let rules = |bob: Option<u8>, group: Option<u8>| Rules {
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
        ..disarmed()
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
fn nobody_is_ended_who_is_protected() {
    let rules = |protect: Protect| Rules {
        mode: GuardMode::Enforce,
        protect,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            reserved_memory: gib(60),
            ..GpuPolicy::default()
        }],
        ..disarmed()
    };
    let cases = [
        Protect {
            users: names(&["bob"]),
            ..Protect::default()
        },
        Protect {
            processes: globs(&["pyth?n"]),
            ..Protect::default()
        },
        Protect {
            command: pattern("train"),
            ..Protect::default()
        },
        Protect {
            images: globs(&["vllm*"]),
            ..Protect::default()
        },
        Protect {
            units: globs(&["train.service"]),
            ..Protect::default()
        },
        Protect {
            units: globs(&["other.service", "tr*.service"]),
            ..Protect::default()
        },
    ];
    let mut world = jobs(&[("job", 40)]);
    world.process(100).about.owner = Some(person("container vllm"));
    world.process(100).about.image = Some(Some("vllm:1".into()));
    world.process(100).about.unit = Some(Some("train.service".into()));
    assert_eq!(
        victims(rules(Protect::default()), &mut world.clone()),
        ["job"]
    );
    let nobody = "no process is known by whom the reserved memory would change";
    for protect in cases {
        assert_eq!(
            victims(rules(protect.clone()), &mut world.clone()),
            [nobody]
        );
        // What is not known of it protects.
        let mut unknown = world.clone();
        unknown.process(100).about = barely_known("bob");
        if protect.users.is_empty() {
            assert_eq!(victims(rules(protect), &mut unknown), [nobody]);
        }
    }
}

#[test]
fn a_pattern_for_units_spares_nobody_where_they_log_in() {
    let rules = |pattern: &str| Rules {
        protect: Protect {
            units: globs(&[pattern]),
            ..Protect::default()
        },
        ..enforcing(30)
    };
    for (pattern, unit, spares) in [
        ("*.service", "vllm@0.service", true),
        ("*.service", "user@1001.service", false),
        ("*.scope", "session-3.scope", false),
        ("session-3.scope", "session-3.scope", true),
    ] {
        let mut world = jobs(&[("job", 40)]);
        world.process(100).about.unit = Some(Some(unit.into()));
        let is_spared = victims(rules(pattern), &mut world) != ["job"];
        assert_eq!(is_spared, spares, "{pattern} {unit}");
    }
}

/// A process of which only the owner and the job are known.
fn barely_known(owner: &str) -> super::super::bucket::About {
    super::super::bucket::About {
        owner: Some(person(owner)),
        job: Some(("job".into(), "job".into())),
        ..super::super::bucket::About::default()
    }
}

#[test]
fn what_is_protected_counts_for_nobody() {
    let mut rules = enforcing(30);
    rules.protect.processes = globs(&["Xorg"]);
    let mut world = jobs(&[("job", 20)]);
    world.start(200, "bob").uses(0, 20, 0).named("Xorg");
    assert_eq!(victims(rules, &mut world), [""; 0]);
}

#[test]
fn a_job_is_spared_for_any_process_of_it() {
    let mut rules = enforcing(10);
    rules.protect.processes = globs(&["Xorg"]);
    let with = |change: fn(&mut Process)| {
        let mut world = jobs(&[("job", 20)]);
        change(world.start(200, "bob").uses(0, 1, 0).job("job"));
        victims(rules.clone(), &mut world)
    };
    assert_eq!(with(|_| ()), ["job"]);
    assert_eq!(
        with(|it| _ = it.named("Xorg")),
        ["job: a process of it is protected"]
    );
    assert_eq!(
        with(|it| it.about.owner = Some(person("alice"))),
        ["job: a process of it is somebody else's"]
    );
    assert_eq!(
        with(|it| it.about.owner = None),
        ["job: whose a process of it is, is not known"]
    );
    assert_eq!(
        with(|it| (it.about.pod, it.about.unit) = (None, None)),
        ["job: whether a scheduler or Kubernetes owns it is not known"]
    );
}

#[test]
fn nobody_goes_for_what_they_are_not_known_to_hold() {
    let mut world = jobs(&[("unknown", 20), ("known", 20)]);
    world.process(100).memory(0, Told::Failed);
    let mut low = enforcing(10);
    low.users = vec![UserPolicy {
        name: "bob".into(),
        ..UserPolicy::default()
    }];
    assert_eq!(victims(low, &mut world), ["known"]);
}

#[test]
fn what_a_scheduler_owns_is_left_to_it_and_told_once() {
    let leave = |change: fn(&mut Process)| {
        let mut world = jobs(&[("job", 20)]);
        change(world.process(100));
        let records = Guard::new(enforcing(10)).watches(&mut world, 20);
        let left = records.iter().filter_map(|it| {
            let victim = it.step.victim()?;
            Some(victim.leave_to.clone())
        });
        left.collect::<Vec<_>>()
    };
    assert_eq!(
        leave(|it| scheduled(it, Scheduler::Slurm, "1234")),
        [Some("scancel 1234".to_owned())]
    );
    assert_eq!(
        leave(|it| scheduled(it, Scheduler::Pbs, "7[].head;rm")),
        [Some("qdel 7[].head_rm".to_owned())]
    );
    assert_eq!(
        leave(|it| {
            it.about.owner = Some(person("pod ml/train-0"));
            it.about.pod = Some(Some(("ml".into(), "train-0".into())));
        }),
        [Some("kubectl delete pod --namespace ml train-0".to_owned())]
    );
}

fn scheduled(process: &mut Process, scheduler: Scheduler, id: &str) {
    process.about.scheduler = Some(Some((scheduler, id.into())));
}

#[test]
fn nobody_else_goes_while_one_that_was_ended_is_still_going() {
    let mut rules = enforcing(30);
    rules.gpus = vec![GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        reserved_memory: gib(50),
        ..GpuPolicy::default()
    }];
    // Both rules are broken by the same memory: one job frees it for both.
    let mut world = jobs(&[("old", 30), ("new", 10)]);
    let ended = |records: Vec<gpukill_proto::guard::GuardRecord>| {
        let ended = records.into_iter().filter(|it| it.step.name() == "ended");
        ended.map(|it| it.rule.to_string()).collect::<Vec<_>>()
    };
    let mut guard = Guard::new(rules);
    assert_eq!(ended(guard.watches(&mut world, 6)), ["default: memory"]);
    world.processes.remove(&101);
    assert_eq!(ended(guard.watches(&mut world, 6)), [""; 0]);
}

#[test]
fn who_has_left_is_not_ended() {
    let mut rules = enforcing(10);
    rules.gpus = vec![GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        blocked_users: names(&["bob"]),
        ..GpuPolicy::default()
    }];
    let mut world = jobs(&[("job", 1)]);
    world.process(100).is_present = false;
    let records = Guard::new(rules).watches(&mut world, 1);
    let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated"]);
}

#[test]
fn whoever_joins_a_job_that_was_ended_is_gone_with_it() {
    let mut rules = enforcing(10);
    rules.mode = GuardMode::DryRun;
    rules.rehearsed = Rehearsed::Enforce;
    let mut guard = Guard::new(rules);
    let mut world = jobs(&[("job", 20)]);
    let names = |records: Vec<gpukill_proto::guard::GuardRecord>| {
        let steps = records.iter().map(|it| it.step.name());
        steps.collect::<Vec<_>>()
    };
    assert_eq!(names(guard.watches(&mut world, 2)), ["violated", "ended"]);
    world.start(200, "bob").uses(0, 20, 50).job("job");
    assert_eq!(names(guard.watches(&mut world, 3)), [""; 0]);
    // The first has gone; the second is of that job.
    world.processes.remove(&100);
    assert_eq!(names(guard.watches(&mut world, 3)), [""; 0]);
    // All have gone: who begins it anew is somebody else.
    world.processes.remove(&200);
    world.start(300, "bob").uses(0, 20, 50).job("job");
    assert_eq!(names(guard.watches(&mut world, 8)), ["ended"]);
}

#[test]
fn who_was_ended_is_gone_whatever_its_job_is_called_later() {
    let mut rules = enforcing(10);
    rules.mode = GuardMode::DryRun;
    rules.rehearsed = Rehearsed::Enforce;
    let mut guard = Guard::new(rules);
    let mut world = jobs(&[("job", 20)]);
    guard.watches(&mut world, 3);
    world.process(100).job("container web");
    assert_eq!(guard.watches(&mut world, 3), []);
}
