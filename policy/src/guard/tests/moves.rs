//! Processes that move from job to job, and people who are away for a moment.

use super::words::line;
use super::*;
use crate::guard::bucket::About;
use gpukill_proto::guard::GuardStep;

fn idle() -> Rules {
    Rules {
        defaults: Limits {
            idle: Some(Duration::from_secs(600)),
            ..Limits::default()
        },
        ..rules()
    }
}

/// Seconds after which bob's idle job is found, moved into another one every ten seconds.
fn found(hop: impl Fn(&mut World, usize)) -> Option<usize> {
    let (mut guard, mut world) = (Guard::new(idle()), World::new(1));
    world.start(100, "bob").uses(0, 21, 0).job("tree 100");
    (1..100).find_map(|bucket| {
        hop(&mut world, bucket);
        if bucket.is_multiple_of(7) {
            let text = serde_json::to_string(&guard.memory).unwrap();
            guard.memory = serde_json::from_str(&text).unwrap();
        }
        let told = guard.watches(&mut world, 1);
        told.iter()
            .any(|it| it.step == GuardStep::Violated)
            .then_some(bucket * 10)
    })
}

#[test]
fn who_moves_from_job_to_job_is_idle_all_the_same() {
    assert_eq!(found(|_, _| ()), Some(600));
    let hops = |world: &mut World, bucket: usize| {
        world.process(100).job(&format!("hop-{}.scope", bucket % 3));
    };
    assert_eq!(found(hops), Some(600));
    // Nor does it help that whose job it is is not told for a moment.
    let blinks = |world: &mut World, bucket: usize| {
        let job = format!("hop-{bucket}.scope");
        world.process(100).about.job = bucket.is_multiple_of(2).then(|| (job.clone(), job));
    };
    let found = found(blinks).unwrap();
    assert!((600..=610).contains(&found), "{found}");
}

#[test]
fn what_is_put_into_a_container_or_a_schedulers_job_is_another_job() {
    let into = |bucket: usize, put: fn(&mut About)| {
        found(move |world, at| {
            if at == bucket {
                world.process(100).job("elsewhere");
                put(&mut world.process(100).about);
            }
        })
    };
    let contained = |about: &mut About| about.is_contained = Some(true);
    assert_eq!(into(31, contained), Some(900));
    let scheduled = |about: &mut About| {
        about.scheduler = Some(Some((
            gpukill_proto::snapshot::Scheduler::Slurm,
            "1".into(),
        )));
    };
    assert_eq!(into(31, scheduled), Some(900));
}

#[test]
fn who_comes_to_a_job_that_others_moved_from_counts_for_where_they_are() {
    let (mut guard, mut world) = (Guard::new(idle()), World::new(1));
    world.start(100, "bob").uses(0, 21, 0).job("tree 100");
    guard.watches(&mut world, 3).clear();
    world.process(100).job("other.scope");
    world.start(101, "bob").uses(0, 1, 0).job("other.scope");
    let told = guard.watches(&mut world, 70);
    let told: Vec<String> = told
        .iter()
        .filter(|it| it.step == GuardStep::Violated)
        .map(line)
        .collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told[0].contains("tree 100") && told[1].contains("other.scope"),
        "{told:#?}"
    );
}

/// The seconds at which bob is warned and ended who is away from time to time.
fn warned_and_ended(away: std::ops::Range<usize>) -> Vec<(usize, String)> {
    let rules = Rules {
        mode: GuardMode::Soft,
        defaults: memory(20),
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    let mut told = Vec::new();
    for bucket in 1..60 {
        world.processes.clear();
        if !away.contains(&bucket) {
            let pid = if bucket < away.start { 100 } else { 101 };
            world
                .start(pid, "bob")
                .uses(0, 21, 50)
                .job(&format!("tree {pid}"));
        }
        for record in guard.watches(&mut world, 1) {
            let name = match &record.step {
                GuardStep::Ended(victim) => format!("ends {}", victim.job.id),
                step => step.name().to_owned(),
            };
            told.push((bucket * 10, name));
        }
    }
    told.retain(|(_, step)| step == "over" || step.starts_with("ends"));
    told
}

#[test]
fn who_is_away_for_a_moment_has_no_new_grace() {
    let ends = |at, job: &str| (at, format!("ends {job}"));
    assert_eq!(warned_and_ended(59..59), [ends(320, "tree 100")]);
    assert_eq!(warned_and_ended(20..21), [ends(320, "tree 101")]);
    // For long enough, and it is over.
    let told = warned_and_ended(10..50);
    assert_eq!(told, [(390, "over".to_owned())]);
}

#[test]
fn whoever_was_ended_and_breaks_the_rule_anew_is_warned_for_the_whole_grace_anew() {
    let rules = Rules {
        mode: GuardMode::Soft,
        defaults: memory(20),
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.start(100, "bob").uses(0, 10, 50).job("tree 100");
    let mut ends = Vec::new();
    for bucket in 1..120 {
        match bucket {
            5 => {
                world.start(101, "bob").uses(0, 15, 50).job("tree 101");
            }
            // What was ended is gone; a moment later there is another like it.
            40 => world.processes.retain(|pid, _| *pid != 101),
            45 => {
                world.start(102, "bob").uses(0, 15, 50).job("tree 102");
            }
            _ => {}
        }
        for record in guard.watches(&mut world, 1) {
            if matches!(record.step, GuardStep::Violated | GuardStep::Ended(_)) {
                ends.push((bucket * 10, record.step.name()));
            }
        }
    }
    let expected = [
        (60, "violated"),
        (360, "ended"),
        (460, "violated"),
        (760, "ended"),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn more_time_for_one_job_spares_no_other_that_was_chosen() {
    let rules = Rules {
        mode: GuardMode::Soft,
        defaults: Limits {
            idle: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.start(100, "bob").uses(0, 5, 0).job("tree 100");
    let mut chosen = None;
    for bucket in 1..60 {
        if bucket == 10 {
            world.start(101, "bob").uses(0, 1, 0).job("tree 101");
        }
        let judged =
            super::super::judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
        chosen = guard.memory.endings(&judged.records).pop();
        if chosen.is_some() {
            break;
        }
    }
    let chosen = chosen.expect("the first job is chosen");
    let snoozer = |pid: u32, job: &'static str| super::super::Snoozer {
        by: 1_001,
        owner: 1_001,
        process: (pid, u64::from(pid) * 10),
        job: Some(job),
    };
    let of_other = guard
        .memory
        .snooze(&guard.book, snoozer(101, "tree 101"), world.now);
    assert_eq!(of_other.map(|it| it.len()), Ok(1));
    assert!(guard.memory.may_begin(&guard.book, &chosen));
    let of_itself = guard
        .memory
        .snooze(&guard.book, snoozer(100, "tree 100"), world.now);
    assert_eq!(of_itself.map(|it| it.len()), Ok(1));
    assert!(!guard.memory.may_begin(&guard.book, &chosen));
}
