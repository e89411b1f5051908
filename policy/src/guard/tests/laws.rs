//! What holds for every box, every file of rules and every history.

mod widened;

use super::super::bucket::Bucket;
use super::super::judge;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, RuleKind, Subject};
use gpukill_proto::rogue::{Risk, Suspected, Threat};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use widened::widened;

const OWNERS: [&str; 5] = ["alice", "bob", "carol", "root", "box-of-nobody"];
const NAMES: [&str; 4] = ["python", "Xorg", "miner", "vllm"];

/// What one process does in one bucket, by numbers of which each chooses something.
type Choice = [u8; 9];

/// Some buckets of some processes each.
fn history() -> impl Strategy<Value = Vec<Vec<Choice>>> {
    let bucket = proptest::collection::vec(any::<Choice>(), 0..7);
    proptest::collection::vec(bucket, 1..24)
}

fn told(choice: u8, value: u64) -> Told {
    match choice % 8 {
        0 => Told::Failed,
        1 => Told::Unsupported,
        _known => Told::Known(value),
    }
}

/// What the watch for rogues says.
fn verdict(choice: u8) -> Option<Option<Suspected>> {
    let suspected = Suspected {
        risk: Risk::ALL[usize::from(choice / 8) % Risk::ALL.len()],
        threat: Threat::ALL[usize::from(choice / 32) % 2],
        may_be_acted_on: choice % 8 > 2,
    };
    match choice % 8 {
        0 => None,
        1 => Some(None),
        _said => Some(Some(suspected)),
    }
}

/// The process of this pid: who it is never changes.
fn start(world: &mut World, pid: u32) {
    let nth = usize::try_from(pid).expect("it is small");
    let process = world.start(pid, OWNERS[nth * 7 % OWNERS.len()]);
    process.named(NAMES[nth * 5 % NAMES.len()]);
    if nth % 3 != 0 {
        process.job(&format!("job {}", nth % 4));
    }
    if nth % 11 == 7 {
        process.about.owner = None;
    }
    if nth % 13 == 5 {
        process.about.pod = Some(Some(("ml".into(), "pod".into())));
    }
}

fn buckets(history: &[Vec<Choice>]) -> Vec<Bucket> {
    let mut world = World::new(3);
    let mut buckets = Vec::new();
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
                .memory(device, told(choice[2], u64::from(choice[3] % 40) * GIB))
                .utilization(device, told(choice[4], u64::from(choice[5] % 101)))
                .connections(told(choice[6], u64::from(choice[7] % 2)))
                .suspected(verdict(choice[8]));
            there.insert(pid);
        }
        world.processes.retain(|pid, _| there.contains(pid));
        buckets.push(world.bucket(TEN_SECONDS));
    }
    buckets
}

/// Something of every kind.
fn everything(mode: GuardMode, rehearsed: Rehearsed) -> Rules {
    Rules {
        mode,
        rehearsed,
        defaults: Limits {
            memory: gib(30),
            utilization: Some(Percent(30)),
            duration: Some(minutes(1)),
            processes: Some(1),
            idle: Some(Duration::from_secs(20)),
            idle_min_memory: gib(1),
        },
        enforcement: Enforcement {
            grace: Duration::from_secs(20),
            utilization_window: Duration::from_secs(30),
            settled_after: Duration::from_secs(30),
            ..Enforcement::default()
        },
        protect: Protect {
            users: names(&["root"]),
            processes: globs(&["Xorg"]),
            ..Protect::default()
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
            behaviour(
                "waste",
                Conduct::Waste {
                    below: Percent(20),
                    min_memory: Bytes(10 * GIB),
                    hours: Duration::from_secs(40),
                },
            ),
            behaviour(
                "runaway",
                Conduct::Runaway {
                    above: Percent(80),
                    limit: Duration::from_secs(30),
                    orphaned: false,
                },
            ),
            behaviour(
                "growth",
                Conduct::Growth {
                    by: Bytes(GIB),
                    within: Duration::from_secs(40),
                },
            ),
            behaviour(
                "rogues",
                Conduct::Rogue {
                    from: Risk::Medium,
                    threats: Threat::ALL.to_vec(),
                },
            ),
        ],
        ..Rules::default()
    }
}

fn modes() -> impl Strategy<Value = (GuardMode, Rehearsed)> {
    use GuardMode::*;
    prop_oneof![
        Just((DryRun, Rehearsed::Soft)),
        Just((DryRun, Rehearsed::Enforce)),
        Just((Soft, Rehearsed::Soft)),
        Just((Enforce, Rehearsed::Enforce)),
    ]
}

fn watch(rules: &Rules, buckets: &[Bucket]) -> Vec<GuardRecord> {
    let book = Rulebook::of(rules.clone());
    let mut memory = Memory::default();
    let judged = buckets
        .iter()
        .map(|bucket| judge(&book, &mut memory, bucket));
    judged.flat_map(|it| it.records).collect()
}

/// Who is violated by what after the last bucket, whichever policy says it.
fn violated(rules: &Rules, buckets: &[Bucket]) -> BTreeSet<(RuleKind, Subject)> {
    let book = Rulebook::of(rules.clone());
    let mut memory = Memory::default();
    for bucket in buckets {
        let _ = judge(&book, &mut memory, bucket);
    }
    let open = memory.violations().into_iter();
    open.map(|it| (it.rule.kind, it.subject)).collect()
}

/// Nobody is ended: what is seen is the same, whatever is found.
fn only_warns(mut rules: Rules) -> Rules {
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
    fn nobody_is_ever_ended_who_is_protected_or_whose_owner_is_not_known(
        history in history(),
        (mode, rehearsed) in modes(),
    ) {
        let buckets = buckets(&history);
        let by_end: BTreeMap<_, _> = buckets.iter().map(|it| (it.until, it)).collect();
        for record in watch(&everything(mode, rehearsed), &buckets) {
            let GuardStep::Ended(victim) = &record.step else {
                continue;
            };
            prop_assert!(!victim.runs.is_empty());
            for (run, judged) in &by_end[&record.at].runs {
                let about = &judged.about;
                let is_of_job = about.job.as_ref().map(|(id, _)| id) == Some(&victim.job.id)
                    || victim.runs.iter().any(|told| told.run.pid == run.pid);
                if is_of_job {
                    prop_assert_eq!(about.owner.as_ref(), Some(&victim.job.owner));
                    prop_assert_ne!(about.name.as_deref(), Some("Xorg"));
                    prop_assert_ne!(victim.job.owner.name.as_str(), "root");
                }
            }
        }
    }

    #[test]
    fn what_is_remembered_and_read_again_goes_on_as_if_nothing_had_been(
        history in history(),
        (mode, rehearsed) in modes(),
        at in 0..24_usize,
    ) {
        let buckets = buckets(&history);
        let rules = everything(mode, rehearsed);
        let (first, second) = buckets.split_at(at.min(buckets.len()));
        let book = Rulebook::of(rules.clone());
        let mut memory = Memory::default();
        let mut records = Vec::new();
        for bucket in first {
            records.extend(judge(&book, &mut memory, bucket).records);
        }
        let written = serde_json::to_string(&memory).unwrap();
        let mut memory: Memory = serde_json::from_str(&written).unwrap();
        let book = Rulebook::of(rules.clone());
        for bucket in second {
            records.extend(judge(&book, &mut memory, bucket).records);
        }
        prop_assert_eq!(records, watch(&rules, &buckets));
    }

    #[test]
    fn a_job_is_ended_once_for_a_violation_in_a_dry_run(history in history(), enforce in any::<bool>()) {
        let rehearsed = if enforce { Rehearsed::Enforce } else { Rehearsed::Soft };
        let mut buckets = buckets(&history);
        // All stay to the end, so that no pid is another process.
        let last = buckets.last().cloned().expect("there is one");
        for bucket in &mut buckets {
            for (run, judged) in &last.runs {
                bucket.runs.entry(run.clone()).or_insert_with(|| judged.clone());
            }
            bucket.runs.retain(|run, _| last.runs.contains_key(run));
        }
        let mut ended = BTreeSet::new();
        for record in watch(&everything(GuardMode::DryRun, rehearsed), &buckets) {
            let violation = (record.rule.clone(), record.subject.clone());
            match record.step {
                GuardStep::Ended(victim) if victim.leave_to.is_none() => {
                    let end = (violation, victim.job.clone());
                    prop_assert!(ended.insert(end), "{:?}", victim.job);
                }
                // What is broken anew is another violation.
                GuardStep::Over | GuardStep::Outdated => {
                    ended.retain(|(of, _)| *of != violation);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_not_known_never_opens_a_violation_of_an_amount(history in history()) {
        let mut buckets = buckets(&history);
        for bucket in &mut buckets {
            for judged in bucket.runs.values_mut() {
                judged.usage.memory = crate::usage::Gauge { is_failed: true, ..Default::default() };
                judged.usage.utilization = judged.usage.memory.clone();
                Arc::make_mut(&mut judged.about).suspected = None;
            }
            for device in bucket.devices.values_mut() {
                device.usage.memory = Default::default();
                device.usage.utilization = Default::default();
            }
        }
        let rules = everything(GuardMode::Enforce, Rehearsed::Enforce);
        for record in watch(&rules, &buckets) {
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
    fn the_order_of_what_is_seen_and_said_changes_nothing(
        history in history(),
        (mode, rehearsed) in modes(),
    ) {
        let buckets = buckets(&history);
        let backwards: Vec<Bucket> = buckets
            .iter()
            .map(|bucket| Bucket {
                devices: bucket.devices.clone().into_iter().rev().collect(),
                runs: bucket.runs.clone().into_iter().rev().collect(),
                ..bucket.clone()
            })
            .collect();
        let rules = everything(mode, rehearsed);
        let mut turned = rules.clone();
        turned.behaviours.reverse();
        let records = watch(&rules, &buckets);
        prop_assert_eq!(&records, &watch(&rules, &backwards));
        prop_assert_eq!(&records, &watch(&turned, &buckets));
    }
}

proptest! {
    // Each judges a history twenty times.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn widening_a_limit_adds_no_violation(history in history()) {
        let buckets = buckets(&history);
        let narrow = only_warns(everything(GuardMode::Soft, Rehearsed::Soft));
        let before = violated(&narrow, &buckets);
        for (what, widen) in widened() {
            let mut wide = narrow.clone();
            widen(&mut wide);
            let added: Vec<_> = violated(&wide, &buckets)
                .into_iter()
                .filter(|it| !before.contains(it))
                .collect();
            prop_assert_eq!(added, vec![], "{}", what);
        }
    }
}
