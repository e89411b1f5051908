//! What holds for every history of verdicts.

use super::*;
use crate::guard::bucket::Bucket;
use crate::guard::judge;
use gpukill_proto::guard::{GuardStep, Subject};
use proptest::prelude::*;

/// What the verdicts on three processes are, a bucket each.
type History = Vec<[Option<Option<Suspected>>; 3]>;

fn suspected() -> impl Strategy<Value = Suspected> {
    let risk = prop::sample::select(&Risk::ALL[..]);
    let threat = prop::sample::select(&Threat::ALL[..3]);
    let is_proved = prop::bool::weighted(0.8);
    (risk, threat, is_proved).prop_map(|(risk, threat, may_be_acted_on)| Suspected {
        risk,
        threat,
        may_be_acted_on,
    })
}

fn history() -> impl Strategy<Value = History> {
    let verdict = || {
        let known = prop::option::weighted(0.9, suspected());
        prop::option::weighted(0.9, known)
    };
    let bucket = || [verdict(), verdict(), verdict()];
    prop::collection::vec(bucket(), 2..24)
}

fn buckets(history: &History) -> Vec<Bucket> {
    let mut world = World::new(1);
    for (pid, owner) in [(100, "bob"), (101, "bob"), (102, "alice")] {
        let job = format!("job of {owner}");
        world.start(pid, owner).uses(0, 1, 50).job(&job);
    }
    let buckets = history.iter().map(|verdicts| {
        for (pid, verdict) in (100..).zip(verdicts) {
            world.process(pid).suspected(*verdict);
        }
        world.bucket(TEN_SECONDS)
    });
    buckets.collect()
}

/// The moments at which somebody's violation goes on. Nothing settles, nobody is ended.
fn violated(rules: &Rules, buckets: &[Bucket]) -> Vec<(usize, String)> {
    let book = Rulebook::of(rules.clone());
    let mut memory = Memory::default();
    let mut violated = Vec::new();
    for (at, bucket) in buckets.iter().enumerate() {
        let _ = judge(&book, &mut memory, bucket);
        let open = memory.violations().into_iter();
        violated.extend(open.map(|it| (at, it.subject.to_string())));
    }
    violated
}

proptest! {
    #[test]
    fn what_makes_a_verdict_less_adds_no_violation(
        history in history(),
        less in prop::collection::vec((0..24_usize, 0..3_usize, 0..4_u8), 1..9),
    ) {
        let mut rules = no_rogues(GuardMode::Soft, |it| {
            it.measures.action = Some(GuardAction::Warn);
        });
        rules.enforcement.settled_after = Duration::ZERO;
        let before = violated(&rules, &buckets(&history));
        let mut milder = history.clone();
        for (at, pid, how) in less {
            let at = at % milder.len();
            let verdict = &mut milder[at][pid];
            if let Some(known) = verdict {
                *known = known.and_then(|it| match how {
                    0 => None,
                    1 => Some(Suspected { risk: Risk::Low, ..it }),
                    2 => Some(Suspected { threat: Threat::ResourceAbuser, ..it }),
                    _ => Some(Suspected { may_be_acted_on: false, ..it }),
                });
            }
        }
        for held in violated(&rules, &buckets(&milder)) {
            prop_assert!(before.contains(&held), "{:?}", held);
        }
    }

    #[test]
    fn no_violation_opens_but_on_verdicts_of_two_buckets_in_a_row(history in history()) {
        let breaks = |verdict: &Option<Option<Suspected>>| {
            let suspected = verdict.flatten();
            suspected.is_some_and(|it| {
                let is_named = it.threat != Threat::ResourceAbuser;
                it.may_be_acted_on && it.risk >= Risk::High && is_named
            })
        };
        for mode in [GuardMode::DryRun, GuardMode::Soft, GuardMode::Enforce] {
            let book = Rulebook::of(no_rogues(mode, |_| ()));
            let mut memory = Memory::default();
            for (at, bucket) in buckets(&history).iter().enumerate() {
                for record in judge(&book, &mut memory, bucket).records {
                    if record.step != GuardStep::Violated {
                        continue;
                    }
                    let Subject::Job(job) = &record.subject else {
                        panic!("{record:?}");
                    };
                    let of_job = if job.owner.name == "bob" { 0..2 } else { 2..3 };
                    let two = at.checked_sub(1).map(|before| &history[before..=at]);
                    let two = two.expect("the first look is one");
                    let both = two.iter().all(|it| it[of_job.clone()].iter().any(breaks));
                    prop_assert!(both, "{} {:?}", at, two);
                }
            }
        }
    }
}
