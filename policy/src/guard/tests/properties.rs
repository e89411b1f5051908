//! Properties that hold for every host, every rule set and every history.

mod wider_limits;

use super::super::evaluate;
use super::super::sample::GuardSample;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, RuleKind, ViolationSubject};
use gpukill_proto::rogue::{Risk, Threat, VerdictSummary};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wider_limits::widenings;

const OWNERS: [&str; 5] = ["alice", "bob", "carol", "root", "box-of-nobody"];
const NAMES: [&str; 4] = ["python", "Xorg", "miner", "vllm"];

/// What one process does in one sample: each number selects something.
type ProcessStep = [u8; 9];

/// Some samples of some processes each.
fn history() -> impl Strategy<Value = Vec<Vec<ProcessStep>>> {
    let sample = proptest::collection::vec(any::<ProcessStep>(), 0..7);
    proptest::collection::vec(sample, 1..24)
}

fn reading(choice: u8, value: u64) -> TestReading {
    match choice % 8 {
        0 => TestReading::Failed,
        1 => TestReading::Unsupported,
        _known => TestReading::Known(value),
    }
}

/// A rogue verdict.
fn verdict(choice: u8) -> Option<Option<VerdictSummary>> {
    let suspected = VerdictSummary {
        risk: Risk::ALL[usize::from(choice / 8) % Risk::ALL.len()],
        threat: Threat::ALL[usize::from(choice / 32) % 2],
        is_actionable: choice % 8 > 2,
    };
    match choice % 8 {
        0 => None,
        1 => Some(None),
        _said => Some(Some(suspected)),
    }
}

/// The process with this pid. Its owner never changes.
fn start(world: &mut TestHost, pid: u32) {
    let nth = usize::try_from(pid).expect("it is small");
    let process = world.start(pid, OWNERS[nth * 7 % OWNERS.len()]);
    process.named(NAMES[nth * 5 % NAMES.len()]);
    if nth % 3 != 0 {
        process.job(&format!("job {}", nth % 4));
    }
    if nth % 11 == 7 {
        process.facts.owner = None;
    }
    if nth % 13 == 5 {
        process.facts.pod = Some(Some(("ml".into(), "pod".into())));
    }
}

fn samples(history: &[Vec<ProcessStep>]) -> Vec<GuardSample> {
    let mut world = TestHost::new(3);
    let mut samples = Vec::new();
    for choices in history {
        let mut there = BTreeSet::new();
        for choice in choices {
            let pid = 100 + u32::from(choice[0] % 12);
            if !world.processes.contains_key(&pid) {
                start(&mut world, pid);
            }
            let process = world.process(pid);
            let device = usize::from(choice[1] % 3);
            process
                .uses(device, 0, 0)
                .memory(device, reading(choice[2], u64::from(choice[3] % 40) * GIB))
                .utilization(device, reading(choice[4], u64::from(choice[5] % 101)))
                .connections(reading(choice[6], u64::from(choice[7] % 2)))
                .suspected(verdict(choice[8]));
            there.insert(pid);
        }
        world.processes.retain(|pid, _| there.contains(pid));
        samples.push(world.next_sample(SAMPLE_MS));
    }
    samples
}

/// A rule of every kind.
fn all_kinds_of_rules(mode: GuardMode, armed_mode: EnforcementMode) -> RuleSet {
    RuleSet {
        mode,
        armed_mode,
        defaults: Limits {
            memory: gib(30),
            utilization: Some(Percent(30)),
            duration: Some(minutes(1)),
            processes: Some(1),
            idle: Some(Duration::from_secs(20)),
            idle_min_memory: gib(1),
        },
        enforcement: EnforcementSettings {
            grace: Duration::from_secs(20),
            utilization_window: Duration::from_secs(30),
            settled_after: Duration::from_secs(30),
            ..EnforcementSettings::default()
        },
        protect: ProtectRules {
            users: names(&["root"]),
            processes: globs(&["Xorg"]),
            ..ProtectRules::default()
        },
        users: vec![UserPolicy {
            name: "bob".into(),
            limits: Limits {
                memory: gib(20),
                ..Limits::default()
            },
            priority: Some(3),
            blocked_gpus: gpus("1"),
            ..UserPolicy::default()
        }],
        groups: vec![GroupPolicy {
            name: "all".into(),
            members: Members {
                users: names(&["alice", "bob"]),
                ..Members::default()
            },
            total_memory: gib(40),
            total_utilization: Some(Percent(40)),
            total_processes: Some(2),
            ..GroupPolicy::default()
        }],
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            max_memory: gib(30),
            max_utilization: Some(Percent(50)),
            reserved_memory: gib(50),
            blocked_users: names(&["carol"]),
            blocked_processes: globs(&["miner"]),
            ..GpuPolicy::default()
        }],
        times: vec![TimePolicy {
            name: "always".into(),
            limits: Limits {
                memory: gib(35),
                ..Limits::default()
            },
            gpus: gpus("2"),
            ..TimePolicy::default()
        }],
        behaviours: vec![
            behaviour_rule(
                "waste",
                ForbiddenBehaviour::Waste(WasteParams {
                    below: Percent(20),
                    min_memory: Bytes(10 * GIB),
                    hours: Duration::from_secs(40),
                }),
            ),
            behaviour_rule(
                "runaway",
                ForbiddenBehaviour::Runaway(RunawayParams {
                    above: Percent(80),
                    limit: Duration::from_secs(30),
                    orphaned: false,
                }),
            ),
            behaviour_rule(
                "growth",
                ForbiddenBehaviour::Growth(GrowthParams {
                    by: Bytes(GIB),
                    within: Duration::from_secs(40),
                }),
            ),
            behaviour_rule(
                "rogues",
                ForbiddenBehaviour::Rogue(RogueParams {
                    from: Risk::Medium,
                    threats: Threat::ALL.to_vec(),
                }),
            ),
        ],
        ..RuleSet::default()
    }
}

fn modes() -> impl Strategy<Value = (GuardMode, EnforcementMode)> {
    use GuardMode::*;
    prop_oneof![
        Just((DryRun, EnforcementMode::Soft)),
        Just((DryRun, EnforcementMode::Enforce)),
        Just((Soft, EnforcementMode::Soft)),
        Just((Enforce, EnforcementMode::Enforce)),
    ]
}

fn evaluate_all(rules: &RuleSet, samples: &[GuardSample]) -> Vec<GuardRecord> {
    let compiled_rules = CompiledRules::new(rules.clone());
    let mut memory = GuardState::default();
    let evaluations = samples
        .iter()
        .map(|sample| evaluate(&compiled_rules, &mut memory, sample));
    evaluations.flat_map(|it| it.records).collect()
}

/// The violations after the last sample: kind and subject, by whichever policy.
fn violated_subjects(
    rules: &RuleSet,
    samples: &[GuardSample],
) -> BTreeSet<(RuleKind, ViolationSubject)> {
    let compiled_rules = CompiledRules::new(rules.clone());
    let mut memory = GuardState::default();
    for sample in samples {
        let _ = evaluate(&compiled_rules, &mut memory, sample);
    }
    let open = memory.violations().into_iter();
    open.map(|it| (it.rule.kind, it.subject)).collect()
}

/// No job is ended, so the samples do not depend on what is found.
fn only_warn(mut rules: RuleSet) -> RuleSet {
    let warns = Measures {
        action: Some(GuardAction::Warn),
        ..Measures::default()
    };
    rules.mode = GuardMode::Soft;
    rules.enforcement.settled_after = Duration::ZERO;
    for measures in rules
        .users
        .iter_mut()
        .map(|it| &mut it.measures)
        .chain(rules.groups.iter_mut().map(|it| &mut it.measures))
        .chain(rules.gpus.iter_mut().map(|it| &mut it.measures))
        .chain(rules.times.iter_mut().map(|it| &mut it.measures))
        .chain(rules.behaviours.iter_mut().map(|it| &mut it.measures))
    {
        *measures = warns.clone();
    }
    rules.enforcement.grace = minutes(60);
    rules
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn protected_or_unowned_is_never_ended(
        history in history(),
        (mode, armed_mode) in modes(),
    ) {
        let samples = samples(&history);
        let by_end: BTreeMap<_, _> = samples.iter().map(|it| (it.until, it)).collect();
        for record in evaluate_all(&all_kinds_of_rules(mode, armed_mode), &samples) {
            let GuardStep::Ended(victim) = &record.step else {
                continue;
            };
            prop_assert!(!victim.runs.is_empty());
            for (run, run_sample) in &by_end[&record.at].runs {
                let facts = &run_sample.facts;
                let is_of_job = facts.job.as_ref().map(|(id, _)| id) == Some(&victim.job.id)
                    || victim.runs.iter().any(|process| process.run.pid == run.pid);
                if is_of_job {
                    prop_assert_eq!(facts.owner.as_ref(), Some(&victim.job.owner));
                    prop_assert_ne!(facts.name.as_deref(), Some("Xorg"));
                    prop_assert_ne!(victim.job.owner.name.as_str(), "root");
                }
            }
        }
    }

    #[test]
    fn stored_state_resumes_unchanged(
        history in history(),
        (mode, armed_mode) in modes(),
        at in 0..24_usize,
    ) {
        let samples = samples(&history);
        let rules = all_kinds_of_rules(mode, armed_mode);
        let (first, second) = samples.split_at(at.min(samples.len()));
        let compiled_rules = CompiledRules::new(rules.clone());
        let mut memory = GuardState::default();
        let mut records = Vec::new();
        for sample in first {
            records.extend(evaluate(&compiled_rules, &mut memory, sample).records);
        }
        let written = serde_json::to_string(&memory).unwrap();
        let mut memory: GuardState = serde_json::from_str(&written).unwrap();
        let compiled_rules = CompiledRules::new(rules.clone());
        for sample in second {
            records.extend(evaluate(&compiled_rules, &mut memory, sample).records);
        }
        prop_assert_eq!(records, evaluate_all(&rules, &samples));
    }

    #[test]
    fn dry_run_ends_a_job_once(history in history(), enforce in any::<bool>()) {
        let armed_mode = if enforce { EnforcementMode::Enforce } else { EnforcementMode::Soft };
        let mut samples = samples(&history);
        // All processes stay to the end, so that no pid is reused.
        let last = samples.last().cloned().expect("there is one");
        for sample in &mut samples {
            for (run, run_sample) in &last.runs {
                sample.runs.entry(run.clone()).or_insert_with(|| run_sample.clone());
            }
            sample.runs.retain(|run, _| last.runs.contains_key(run));
        }
        let mut ended = BTreeSet::new();
        for record in evaluate_all(&all_kinds_of_rules(GuardMode::DryRun, armed_mode), &samples) {
            let violation = (record.rule.clone(), record.subject.clone());
            match record.step {
                GuardStep::Ended(victim) if victim.leave_to.is_none() => {
                    let end = (violation, victim.job.clone());
                    prop_assert!(ended.insert(end), "{:?}", victim.job);
                }
                // A rule that is broken again is another violation.
                GuardStep::Over | GuardStep::Outdated => {
                    ended.retain(|(of, _)| *of != violation);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn unknown_amounts_open_no_violation(history in history()) {
        let mut samples = samples(&history);
        for sample in &mut samples {
            for run_sample in sample.runs.values_mut() {
                run_sample.usage.memory =
                    crate::usage::Gauge { is_failed: true, ..Default::default() };
                run_sample.usage.utilization = run_sample.usage.memory.clone();
                Arc::make_mut(&mut run_sample.facts).suspected = None;
            }
            for device in sample.devices.values_mut() {
                device.usage.memory = Default::default();
                device.usage.utilization = Default::default();
            }
        }
        let rules = all_kinds_of_rules(GuardMode::Enforce, EnforcementMode::Enforce);
        for record in evaluate_all(&rules, &samples) {
            let kind = record.rule.kind;
            let needs_nothing = kind.is_access()
                || matches!(
                    kind,
                    RuleKind::Processes | RuleKind::TotalProcesses | RuleKind::Duration
                );
            prop_assert!(needs_nothing, "{:?}", record);
        }
    }

    #[test]
    fn order_of_input_does_not_matter(
        history in history(),
        (mode, armed_mode) in modes(),
    ) {
        let samples = samples(&history);
        let backwards: Vec<GuardSample> = samples
            .iter()
            .map(|sample| GuardSample {
                devices: sample.devices.clone().into_iter().rev().collect(),
                runs: sample.runs.clone().into_iter().rev().collect(),
                ..sample.clone()
            })
            .collect();
        let rules = all_kinds_of_rules(mode, armed_mode);
        let mut turned = rules.clone();
        turned.behaviours.reverse();
        let records = evaluate_all(&rules, &samples);
        prop_assert_eq!(&records, &evaluate_all(&rules, &backwards));
        prop_assert_eq!(&records, &evaluate_all(&turned, &samples));
    }
}

proptest! {
    // Each case evaluates a history twenty times.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn wider_limit_adds_no_violation(history in history()) {
        let samples = samples(&history);
        let narrow = only_warn(all_kinds_of_rules(GuardMode::Soft, EnforcementMode::Soft));
        let before = violated_subjects(&narrow, &samples);
        for (what, widen) in widenings() {
            let mut wide = narrow.clone();
            widen(&mut wide);
            let added: Vec<_> = violated_subjects(&wide, &samples)
                .into_iter()
                .filter(|it| !before.contains(it))
                .collect();
            prop_assert_eq!(added, vec![], "{}", what);
        }
    }
}
