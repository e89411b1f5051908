//! Which users are warned, and when. Soft mode never ends the job of a person who was not warned.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, Person};
use std::collections::{BTreeMap, BTreeSet};

/// Two people together hold too much, by a rule on their group or on the device.
fn shared_limit_rules(mode: GuardMode) -> [(&'static str, RuleSet); 2] {
    let of_group = GroupPolicy {
        name: "all".into(),
        members: Members {
            users: names(&["alice", "bob", "box-of-nobody"]),
            ..Members::default()
        },
        total_memory: gib(20),
        ..GroupPolicy::default()
    };
    let of_device = GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        reserved_memory: gib(60),
        ..GpuPolicy::default()
    };
    let of_group = RuleSet {
        mode,
        groups: vec![of_group],
        ..dry_run_rules()
    };
    let of_device = RuleSet {
        mode,
        gpus: vec![of_device],
        ..dry_run_rules()
    };
    [("group", of_group), ("device", of_device)]
}

/// The second and the step of each record, with the victim's job.
fn reported_steps(records: &[GuardRecord]) -> Vec<(i64, String)> {
    let actual = records.iter().map(|record| {
        let step = match &record.step {
            GuardStep::Ended(victim) => format!("ends {}", victim.job.id),
            GuardStep::Warned { deadline, .. } => {
                let deadline = deadline.map_or(0, |it| it.0 / 1_000);
                format!("warned until {deadline}")
            }
            GuardStep::Exempt(why) => why.clone(),
            other => other.name().to_owned(),
        };
        (record.at.0 / 1_000, step)
    });
    actual.collect()
}

fn step_at(seconds: i64, words: &str) -> (i64, String) {
    (seconds, words.to_owned())
}

fn start_holder(world: &mut TestHost, pid: u32, owner: &str, gib: u64) {
    world
        .start(pid, owner)
        .uses(0, gib, 50)
        .job(&format!("{owner}'s"));
}

#[test]
fn warnings_are_evenly_spread() {
    for (grace, most, expected) in [
        (300, 1, vec![20]),
        (300, 2, vec![20, 170]),
        (300, 4, vec![20, 100, 170, 250]),
        (300, 5, vec![20, 80, 140, 200, 260]),
        (60, 3, vec![20, 40, 60]),
        // More warnings than samples.
        (20, 10, vec![20, 30]),
        (0, 3, vec![20]),
    ] {
        let mut rules = RuleSet {
            mode: GuardMode::Soft,
            defaults: memory_limit(20),
            ..dry_run_rules()
        };
        rules.enforcement.grace = Duration::from_secs(grace);
        rules.enforcement.max_warnings = most;
        let mut world = TestHost::new(1);
        start_holder(&mut world, 100, "bob", 21);
        let records = TestGuard::new(rules).evaluate_samples(&mut world, 60);
        let step = |name: &str| {
            let of = records.iter().filter(|it| it.step.name() == name);
            of.map(|it| it.at.0 / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(step("warned"), expected, "{grace} {most}");
        let end = 20 + i64::try_from(grace).unwrap();
        assert_eq!(step("ended"), [end.max(20)], "{grace} {most}");
    }
}

#[test]
fn late_violator_has_a_whole_grace() {
    for (which, rules) in shared_limit_rules(GuardMode::Soft) {
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        start_holder(&mut world, 100, "alice", 25);
        let mut records = guard.evaluate_samples(&mut world, 10);
        // The newer job, which would be the first victim.
        start_holder(&mut world, 101, "bob", 25);
        records.extend(guard.evaluate_samples(&mut world, 33));
        let expected = [
            step_at(20, "violated"),
            step_at(20, "warned until 320"),
            step_at(110, "warned until 320"),
            step_at(120, "warned until 320"),
            step_at(210, "warned until 320"),
            step_at(220, "warned until 320"),
            step_at(310, "warned until 320"),
            // Bob has more time. Alice's job is not ended in its place.
            step_at(410, "ends bob's"),
        ];
        assert_eq!(reported_steps(&records), expected, "{which}");
    }
}

#[test]
fn expired_grace_keeps_reminding_others() {
    for (which, mut rules) in shared_limit_rules(GuardMode::Soft) {
        // Her job cannot be ended, and goes on.
        rules.protect.processes = globs(&["Xorg"]);
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        start_holder(&mut world, 100, "alice", 25);
        world.start(102, "alice").named("Xorg").job("alice's");
        world.process(102).uses(0, 0, 0);
        let mut records = guard.evaluate_samples(&mut world, 30);
        start_holder(&mut world, 101, "bob", 25);
        records.extend(guard.evaluate_samples(&mut world, 35));
        let at = |name: &str| {
            let of = records.iter().filter(|it| it.step.name() == name);
            of.map(|it| it.at.0 / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(at("warned"), [20, 120, 220, 310, 410, 510], "{which}");
        assert_eq!(at("ended"), [610], "{which}");
    }
}

#[test]
fn returning_person_starts_again() {
    for (which, rules) in shared_limit_rules(GuardMode::Soft) {
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        start_holder(&mut world, 100, "alice", 21);
        start_holder(&mut world, 101, "bob", 21);
        guard.evaluate_samples(&mut world, 20);
        world.processes.remove(&101);
        guard.evaluate_samples(&mut world, 1);
        start_holder(&mut world, 102, "bob", 21);
        let records = guard.evaluate_samples(&mut world, 12);
        let expected = [
            step_at(220, "warned until 320"),
            step_at(320, "warned until 320"),
        ];
        assert_eq!(reported_steps(&records), expected, "{which}");
        world.processes.remove(&100);
        let records = guard.evaluate_samples(&mut world, 24);
        let expected = [step_at(420, "warned until 520"), step_at(520, "ends bob's")];
        assert_eq!(reported_steps(&records), expected, "{which}");
    }
}

/// Owners who read no warning: a container, and system accounts.
fn owners_without_terminal() -> Vec<Person> {
    let account = |uid| Person {
        name: format!("account {uid}"),
        uid: Some(uid),
    };
    let mut unread: Vec<Person> = [1, 999, 61_184, 65_519, 65_534].map(account).into();
    unread.push(person("container vllm"));
    unread
}

#[test]
fn soft_never_ends_unreachable_owners() {
    for owner in owners_without_terminal() {
        let rules = |mode| RuleSet {
            mode,
            defaults: memory_limit(20),
            ..dry_run_rules()
        };
        let mut world = TestHost::new(1);
        start_holder(&mut world, 100, "bob", 21);
        world.process(100).facts.owner = Some(owner.clone());
        let soft = TestGuard::new(rules(GuardMode::Soft)).evaluate_samples(&mut world.clone(), 200);
        let unread = "no warning is possible: its owner is not a person of this host";
        let expected = [step_at(20, "violated"), step_at(20, unread)];
        assert_eq!(reported_steps(&soft), expected, "{owner:?}");
        let enforce = TestGuard::new(rules(GuardMode::Enforce)).evaluate_samples(&mut world, 2);
        let expected = [step_at(20, "violated"), step_at(20, "ends bob's")];
        assert_eq!(reported_steps(&enforce), expected, "{owner:?}");
    }
}

#[test]
fn other_uids_are_warned() {
    for uid in [0, 1_000, 61_183, 65_520, 65_533, 65_535, 100_000, u32::MAX] {
        let rules = RuleSet {
            mode: GuardMode::Soft,
            defaults: memory_limit(20),
            ..dry_run_rules()
        };
        let mut world = TestHost::new(1);
        start_holder(&mut world, 100, "bob", 21);
        world.process(100).facts.owner = Some(Person {
            name: "somebody".into(),
            uid: Some(uid),
        });
        let records = TestGuard::new(rules).evaluate_samples(&mut world, 32);
        let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        let expected = ["violated", "warned", "warned", "warned", "ended"];
        assert_eq!(steps, expected, "{uid}");
    }
}

#[test]
fn container_is_a_victim_in_enforce_only() {
    let [_, (_, soft)] = shared_limit_rules(GuardMode::Soft);
    let [_, (_, enforce)] = shared_limit_rules(GuardMode::Enforce);
    // A job that would suffice alone, and that started before alice's or after it.
    let first = |rules: &RuleSet, container_came: i64| {
        let mut world = TestHost::new(1);
        for (at, pid, user, gib) in [
            (1_000, 100, "alice", 10),
            (container_came, 101, "box-of-nobody", 30),
        ] {
            world.now = Timestamp(at);
            start_holder(&mut world, pid, user, gib);
        }
        world.now = Timestamp(2_000);
        let records = TestGuard::new(rules.clone()).evaluate_samples(&mut world, 60);
        let actual = reported_steps(&records).into_iter().map(|(_, step)| step);
        let is_end = |step: &String| step.starts_with("ends ") || step.contains("hold the excess");
        actual.into_iter().find(is_end)
    };
    assert_eq!(first(&soft, 0).as_deref(), Some("ends alice's"));
    assert_eq!(
        first(&enforce, 2_000).as_deref(),
        Some("ends box-of-nobody's")
    );
    // A job that started earlier is not ended in its place.
    let exempt = first(&soft, 2_000).expect("it is said why nobody is ended");
    let why = "alice's: later jobs that may not be ended hold the excess";
    assert!(exempt.contains(why), "{exempt}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// People come, go and come back, at random.
    #[test]
    fn soft_ends_only_fully_warned_people(
        history in proptest::collection::vec(proptest::collection::vec(0..24_u32, 0..6), 1..60),
        is_of_device in proptest::prelude::any::<bool>(),
    ) {
        let owners = ["alice", "bob", "box-of-nobody"];
        let mut rules = shared_limit_rules(GuardMode::Soft)[usize::from(is_of_device)].1.clone();
        rules.enforcement.grace = Duration::from_secs(60);
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        // Since when each person has been present without a break.
        let mut since: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for choices in history {
            let mut there = BTreeSet::new();
            for choice in choices {
                let owner = owners[choice as usize % 3];
                let pid = 100 + choice;
                if !world.processes.contains_key(&pid) {
                    world.start(pid, owner).uses(0, 25, 50).job(&format!("job {pid}"));
                }
                there.insert(pid);
            }
            world.processes.retain(|pid, _| there.contains(pid));
            let here: BTreeSet<&str> = there.iter().map(|pid| owners[(pid - 100) as usize % 3]).collect();
            // While the rule is not broken, its violators keep their clocks.
            if here.iter().any(|owner| is_of_device || *owner != "box-of-nobody") {
                since.retain(|owner, _| here.contains(owner));
            }
            let records = guard.evaluate_next(&mut world).records;
            for owner in here {
                since.entry(owner).or_insert(world.now);
            }
            for record in records {
                if let GuardStep::Ended(victim) = record.step {
                    let owner = victim.job.owner.name;
                    proptest::prop_assert!(owner != "box-of-nobody");
                    let had = record.at.since(since[owner.as_str()]);
                    proptest::prop_assert!(had >= Duration::from_secs(60), "{owner} {had:?}");
                }
            }
        }
    }
}
