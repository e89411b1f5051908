//! The readings of a device no longer count ended jobs.

use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

/// The policy ends jobs after a second sample, in a dry run or for real.
fn device_rules(mode: GuardMode, policy: GpuPolicy) -> RuleSet {
    RuleSet {
        mode,
        armed_mode: EnforcementMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            measures: Measures {
                action: Some(GuardAction::Terminate),
                ..Measures::default()
            },
            ..policy
        }],
        ..dry_run_rules()
    }
}

fn reserve_rules(mode: GuardMode) -> RuleSet {
    let policy = GpuPolicy {
        reserved_memory: gib(8),
        ..GpuPolicy::default()
    };
    device_rules(mode, policy)
}

fn utilization_rules(mode: GuardMode) -> RuleSet {
    let policy = GpuPolicy {
        max_utilization: Some(Percent(60)),
        ..GpuPolicy::default()
    };
    device_rules(mode, policy)
}

/// People who start one after the other, each with this memory and utilization.
fn host_with_people(gib: u64, percent: u64) -> TestHost {
    let mut world = TestHost::new(1);
    for (pid, user) in [(100, "alice"), (200, "bob"), (300, "carol"), (400, "dave")] {
        let process = world.start(pid, user).uses(0, gib, percent);
        process.job(&format!("tree {pid}"));
        world.now = world.now.plus_seconds(10);
    }
    world.devices[0].utilization = Some(4 * percent);
    world
}

fn victims(records: &[GuardRecord]) -> Vec<&str> {
    let victims = records.iter().filter_map(|record| {
        let victim = record.step.victim()?;
        Some(victim.job.shown.as_str())
    });
    victims.collect()
}

/// Evaluates a host on which ended jobs go after this many samples, if at all.
fn run_with_exits(
    guard: &mut TestGuard,
    world: &mut TestHost,
    after: Option<usize>,
) -> Vec<GuardRecord> {
    let mut actual = Vec::new();
    let mut going: Vec<(usize, u32)> = Vec::new();
    for sample in 0..120 {
        let records = guard.evaluate_next(world).records;
        for record in &records {
            if let (GuardStep::Ended(victim), Some(after)) = (&record.step, after) {
                let pids = victim.runs.iter().map(|process| process.run.pid);
                going.extend(pids.map(|pid| (sample + after, pid)));
            }
        }
        for (_, pid) in going.extract_if(.., |(at, _)| *at <= sample) {
            world.processes.remove(&pid);
        }
        world.devices[0].utilization = Some(28 * world.processes.len() as u64);
        actual.extend(records);
    }
    actual
}

#[test]
fn simulated_end_frees_its_memory() {
    let mut guard = TestGuard::new(reserve_rules(GuardMode::DryRun));
    let actual = guard.evaluate_samples(&mut host_with_people(19, 90), 40);
    let lines: Vec<String> = actual.iter().map(record_line).collect();
    assert_eq!(
        lines,
        [
            "00:01:00 GPU-0: gpu 0: reserved memory: violated, 4.0 GiB of 8.0 GiB since 00:00:40 [dry-run]",
            "00:01:00 GPU-0: gpu 0: reserved memory: ends tree 400 of dave (priority 5, 1 on GPUs, which works) [dry-run]",
        ]
    );
}

#[test]
fn unknown_freed_memory_may_be_enough() {
    let mut guard = TestGuard::new(reserve_rules(GuardMode::DryRun));
    let mut world = host_with_people(19, 90);
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 2)),
        ["tree 400"]
    );
    world.process(400).memory(0, TestReading::Failed);
    world.devices[0].used = Some(19 * GIB);
    assert_eq!(guard.evaluate_samples(&mut world, 40), []);
    // The violation goes on.
    assert_eq!(guard.state.violations().len(), 1);
    // Without that job there is still too much.
    world.process(400).memory(0, TestReading::Known(GIB));
    world.devices[0].used = Some(25 * GIB);
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 4)),
        ["tree 300"]
    );
}

#[test]
fn load_of_ended_jobs_does_not_count() {
    for (mode, after) in [
        (GuardMode::Enforce, Some(0)),
        (GuardMode::Enforce, Some(4)),
        (GuardMode::DryRun, None),
    ] {
        let mut world = host_with_people(10, 15);
        world.processes.remove(&400);
        world.devices[0].utilization = Some(55);
        let mut guard = TestGuard::new(utilization_rules(mode));
        assert_eq!(guard.evaluate_samples(&mut world, 60), [], "{mode:?}");
        // 84 % in total, and 56 % without one of them.
        for pid in [100, 200, 300] {
            world.process(pid).uses(0, 10, 28);
        }
        world.devices[0].utilization = Some(84);
        let actual = run_with_exits(&mut guard, &mut world, after);
        assert_eq!(victims(&actual), ["tree 300"], "{mode:?} {after:?}");
    }
}

#[test]
fn possible_load_of_simulated_end_ends_nobody() {
    let mut world = host_with_people(10, 28);
    world.processes.remove(&400);
    world.devices[0].utilization = Some(84);
    let mut guard = TestGuard::new(utilization_rules(GuardMode::DryRun));
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 40)),
        ["tree 300"]
    );
    world.process(300).utilization(0, TestReading::Failed);
    world.devices[0].utilization = Some(99);
    assert_eq!(victims(&guard.evaluate_samples(&mut world, 120)), [""; 0]);
}

/// A job that holds more than this many GiB is ended at the second sample.
fn memory_rules(limit: u64) -> RuleSet {
    RuleSet {
        armed_mode: EnforcementMode::Enforce,
        defaults: Limits {
            memory: gib(limit),
            ..Limits::default()
        },
        ..dry_run_rules()
    }
}

fn host_with_bob(job: &str) -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 21, 50).job(job);
    world
}

#[test]
fn rule_change_removes_simulated_ends() {
    for (limit, expected) in [(20, &["tree 100"][..]), (30, &[])] {
        let mut guard = TestGuard::new(memory_rules(1));
        let mut world = host_with_bob("tree 100");
        assert_eq!(
            victims(&guard.evaluate_samples(&mut world, 6)),
            ["tree 100"]
        );
        guard.compiled_rules = CompiledRules::new(memory_rules(limit));
        assert_eq!(
            victims(&guard.evaluate_samples(&mut world, 6)),
            expected,
            "{limit}"
        );
    }
    let mut gone = memory_rules(1);
    gone.users = vec![UserPolicy {
        name: "bob".into(),
        limits: Limits {
            memory: gib(2),
            ..Limits::default()
        },
        ..UserPolicy::default()
    }];
    let mut guard = TestGuard::new(gone);
    let mut world = host_with_bob("tree 100");
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 6)),
        ["tree 100"]
    );
    guard.compiled_rules = CompiledRules::new(memory_rules(1));
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 6)),
        ["tree 100"]
    );
}

#[test]
fn other_rule_changes_keep_simulated_ends() {
    let mut guard = TestGuard::new(memory_rules(1));
    let mut world = host_with_bob("tree 100");
    assert_eq!(
        victims(&guard.evaluate_samples(&mut world, 6)),
        ["tree 100"]
    );
    let mut other = memory_rules(1);
    other.gpus = reserve_rules(GuardMode::DryRun).gpus;
    guard.compiled_rules = CompiledRules::new(other);
    assert_eq!(guard.evaluate_samples(&mut world, 60), []);
}

#[test]
fn restarted_job_is_chosen_again() {
    let mut guard = TestGuard::new(memory_rules(20));
    let mut world = host_with_bob("service notebooks");
    assert_eq!(victims(&guard.evaluate_samples(&mut world, 6)).len(), 1);
    world
        .start(200, "bob")
        .uses(0, 21, 50)
        .job("service notebooks");
    assert_eq!(victims(&guard.evaluate_samples(&mut world, 6)).len(), 0);
    world.processes.clear();
    guard.evaluate_samples(&mut world, 1);
    world
        .start(300, "bob")
        .uses(0, 21, 50)
        .job("service notebooks");
    let actual = guard.evaluate_samples(&mut world, 6);
    assert_eq!(victims(&actual).len(), 1);
    let ended = actual.iter().find_map(|record| match &record.step {
        GuardStep::Ended(victim) => Some(victim.runs.iter().map(|it| it.run.pid)),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Acted(_)
        | GuardStep::Tripped { .. } => None,
    });
    assert_eq!(ended.map(Iterator::collect), Some(vec![300]));
}

#[test]
fn simulated_end_keeps_live_processes() {
    let mut guard = TestGuard::new(memory_rules(20));
    let mut world = host_with_bob("service notebooks");
    guard.evaluate_samples(&mut world, 6);
    let known = |guard: &TestGuard| -> Vec<Vec<u32>> {
        let ends = guard.state.simulated_ends().into_iter();
        ends.map(|end| end.processes.into_iter().map(|it| it.0).collect())
            .collect()
    };
    assert_eq!(known(&guard), [[100]]);
    for pid in [200, 300] {
        world
            .start(pid, "bob")
            .uses(0, 1, 50)
            .job("service notebooks");
    }
    guard.evaluate_samples(&mut world, 2);
    assert_eq!(known(&guard), [[100, 200, 300]]);
    world.processes.remove(&200);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(known(&guard), [[100, 300]]);
    world.processes.clear();
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(known(&guard), Vec::<Vec<u32>>::new());
}
