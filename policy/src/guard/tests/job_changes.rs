//! Processes that move from job to job, and people who are absent for a moment.

use super::record_text::record_line;
use super::*;
use crate::guard::sample::ProcessFacts;
use gpukill_proto::guard::{GuardStep, ViolationSubject};

fn idle_rules() -> RuleSet {
    RuleSet {
        defaults: Limits {
            idle: Some(Duration::from_secs(600)),
            ..Limits::default()
        },
        ..dry_run_rules()
    }
}

/// The seconds until bob's idle job is found, although it moves to another job every ten
/// seconds.
fn seconds_until_found(hop: impl Fn(&mut TestHost, usize)) -> Option<usize> {
    let (mut guard, mut world) = (TestGuard::new(idle_rules()), TestHost::new(1));
    world.start(100, "bob").uses(0, 21, 0).job("tree 100");
    (1..100).find_map(|sample| {
        hop(&mut world, sample);
        if sample.is_multiple_of(7) {
            let text = serde_json::to_string(&guard.state).unwrap();
            guard.state = serde_json::from_str(&text).unwrap();
        }
        let actual = guard.evaluate_samples(&mut world, 1);
        actual
            .iter()
            .any(|it| it.step == GuardStep::Violated)
            .then_some(sample * 10)
    })
}

#[test]
fn moving_between_jobs_stays_idle() {
    assert_eq!(seconds_until_found(|_, _| ()), Some(600));
    let hops = |world: &mut TestHost, sample: usize| {
        world.process(100).job(&format!("hop-{}.scope", sample % 3));
    };
    assert_eq!(seconds_until_found(hops), Some(600));
    // A job that is unknown for a moment does not help either.
    let blinks = |world: &mut TestHost, sample: usize| {
        let job = format!("hop-{sample}.scope");
        world.process(100).facts.job = sample.is_multiple_of(2).then(|| (job.clone(), job));
    };
    let found = seconds_until_found(blinks).unwrap();
    assert!((600..=610).contains(&found), "{found}");
}

#[test]
fn container_or_scheduler_makes_a_new_job() {
    let into = |sample: usize, put: fn(&mut ProcessFacts)| {
        seconds_until_found(move |world, at| {
            if at == sample {
                world.process(100).job("elsewhere");
                put(&mut world.process(100).facts);
            }
        })
    };
    let contained = |facts: &mut ProcessFacts| facts.is_contained = Some(true);
    assert_eq!(into(31, contained), Some(900));
    let scheduled = |facts: &mut ProcessFacts| {
        facts.scheduler = Some(Some((gpukill_proto::model::Scheduler::Slurm, "1".into())));
    };
    assert_eq!(into(31, scheduled), Some(900));
}

#[test]
fn new_member_counts_for_its_job() {
    let (mut guard, mut world) = (TestGuard::new(idle_rules()), TestHost::new(1));
    world.start(100, "bob").uses(0, 21, 0).job("tree 100");
    guard.evaluate_samples(&mut world, 3).clear();
    world.process(100).job("other.scope");
    world.start(101, "bob").uses(0, 1, 0).job("other.scope");
    let actual = guard.evaluate_samples(&mut world, 70);
    let actual: Vec<String> = actual
        .iter()
        .filter(|it| it.step == GuardStep::Violated)
        .map(record_line)
        .collect();
    assert_eq!(actual.len(), 2, "{actual:#?}");
    assert!(
        actual[0].contains("tree 100") && actual[1].contains("other.scope"),
        "{actual:#?}"
    );
}

/// When violations of jobs begin and end, and jobs are ended, while bob's two idle
/// processes have a launcher for 100 seconds.
fn orphaned_after_100_seconds(rules: RuleSet) -> Vec<(usize, String)> {
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    for pid in [101, 102] {
        world.start(pid, "bob").uses(0, 1, 0).job("tree 100");
    }
    let mut actual = Vec::new();
    for sample in 1..800 {
        if sample == 10 {
            for pid in [101, 102] {
                world.process(pid).job(&format!("tree {pid}"));
            }
        }
        for record in guard.evaluate_samples(&mut world, 1) {
            let ViolationSubject::Job(job) = &record.subject else {
                panic!("{record:?}");
            };
            let what = format!("{} {}", record.step.name(), job.id);
            if matches!(
                record.step,
                GuardStep::Violated | GuardStep::Over | GuardStep::Ended(_)
            ) {
                actual.push((sample * 10, what));
            }
        }
        if sample.is_multiple_of(50) {
            let text = serde_json::to_string(&guard.state).unwrap();
            guard.state = serde_json::from_str(&text).unwrap();
        }
    }
    actual
}

#[test]
fn orphans_are_one_job_for_an_hour() {
    let rules = RuleSet {
        defaults: Limits {
            idle: Some(Duration::from_secs(1_200)),
            ..Limits::default()
        },
        enforcement: EnforcementSettings {
            grace: minutes(600),
            ..EnforcementSettings::default()
        },
        ..dry_run_rules()
    };
    let at = |second, what: &str| (second, what.to_owned());
    // Their idle time goes on.
    assert_eq!(
        orphaned_after_100_seconds(rules.clone()),
        [
            at(1_200, "violated tree 100"),
            at(3_700, "over tree 100"),
            at(3_700, "violated tree 101"),
            at(3_700, "violated tree 102"),
        ]
    );
    // A deadline of the job stands.
    let rules = RuleSet {
        mode: GuardMode::Soft,
        enforcement: EnforcementSettings {
            grace: minutes(100),
            ..rules.enforcement.clone()
        },
        ..rules
    };
    let actual = orphaned_after_100_seconds(rules);
    let expected = [at(1_200, "violated tree 100"), at(7_200, "ended tree 100")];
    assert_eq!(actual[..2], expected, "{actual:?}");
}

/// When bob is warned and when his job is ended, if he is absent during these samples.
fn warned_and_ended(away: std::ops::Range<usize>) -> Vec<(usize, String)> {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    let mut actual = Vec::new();
    for sample in 1..60 {
        world.processes.clear();
        if !away.contains(&sample) {
            let pid = if sample < away.start { 100 } else { 101 };
            world
                .start(pid, "bob")
                .uses(0, 21, 50)
                .job(&format!("tree {pid}"));
        }
        for record in guard.evaluate_samples(&mut world, 1) {
            let name = match &record.step {
                GuardStep::Ended(victim) => format!("ends {}", victim.job.id),
                step => step.name().to_owned(),
            };
            actual.push((sample * 10, name));
        }
    }
    actual.retain(|(_, step)| step == "over" || step.starts_with("ends"));
    actual
}

#[test]
fn short_absence_gives_no_new_grace() {
    let ends = |at, job: &str| (at, format!("ends {job}"));
    assert_eq!(warned_and_ended(59..59), [ends(320, "tree 100")]);
    assert_eq!(warned_and_ended(20..21), [ends(320, "tree 101")]);
    // A long absence ends the violation.
    let actual = warned_and_ended(10..50);
    assert_eq!(actual, [(390, "over".to_owned())]);
}

#[test]
fn repeat_has_a_new_grace() {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.start(100, "bob").uses(0, 10, 50).job("tree 100");
    let mut ends = Vec::new();
    for sample in 1..120 {
        match sample {
            5 => {
                world.start(101, "bob").uses(0, 15, 50).job("tree 101");
            }
            // The ended job is gone. A moment later there is another like it.
            40 => world.processes.retain(|pid, _| *pid != 101),
            45 => {
                world.start(102, "bob").uses(0, 15, 50).job("tree 102");
            }
            _ => {}
        }
        for record in guard.evaluate_samples(&mut world, 1) {
            if matches!(record.step, GuardStep::Violated | GuardStep::Ended(_)) {
                ends.push((sample * 10, record.step.name()));
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
fn snooze_of_one_job_keeps_other_orders() {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: Limits {
            idle: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.start(100, "bob").uses(0, 5, 0).job("tree 100");
    let mut chosen = None;
    for sample in 1..60 {
        if sample == 10 {
            world.start(101, "bob").uses(0, 1, 0).job("tree 101");
        }
        let evaluation = super::super::evaluate(
            &guard.compiled_rules,
            &mut guard.state,
            &world.next_sample(SAMPLE_MS),
        );
        chosen = guard.state.enforcements(&evaluation.records).pop();
        if chosen.is_some() {
            break;
        }
    }
    let chosen = chosen.expect("the first job is chosen");
    let snoozer = |pid: u32, job: &str| super::super::enforcement::order::SnoozeRequest {
        requester: 1_001,
        owner: 1_001,
        process: (pid, u64::from(pid) * 10),
        job: Some(job.to_owned()),
    };
    let of_other = guard
        .state
        .snooze(&guard.compiled_rules, &snoozer(101, "tree 101"), world.now);
    assert_eq!(of_other.map(|it| it.len()), Ok(1));
    assert!(guard.state.is_still_chosen(&chosen));
    let of_itself = guard
        .state
        .snooze(&guard.compiled_rules, &snoozer(100, "tree 100"), world.now);
    assert_eq!(of_itself.map(|it| it.len()), Ok(1));
    assert!(!guard.state.is_still_chosen(&chosen));
}
