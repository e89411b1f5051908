//! Properties that hold for every history of verdicts.

use super::*;
use crate::guard::evaluate;
use crate::guard::sample::GuardSample;
use gpukill_proto::guard::{GuardStep, ViolationSubject};
use proptest::prelude::*;

/// The verdicts on three processes, one row a sample.
type VerdictHistory = Vec<[Option<Option<VerdictSummary>>; 3]>;

fn suspected() -> impl Strategy<Value = VerdictSummary> {
    let risk = prop::sample::select(&Risk::ALL[..]);
    let threat = prop::sample::select(&Threat::ALL[..3]);
    let is_proved = prop::bool::weighted(0.8);
    (risk, threat, is_proved).prop_map(|(risk, threat, may_be_acted_on)| VerdictSummary {
        risk,
        threat,
        is_actionable: may_be_acted_on,
    })
}

fn history() -> impl Strategy<Value = VerdictHistory> {
    let verdict = || {
        let known = prop::option::weighted(0.9, suspected());
        prop::option::weighted(0.9, known)
    };
    let sample = || [verdict(), verdict(), verdict()];
    prop::collection::vec(sample(), 2..24)
}

fn samples(history: &VerdictHistory) -> Vec<GuardSample> {
    let mut world = TestHost::new(1);
    for (pid, owner) in [(100, "bob"), (101, "bob"), (102, "alice")] {
        let job = format!("job of {owner}");
        world.start(pid, owner).uses(0, 1, 50).job(&job);
    }
    let samples = history.iter().map(|verdicts| {
        for (pid, verdict) in (100..).zip(verdicts) {
            world.process(pid).suspected(*verdict);
        }
        world.next_sample(SAMPLE_MS)
    });
    samples.collect()
}

/// When a violation goes on, and of which subject. Nothing settles, and no job is ended.
fn violated_subjects(rules: &RuleSet, samples: &[GuardSample]) -> Vec<(usize, String)> {
    let compiled_rules = CompiledRules::new(rules.clone());
    let mut memory = GuardState::default();
    let mut violated = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        let _ = evaluate(&compiled_rules, &mut memory, sample);
        let open = memory.violations().into_iter();
        violated.extend(open.map(|it| (at, it.subject.to_string())));
    }
    violated
}

proptest! {
    #[test]
    fn weaker_verdicts_add_no_violation(
        history in history(),
        less in prop::collection::vec((0..24_usize, 0..3_usize, 0..4_u8), 1..9),
    ) {
        let mut rules = rules_against_rogues(GuardMode::Soft, |it| {
            it.measures.action = Some(GuardAction::Warn);
        });
        rules.enforcement.settled_after = Duration::ZERO;
        let before = violated_subjects(&rules, &samples(&history));
        let mut milder = history.clone();
        for (at, pid, how) in less {
            let at = at % milder.len();
            let verdict = &mut milder[at][pid];
            if let Some(known) = verdict {
                *known = known.and_then(|it| match how {
                    0 => None,
                    1 => Some(VerdictSummary { risk: Risk::Low, ..it }),
                    2 => Some(VerdictSummary { threat: Threat::ResourceAbuser, ..it }),
                    _ => Some(VerdictSummary { is_actionable: false, ..it }),
                });
            }
        }
        for held in violated_subjects(&rules, &samples(&milder)) {
            prop_assert!(before.contains(&held), "{:?}", held);
        }
    }

    #[test]
    fn opening_needs_two_verdicts_in_a_row(history in history()) {
        let breaks = |verdict: &Option<Option<VerdictSummary>>| {
            let suspected = verdict.flatten();
            suspected.is_some_and(|it| {
                let is_named = it.threat != Threat::ResourceAbuser;
                it.is_actionable && it.risk >= Risk::High && is_named
            })
        };
        for mode in [GuardMode::DryRun, GuardMode::Soft, GuardMode::Enforce] {
            let compiled_rules = CompiledRules::new(rules_against_rogues(mode, |_| ()));
            let mut memory = GuardState::default();
            for (at, sample) in samples(&history).iter().enumerate() {
                for record in evaluate(&compiled_rules, &mut memory, sample).records {
                    if record.step != GuardStep::Violated {
                        continue;
                    }
                    let ViolationSubject::Job(job) = &record.subject else {
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
