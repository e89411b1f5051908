//! Who is warned when, and that nobody is ended in soft who was not.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, Person};
use std::collections::{BTreeMap, BTreeSet};

/// Two people who hold too much together, by a rule of theirs or of the device.
fn shared(mode: GuardMode) -> [(&'static str, Rules); 2] {
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
    let of_group = Rules {
        mode,
        groups: vec![of_group],
        ..rules()
    };
    let of_device = Rules {
        mode,
        gpus: vec![of_device],
        ..rules()
    };
    [("group", of_group), ("device", of_device)]
}

/// Seconds, and what was told then: who of whom a job is ended for short.
fn told(records: &[GuardRecord]) -> Vec<(i64, String)> {
    let told = records.iter().map(|record| {
        let said = match &record.step {
            GuardStep::Ended(victim) => format!("ends {}", victim.job.id),
            GuardStep::Warned { deadline, .. } => {
                let deadline = deadline.map_or(0, |it| it.0 / 1_000);
                format!("warned until {deadline}")
            }
            GuardStep::Spared(why) => why.clone(),
            other => other.name().to_owned(),
        };
        (record.at.0 / 1_000, said)
    });
    told.collect()
}

fn said(seconds: i64, words: &str) -> (i64, String) {
    (seconds, words.to_owned())
}

fn holds(world: &mut World, pid: u32, owner: &str, gib: u64) {
    world
        .start(pid, owner)
        .uses(0, gib, 50)
        .job(&format!("{owner}'s"));
}

#[test]
fn warnings_are_spread_evenly_over_the_grace() {
    for (grace, most, expected) in [
        (300, 1, vec![20]),
        (300, 2, vec![20, 170]),
        (300, 4, vec![20, 100, 170, 250]),
        (300, 5, vec![20, 80, 140, 200, 260]),
        (60, 3, vec![20, 40, 60]),
        // More than there are looks.
        (20, 10, vec![20, 30]),
        (0, 3, vec![20]),
    ] {
        let mut rules = Rules {
            mode: GuardMode::Soft,
            defaults: memory(20),
            ..rules()
        };
        rules.enforcement.grace = Duration::from_secs(grace);
        rules.enforcement.max_warnings = most;
        let mut world = World::new(1);
        holds(&mut world, 100, "bob", 21);
        let records = Guard::new(rules).watches(&mut world, 60);
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
fn who_comes_later_is_warned_has_the_whole_grace_and_is_no_victim_before() {
    for (which, rules) in shared(GuardMode::Soft) {
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        holds(&mut world, 100, "alice", 25);
        let mut records = guard.watches(&mut world, 10);
        // The newer one, who would be the first to go.
        holds(&mut world, 101, "bob", 25);
        records.extend(guard.watches(&mut world, 33));
        let expected = [
            said(20, "violated"),
            said(20, "warned until 320"),
            said(110, "warned until 320"),
            said(120, "warned until 320"),
            said(210, "warned until 320"),
            said(220, "warned until 320"),
            said(310, "warned until 320"),
            // Nobody goes in their place, because they have more time.
            said(410, "ends bob's"),
        ];
        assert_eq!(told(&records), expected, "{which}");
    }
}

#[test]
fn whose_grace_is_over_keeps_nobody_else_from_being_reminded() {
    for (which, mut rules) in shared(GuardMode::Soft) {
        // Hers cannot be ended, and goes on.
        rules.protect.processes = globs(&["Xorg"]);
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        holds(&mut world, 100, "alice", 25);
        world.start(102, "alice").named("Xorg").job("alice's");
        world.process(102).uses(0, 0, 0);
        let mut records = guard.watches(&mut world, 30);
        holds(&mut world, 101, "bob", 25);
        records.extend(guard.watches(&mut world, 35));
        let at = |name: &str| {
            let of = records.iter().filter(|it| it.step.name() == name);
            of.map(|it| it.at.0 / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(at("warned"), [20, 120, 220, 310, 410, 510], "{which}");
        assert_eq!(at("ended"), [610], "{which}");
    }
}

#[test]
fn who_leaves_and_comes_back_begins_anew() {
    for (which, rules) in shared(GuardMode::Soft) {
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        holds(&mut world, 100, "alice", 21);
        holds(&mut world, 101, "bob", 21);
        guard.watches(&mut world, 20);
        world.processes.remove(&101);
        guard.watches(&mut world, 1);
        holds(&mut world, 102, "bob", 21);
        let records = guard.watches(&mut world, 12);
        let expected = [said(220, "warned until 320"), said(320, "warned until 320")];
        assert_eq!(told(&records), expected, "{which}");
        world.processes.remove(&100);
        let records = guard.watches(&mut world, 24);
        let expected = [said(420, "warned until 520"), said(520, "ends bob's")];
        assert_eq!(told(&records), expected, "{which}");
    }
}

/// Whoever reads nothing: a container, and accounts of the system's.
fn unread() -> Vec<Person> {
    let account = |uid| Person {
        name: format!("account {uid}"),
        uid: Some(uid),
    };
    let mut unread: Vec<Person> = [1, 999, 61_184, 65_519, 65_534].map(account).into();
    unread.push(person("container vllm"));
    unread
}

#[test]
fn who_reads_nothing_is_never_ended_in_soft_which_is_said_once() {
    for owner in unread() {
        let rules = |mode| Rules {
            mode,
            defaults: memory(20),
            ..rules()
        };
        let mut world = World::new(1);
        holds(&mut world, 100, "bob", 21);
        world.process(100).about.owner = Some(owner.clone());
        let soft = Guard::new(rules(GuardMode::Soft)).watches(&mut world.clone(), 200);
        let unread = "nobody can be warned: whose it is, is no person of this box";
        let expected = [said(20, "violated"), said(20, unread)];
        assert_eq!(told(&soft), expected, "{owner:?}");
        let enforce = Guard::new(rules(GuardMode::Enforce)).watches(&mut world, 2);
        let expected = [said(20, "violated"), said(20, "ends bob's")];
        assert_eq!(told(&enforce), expected, "{owner:?}");
    }
}

#[test]
fn whoever_else_has_a_number_is_warned() {
    for uid in [0, 1_000, 61_183, 65_520, 65_533, 65_535, 100_000, u32::MAX] {
        let rules = Rules {
            mode: GuardMode::Soft,
            defaults: memory(20),
            ..rules()
        };
        let mut world = World::new(1);
        holds(&mut world, 100, "bob", 21);
        world.process(100).about.owner = Some(Person {
            name: "somebody".into(),
            uid: Some(uid),
        });
        let records = Guard::new(rules).watches(&mut world, 32);
        let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        let expected = ["violated", "warned", "warned", "warned", "ended"];
        assert_eq!(steps, expected, "{uid}");
    }
}

#[test]
fn among_others_who_were_warned_a_container_is_no_victim_in_soft_and_is_in_enforce() {
    let [_, (_, soft)] = shared(GuardMode::Soft);
    let [_, (_, enforce)] = shared(GuardMode::Enforce);
    // One that would suffice alone, and that came before alice or after her.
    let first = |rules: &Rules, container_came: i64| {
        let mut world = World::new(1);
        for (at, pid, who, gib) in [
            (1_000, 100, "alice", 10),
            (container_came, 101, "box-of-nobody", 30),
        ] {
            world.now = Timestamp(at);
            holds(&mut world, pid, who, gib);
        }
        world.now = Timestamp(2_000);
        let records = Guard::new(rules.clone()).watches(&mut world, 60);
        let told = told(&records).into_iter().map(|(_, said)| said);
        let is_end = |said: &String| said.starts_with("ends ") || said.contains("came after it");
        told.into_iter().find(is_end)
    };
    assert_eq!(first(&soft, 0).as_deref(), Some("ends alice's"));
    assert_eq!(
        first(&enforce, 2_000).as_deref(),
        Some("ends box-of-nobody's")
    );
    // Who came before it is not ended for it.
    let spared = first(&soft, 2_000).expect("it is said why nobody is ended");
    let why = "alice's: others who may not be ended came after it";
    assert!(spared.contains(why), "{spared}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// People come, go and come back, at random.
    #[test]
    fn in_soft_nobody_is_ended_who_was_not_warned_for_the_whole_grace(
        history in proptest::collection::vec(proptest::collection::vec(0..24_u32, 0..6), 1..60),
        is_of_device in proptest::prelude::any::<bool>(),
    ) {
        let owners = ["alice", "bob", "box-of-nobody"];
        let mut rules = shared(GuardMode::Soft)[usize::from(is_of_device)].1.clone();
        rules.enforcement.grace = Duration::from_secs(60);
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        // Since when each has been there without a break.
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
            // While nobody breaks it, whoever did has their clock still.
            if here.iter().any(|owner| is_of_device || *owner != "box-of-nobody") {
                since.retain(|owner, _| here.contains(owner));
            }
            let records = guard.looks(&mut world).records;
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
