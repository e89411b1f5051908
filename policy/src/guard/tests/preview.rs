//! A preview of rules names the jobs that the guard then ends, and no others.

use super::super::consequences::{Consequence, ConsequenceReason, predict_affected};
use super::super::enforcement::order::SnoozeRequest;
use super::super::evaluate;
use super::super::preview::{PreviewedViolation, preview};
use super::super::sample::GuardSample;
use super::*;
use gpukill_proto::guard::{AffectedViolation, OpenViolation};
use gpukill_proto::model::Scheduler;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The owner and the name of a job.
type JobName = (String, String);

/// Evaluates so many samples, and returns the last.
fn evaluate_samples(
    rules: &CompiledRules,
    state: &mut GuardState,
    world: &mut TestHost,
    samples: usize,
) -> GuardSample {
    let mut last = world.next_sample(SAMPLE_MS);
    let _ = evaluate(rules, state, &last);
    for _ in 1..samples {
        last = world.next_sample(SAMPLE_MS);
        let _ = evaluate(rules, state, &last);
    }
    last
}

/// The jobs that the guard starts to end in this many samples.
fn ended_jobs(
    rules: &CompiledRules,
    mut state: GuardState,
    world: &mut TestHost,
    samples: usize,
) -> BTreeSet<JobName> {
    let mut ended = BTreeSet::new();
    for _ in 0..samples {
        let evaluation = evaluate(rules, &mut state, &world.next_sample(SAMPLE_MS));
        for enforcement in state.enforcements(&evaluation.records) {
            state.mark_started(&enforcement);
            let job = &enforcement.job;
            ended.insert((job.owner.name.clone(), job.id.clone()));
        }
    }
    ended
}

/// The consequence that a client shows.
fn consequence(of: &PreviewedViolation, rules: &CompiledRules) -> Consequence {
    let affected = AffectedViolation {
        open: of.open.clone(),
        exempt: of.exempt.clone(),
    };
    predict_affected(&affected, rules, Timestamp(0))
}

fn is_end(consequence: Consequence) -> bool {
    matches!(
        consequence,
        Consequence::EndsAtOnce | Consequence::EndsNotBefore(_)
    )
}

/// The job of a violation by one job.
fn job_of(open: &OpenViolation) -> JobName {
    let first = open.evidence.runs.first().expect("it has evidence");
    let owner = first.owner.as_ref().expect("it is known");
    (
        owner.name.clone(),
        first.job.clone().expect("each is in a job"),
    )
}

/// bob and carol hold too much by rules that are not in force yet.
fn two_people() -> TestHost {
    let mut world = TestHost::new(1);
    for (pid, owner) in [(100, "bob"), (101, "carol")] {
        let process = world.start(pid, owner).uses(0, 21, 50);
        process.job(&format!("tree {pid}"));
    }
    world
}

fn limited(change: impl FnOnce(&mut RuleSet)) -> CompiledRules {
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    change(&mut rules);
    CompiledRules::new(rules)
}

/// The consequences of these rules for bob and carol, with the reasons of the guard.
fn previewed(rules: &CompiledRules, world: &mut TestHost) -> Vec<(Consequence, Option<String>)> {
    let mut state = GuardState::default();
    let last = evaluate_samples(&CompiledRules::new(dry_run_rules()), &mut state, world, 3);
    let found = preview(rules, &state, &[last]);
    let found = found.iter();
    found
        .map(|it| (consequence(it, rules), it.exempt.clone()))
        .collect()
}

#[test]
fn exempt_jobs_are_not_promised_an_end() {
    let grace = Consequence::EndsNotBefore(Timestamp(300_000));
    let both = [(grace, None::<String>), (grace, None)];
    assert_eq!(previewed(&limited(|_| ()), &mut two_people()), both);
    let mut world = two_people();
    // A part of bob's job is another person's, and a scheduler ends carol's.
    world.start(200, "dave").uses(0, 1, 50).job("tree 100");
    world.process(101).facts.scheduler = Some(Some((Scheduler::Slurm, "7".into())));
    let reasons = [
        "tree 100: one of its processes belongs to another person",
        "it is left to its scheduler",
    ];
    let exempt = reasons.map(|why| (Consequence::Exempt, Some(why.to_owned())));
    assert_eq!(previewed(&limited(|_| ()), &mut world), exempt);
    // A protected person breaks no rule.
    let protects = limited(|it| it.protect.users = names(&["bob"]));
    let carols = previewed(&protects, &mut two_people());
    assert_eq!(carols, [(grace, None::<String>)]);
    let enforce = limited(|it| {
        it.mode = GuardMode::Enforce;
        it.enforcement.max_ended = 1;
    });
    let found = previewed(&enforce, &mut two_people());
    assert_eq!(found[0], (Consequence::EndsAtOnce, None));
    assert_eq!(found[1].0, Consequence::Exempt);
    let why = found[1].1.as_deref().unwrap_or_default();
    assert!(why.starts_with("the circuit breaker stops"), "{why}");
    // The job of a container waits for no warning in soft mode.
    let mut world = two_people();
    world.process(100).facts.owner = Some(person("container vllm"));
    let found = previewed(&limited(|_| ()), &mut world);
    let nobody = Consequence::DryRun(ConsequenceReason::NoReader);
    assert!(found.iter().any(|(it, _)| *it == nobody), "{found:?}");
}

#[test]
fn user_who_waits_for_containers_is_ended_later() {
    let rules = limited(|it| {
        it.mode = GuardMode::Enforce;
        it.enforcement.max_ended = 1;
    });
    let mut world = TestHost::new(1);
    world.start(100, "container a").uses(0, 21, 50).job("a");
    let mut state = GuardState::default();
    evaluate_samples(&rules, &mut state, &mut world, 2);
    assert_eq!(state.tripped_at(), None);
    world.processes.clear();
    world.start(101, "alice").uses(0, 21, 50).job("tree 101");
    let before = CompiledRules::new(dry_run_rules());
    let last = evaluate_samples(&before, &mut state, &mut world, 3);
    let found = preview(&rules, &state, &[last]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(consequence(&found[0], &rules), Consequence::EndsAtOnce);
    assert_eq!(found[0].exempt, None);
}

#[test]
fn snooze_holds_in_a_preview() {
    let (soft, mut world) = (limited(|_| ()), two_people());
    let mut state = GuardState::default();
    let last = evaluate_samples(&soft, &mut state, &mut world, 3);
    let snoozer = SnoozeRequest {
        requester: 1_001,
        owner: 1_001,
        process: (100, 1_000),
        job: None,
    };
    state.snooze(&soft, &snoozer, world.now).unwrap();
    let enforce = limited(|it| it.mode = GuardMode::Enforce);
    let found = preview(&enforce, &state, &[last]);
    let ends: Vec<_> = found.iter().map(|it| consequence(it, &enforce)).collect();
    let until = found[0].open.snoozed_until.expect("bob has snoozed");
    assert_eq!(
        ends,
        [Consequence::EndsNotBefore(until), Consequence::EndsAtOnce]
    );
}

#[test]
fn older_sample_fills_gaps_only() {
    let rules = limited(|_| ());
    let before = CompiledRules::new(dry_run_rules());
    let (mut state, mut world) = (GuardState::default(), two_people());
    let older = evaluate_samples(&before, &mut state, &mut world, 3);
    // What bob holds is unknown now, and carol holds less.
    world.process(100).memory(0, TestReading::Failed);
    world.process(101).uses(0, 1, 50);
    let newest = evaluate_samples(&before, &mut state, &mut world, 1);
    assert_eq!(preview(&rules, &state, std::slice::from_ref(&newest)), []);
    let found = preview(&rules, &state, &[newest, older]);
    let jobs: Vec<JobName> = found.iter().map(|it| job_of(&it.open)).collect();
    assert_eq!(jobs, [("bob".to_owned(), "tree 100".to_owned())]);
}

/// One person and the person's job: each number selects something.
type PersonChoice = [u8; 4];

const OWNERS: [&str; 5] = ["alice", "bob", "carol", "dave", "container vllm"];

/// A host on which each person has one job.
fn host(people: &[PersonChoice]) -> TestHost {
    let mut world = TestHost::new(1);
    for ((pid, owner), choice) in (100..).zip(OWNERS).zip(people) {
        let [memory, load, kind, shared] = *choice;
        let job = format!("tree {pid}");
        let (gib, percent) = (u64::from(memory % 4) * 7 + 1, u64::from(load % 2) * 90);
        let process = world.start(pid, owner).uses(0, gib, percent).job(&job);
        match kind % 5 {
            0 => process.facts.scheduler = Some(Some((Scheduler::Slurm, "7".into()))),
            1 => process.facts.scheduler = None,
            2 => {
                process.serves(8_000, 0);
            }
            _ => {}
        }
        if shared % 4 == 0 {
            world.start(pid + 50, "eve").uses(0, 0, 90).job(&job);
        }
    }
    world
}

/// Rules of several kinds, in this mode.
fn rules(choice: u8, mode: GuardMode) -> RuleSet {
    let has = |bit: u8| choice & (1 << bit) != 0;
    let mut rules = RuleSet {
        mode,
        armed_mode: match mode {
            GuardMode::Enforce => EnforcementMode::Enforce,
            GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => EnforcementMode::Soft,
        },
        defaults: Limits {
            memory: gib(12).filter(|_| has(0)),
            idle: Some(minutes(1)).filter(|_| has(1)),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    rules.enforcement.grace = Duration::from_secs(20);
    rules.enforcement.max_ended = 100;
    if has(2) {
        rules.gpus = vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["alice", "carol"]),
            ..GpuPolicy::default()
        }];
    }
    if has(3) {
        rules.protect.users = names(&["carol"]);
    }
    if has(4) {
        let measures = Measures {
            mode: has(5).then_some(GuardMode::DryRun),
            action: (!has(5)).then_some(GuardAction::Warn),
            ..Measures::default()
        };
        rules.users = vec![UserPolicy {
            name: "bob".into(),
            measures,
            ..UserPolicy::default()
        }];
    }
    rules
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn preview_names_the_jobs_that_the_guard_ends(
        people in proptest::collection::vec(any::<PersonChoice>(), 1..6),
        choice in any::<u8>(),
        is_enforced in any::<bool>(),
    ) {
        let mode = if is_enforced { GuardMode::Enforce } else { GuardMode::Soft };
        let rules = CompiledRules::new(rules(choice, mode));
        let (mut state, mut world) = (GuardState::default(), host(&people));
        let before = CompiledRules::new(dry_run_rules());
        let last = evaluate_samples(&before, &mut state, &mut world, 12);
        let found = preview(&rules, &state, &[last]);
        let chosen = found.iter().filter_map(|it| it.chosen.as_ref());
        let chosen = chosen.map(|it| (it.job.owner.name.clone(), it.job.id.clone()));
        let chosen: BTreeSet<JobName> = chosen.collect();
        let ends = found.iter().filter(|it| is_end(consequence(it, &rules)));
        let promised: BTreeSet<JobName> = ends.map(|it| job_of(&it.open)).collect();
        let ended = ended_jobs(&rules, state, &mut world, 8);
        prop_assert_eq!(&chosen, &ended);
        prop_assert_eq!(&promised, &ended);
    }
}
