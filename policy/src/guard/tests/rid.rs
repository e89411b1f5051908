//! Whoever was ended is out of what a device tells of itself.

use super::words::line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

/// Whoever is in the way is ended after a second look, in a dry run or not.
fn keeping(mode: GuardMode, policy: GpuPolicy) -> Rules {
    Rules {
        mode,
        rehearsed: Rehearsed::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            measures: Measures {
                action: Some(GuardAction::Terminate),
                ..Measures::default()
            },
            ..policy
        }],
        ..rules()
    }
}

fn reserving(mode: GuardMode) -> Rules {
    let policy = GpuPolicy {
        reserved_memory: gib(8),
        ..GpuPolicy::default()
    };
    keeping(mode, policy)
}

fn below_60_percent(mode: GuardMode) -> Rules {
    let policy = GpuPolicy {
        max_utilization: Some(Percent(60)),
        ..GpuPolicy::default()
    };
    keeping(mode, policy)
}

/// One after the other, each with so many GiB and percent.
fn people(gib: u64, percent: u64) -> World {
    let mut world = World::new(1);
    for (pid, who) in [(100, "alice"), (200, "bob"), (300, "carol"), (400, "dave")] {
        let process = world.start(pid, who).uses(0, gib, percent);
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

/// Watches a box on which whoever is ended goes as told, if after so many buckets.
fn goes(guard: &mut Guard, world: &mut World, after: Option<usize>) -> Vec<GuardRecord> {
    let mut told = Vec::new();
    let mut going: Vec<(usize, u32)> = Vec::new();
    for bucket in 0..120 {
        let records = guard.looks(world).records;
        for record in &records {
            if let (GuardStep::Ended(victim), Some(after)) = (&record.step, after) {
                let pids = victim.runs.iter().map(|told| told.run.pid);
                going.extend(pids.map(|pid| (bucket + after, pid)));
            }
        }
        for (_, pid) in going.extract_if(.., |(at, _)| *at <= bucket) {
            world.processes.remove(&pid);
        }
        world.devices[0].utilization = Some(28 * world.processes.len() as u64);
        told.extend(records);
    }
    told
}

#[test]
fn for_the_memory_that_a_simulated_end_would_free_nobody_else_is_chosen() {
    let mut guard = Guard::new(reserving(GuardMode::DryRun));
    let told = guard.watches(&mut people(19, 90), 40);
    let lines: Vec<String> = told.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "00:01:00 GPU-0: gpu 0: reserved memory: violated, 4.0 GiB of 8.0 GiB since 00:00:40 [dry-run]",
            "00:01:00 GPU-0: gpu 0: reserved memory: ends tree 400 of dave (priority 5, 1 on GPUs, which works) [dry-run]",
        ]
    );
}

#[test]
fn what_a_simulated_end_would_free_may_be_enough_where_it_is_not_known() {
    let mut guard = Guard::new(reserving(GuardMode::DryRun));
    let mut world = people(19, 90);
    assert_eq!(victims(&guard.watches(&mut world, 2)), ["tree 400"]);
    world.process(400).memory(0, Told::Failed);
    world.devices[0].used = Some(19 * GIB);
    assert_eq!(guard.watches(&mut world, 40), []);
    // It goes on for all to see.
    assert_eq!(guard.memory.violations().len(), 1);
    // Without it there is too much still.
    world.process(400).memory(0, Told::Known(GIB));
    world.devices[0].used = Some(25 * GIB);
    assert_eq!(victims(&guard.watches(&mut world, 4)), ["tree 300"]);
}

#[test]
fn the_load_of_who_was_ended_counts_no_more() {
    for (mode, after) in [
        (GuardMode::Enforce, Some(0)),
        (GuardMode::Enforce, Some(4)),
        (GuardMode::DryRun, None),
    ] {
        let mut world = people(10, 15);
        world.processes.remove(&400);
        world.devices[0].utilization = Some(55);
        let mut guard = Guard::new(below_60_percent(mode));
        assert_eq!(guard.watches(&mut world, 60), [], "{mode:?}");
        // 84 in all, and without one of them 56.
        for pid in [100, 200, 300] {
            world.process(pid).uses(0, 10, 28);
        }
        world.devices[0].utilization = Some(84);
        let told = goes(&mut guard, &mut world, after);
        assert_eq!(victims(&told), ["tree 300"], "{mode:?} {after:?}");
    }
}

#[test]
fn a_load_that_may_be_of_a_simulated_end_ends_nobody() {
    let mut world = people(10, 28);
    world.processes.remove(&400);
    world.devices[0].utilization = Some(84);
    let mut guard = Guard::new(below_60_percent(GuardMode::DryRun));
    assert_eq!(victims(&guard.watches(&mut world, 40)), ["tree 300"]);
    world.process(300).utilization(0, Told::Failed);
    world.devices[0].utilization = Some(99);
    assert_eq!(victims(&guard.watches(&mut world, 120)), [""; 0]);
}

/// Whoever holds so many GiB is ended at the second look.
fn with_limit(limit: u64) -> Rules {
    Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: Limits {
            memory: gib(limit),
            ..Limits::default()
        },
        ..rules()
    }
}

fn bob(job: &str) -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 21, 50).job(job);
    world
}

#[test]
fn a_simulated_end_is_over_when_its_rule_is_changed_or_gone() {
    for (limit, expected) in [(20, &["tree 100"][..]), (30, &[])] {
        let mut guard = Guard::new(with_limit(1));
        let mut world = bob("tree 100");
        assert_eq!(victims(&guard.watches(&mut world, 6)), ["tree 100"]);
        guard.book = Rulebook::of(with_limit(limit));
        assert_eq!(victims(&guard.watches(&mut world, 6)), expected, "{limit}");
    }
    let mut gone = with_limit(1);
    gone.users = vec![UserPolicy {
        name: "bob".into(),
        limits: Limits {
            memory: gib(2),
            ..Limits::default()
        },
        ..UserPolicy::default()
    }];
    let mut guard = Guard::new(gone);
    let mut world = bob("tree 100");
    assert_eq!(victims(&guard.watches(&mut world, 6)), ["tree 100"]);
    guard.book = Rulebook::of(with_limit(1));
    assert_eq!(victims(&guard.watches(&mut world, 6)), ["tree 100"]);
}

#[test]
fn a_simulated_end_stays_when_other_rules_are_changed() {
    let mut guard = Guard::new(with_limit(1));
    let mut world = bob("tree 100");
    assert_eq!(victims(&guard.watches(&mut world, 6)), ["tree 100"]);
    let mut other = with_limit(1);
    other.gpus = reserving(GuardMode::DryRun).gpus;
    guard.book = Rulebook::of(other);
    assert_eq!(guard.watches(&mut world, 60), []);
}

#[test]
fn a_job_is_chosen_again_after_all_its_processes_have_gone() {
    let mut guard = Guard::new(with_limit(20));
    let mut world = bob("service notebooks");
    assert_eq!(victims(&guard.watches(&mut world, 6)).len(), 1);
    world
        .start(200, "bob")
        .uses(0, 21, 50)
        .job("service notebooks");
    assert_eq!(victims(&guard.watches(&mut world, 6)).len(), 0);
    world.processes.clear();
    guard.watches(&mut world, 1);
    world
        .start(300, "bob")
        .uses(0, 21, 50)
        .job("service notebooks");
    let told = guard.watches(&mut world, 6);
    assert_eq!(victims(&told).len(), 1);
    let ended = told.iter().find_map(|record| match &record.step {
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
fn of_a_simulated_end_each_process_is_known_as_long_as_it_is_there() {
    let mut guard = Guard::new(with_limit(20));
    let mut world = bob("service notebooks");
    guard.watches(&mut world, 6);
    let known = |guard: &Guard| -> Vec<Vec<u32>> {
        let ends = guard.memory.simulated_ends().into_iter();
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
    guard.watches(&mut world, 2);
    assert_eq!(known(&guard), [[100, 200, 300]]);
    world.processes.remove(&200);
    guard.watches(&mut world, 1);
    assert_eq!(known(&guard), [[100, 300]]);
    world.processes.clear();
    guard.watches(&mut world, 1);
    assert_eq!(known(&guard), Vec::<Vec<u32>>::new());
}
