//! A simulated end is a note on a violation; the violation stays visible.

use super::super::enforcement::ended_jobs::SimulatedEnd;
use super::*;
use gpukill_proto::guard::{
    Evidence, EvidenceProcess, GuardRecord, Measurement, OpenViolation, OwnedJob, RuleKind,
    RuleName, RuleSource, ViolationSubject,
};

/// bob may hold 20 GiB. For more, a job is ended at once.
fn memory_rules() -> RuleSet {
    RuleSet {
        armed_mode: EnforcementMode::Enforce,
        defaults: memory_limit(20),
        ..dry_run_rules()
    }
}

/// An old job of bob's of 15 GiB, and a new one of two processes of 5 GiB each.
fn two_jobs() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 15, 50).job("old");
    world.now = world.now.plus_seconds(10);
    for pid in [101, 102] {
        world.start(pid, "bob").uses(0, 5, 50).job("new");
    }
    world
}

/// A simulated end: the job, the processes of the evidence, the live processes, and after
/// how many seconds it would have been ended.
type ShownEnd = (String, Vec<u32>, Vec<u32>, Option<i64>);

fn shown_ends(guard: &TestGuard, since: Timestamp) -> Vec<ShownEnd> {
    let ends = guard.state.simulated_ends().into_iter();
    let actual = ends.map(
        |SimulatedEnd {
             violation,
             processes,
         }| {
            let ViolationSubject::Job(job) = violation.subject else {
                panic!("{:?}", violation.subject)
            };
            let ended_at = violation.ended_at.map(|at| (at.0 - since.0) / 1_000);
            let runs = violation
                .evidence
                .runs
                .iter()
                .map(|process| process.run.pid);
            let there = processes.iter().map(|(pid, _)| *pid);
            (job.id, runs.collect(), there.collect(), ended_at)
        },
    );
    actual.collect()
}

fn reload_state(guard: &mut TestGuard) {
    let text = serde_json::to_string(&guard.state).unwrap();
    guard.state = serde_json::from_str(&text).unwrap();
}

#[test]
fn shows_the_evidence_at_the_end() {
    let (mut guard, mut world) = (TestGuard::new(memory_rules()), two_jobs());
    let start = world.now;
    guard.evaluate_samples(&mut world, 2);
    let runs: Vec<EvidenceProcess> = guard.state.violations()[0].evidence.runs.clone();
    let started = [101, 102].map(|pid| {
        let process = runs.iter().find(|process| process.run.pid == pid).unwrap();
        (pid, process.run.start_ticks)
    });
    let of_new = runs.into_iter().filter(|process| process.run.pid > 100);
    let at = start.plus_seconds(20);
    let expected = SimulatedEnd {
        violation: OpenViolation {
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject: ViolationSubject::Job(OwnedJob {
                owner: person("bob"),
                id: "new".into(),
                shown: "new".into(),
            }),
            mode: GuardMode::DryRun,
            action: GuardAction::Terminate,
            violated_at: at,
            warned_at: None,
            warnings: 0,
            deadline: None,
            readers: Vec::new(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
            ended_at: Some(at),
            unfinished_end: None,
            evidence: Evidence {
                measured: Some(Measurement {
                    value: 25 * GIB,
                    limit: 20 * GIB,
                }),
                since: start,
                runs: of_new.collect(),
                count: 2,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
        },
        processes: started.into(),
    };
    assert_eq!(guard.state.simulated_ends(), [expected]);
}

#[test]
fn shown_until_the_last_process_ends() {
    let (mut guard, mut world) = (TestGuard::new(memory_rules()), two_jobs());
    let start = world.now;
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(shown_ends(&guard, start), []);
    let end = |there: &[u32]| vec![("new".to_owned(), vec![101, 102], there.to_vec(), Some(20))];
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(shown_ends(&guard, start), end(&[101, 102]));
    guard.evaluate_samples(&mut world, 30);
    // The rule is still broken, and that is shown.
    let open = guard.state.violations();
    let ended: Vec<_> = open.iter().map(|it| it.ended_at).collect();
    assert_eq!(ended, [Some(start.plus_seconds(20))]);
    assert_eq!(shown_ends(&guard, start), end(&[101, 102]));
    // Also after the daemon was away for an hour, and for that time.
    reload_state(&mut guard);
    world.now = world.now.plus_seconds(3_600);
    guard.evaluate_samples(&mut world, 2);
    assert_eq!(shown_ends(&guard, start), end(&[101, 102]));
    // A process that joins the job counts as ended too.
    world.processes.remove(&101);
    world.start(103, "bob").uses(0, 1, 50).job("new");
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(shown_ends(&guard, start), end(&[102, 103]));
    world.processes.remove(&102);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(shown_ends(&guard, start), end(&[103]));
    world.processes.remove(&103);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(shown_ends(&guard, start), []);
}

#[test]
fn dropped_when_the_rules_change() {
    for changed in [
        RuleSet {
            defaults: memory_limit(40),
            ..memory_rules()
        },
        RuleSet {
            mode: GuardMode::Soft,
            ..memory_rules()
        },
        RuleSet {
            mode: GuardMode::Disabled,
            ..memory_rules()
        },
    ] {
        let (mut guard, mut world) = (TestGuard::new(memory_rules()), two_jobs());
        guard.evaluate_samples(&mut world, 2);
        assert_eq!(guard.state.simulated_ends().len(), 1);
        guard.compiled_rules = CompiledRules::new(changed);
        guard.evaluate_samples(&mut world, 1);
        assert_eq!(guard.state.simulated_ends(), []);
    }
}

#[test]
fn real_end_is_no_simulated_end() {
    let rules = RuleSet {
        mode: GuardMode::Enforce,
        ..memory_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), two_jobs());
    guard.evaluate_samples(&mut world, 3);
    assert_eq!(guard.state.simulated_ends(), []);
}

/// Jobs that would have been ended, by kind of rule, in order.
fn ended_jobs(records: &[GuardRecord]) -> Vec<(RuleKind, String)> {
    let ends = records.iter();
    let ends = ends.filter_map(|it| Some((it.rule.kind, it.step.victim()?.job.id.clone())));
    ends.collect()
}

#[test]
fn replay_counts_the_end_of_a_job_once() {
    use crate::guard::replay::Replay;
    let rules = RuleSet {
        armed_mode: EnforcementMode::Enforce,
        defaults: Limits {
            memory: gib(20),
            processes: Some(1),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    let mut world = TestHost::new(1);
    for pid in [100, 101] {
        world.start(pid, "alice").uses(0, 15, 50).job("train");
    }
    let mut replay = Replay::new(rules, Timestamp(0));
    for _ in 0..60 {
        let mut sample = world.next_sample(SAMPLE_MS);
        for run in sample.runs.values_mut() {
            run.usage.busy_ms = SAMPLE_MS;
        }
        replay.add(&sample).unwrap();
    }
    let replayed = replay.finish();
    // Both rules choose the job, as they do in a dry run.
    let chosen: Vec<RuleKind> = ended_jobs(&replayed.records)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert!(chosen.contains(&RuleKind::Memory) && chosen.contains(&RuleKind::Processes));
    let mut counts: Vec<(RuleKind, u64, bool)> = replayed
        .outcomes
        .iter()
        .map(|it| (it.rule.kind, it.ended, it.freed_ms > 0))
        .collect();
    counts.sort();
    let expected = [(RuleKind::Memory, 1, true), (RuleKind::Processes, 0, false)];
    assert_eq!(counts, expected);
}

#[test]
fn other_rules_still_see_the_job() {
    // alice may not use the GPU, is idle, holds too much, and has too many processes.
    let rules = RuleSet {
        armed_mode: EnforcementMode::Enforce,
        defaults: Limits {
            memory: gib(20),
            processes: Some(1),
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["alice"]),
            max_memory: gib(25),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let mut world = TestHost::new(1);
    for pid in [100, 101] {
        world.start(pid, "alice").uses(0, 15, 0).job("train");
    }
    let mut guard = TestGuard::new(rules);
    let records = guard.evaluate_samples(&mut world, 150);
    let of = |kind| (kind, "train".to_owned());
    let found: std::collections::BTreeSet<_> = ended_jobs(&records).into_iter().collect();
    let kinds = [
        RuleKind::User,
        RuleKind::Memory,
        RuleKind::Processes,
        RuleKind::Idle,
    ];
    for kind in kinds {
        assert!(found.contains(&of(kind)), "{kind:?} {found:?}");
    }
    let open = guard.state.violations();
    for kind in kinds {
        let is_noted = open
            .iter()
            .any(|it| it.rule.kind == kind && it.ended_at.is_some());
        assert!(is_noted, "{kind:?} {open:#?}");
    }
}
