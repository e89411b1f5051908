//! The life of an order: no job is ended twice, wherever the daemon is interrupted.

use super::super::enforcement::order::{Enforcement, SignalStatus};
use super::super::evaluate;
use super::*;
use gpukill_proto::guard::{EnforcementOutcome, GuardRecord, GuardStep, UnfinishedEnd};

/// bob holds too much, and the last sample chose his job.
fn chosen_job(mode: GuardMode) -> (TestGuard, TestHost, Enforcement) {
    let mut rules = RuleSet {
        mode,
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    rules.enforcement.cooldown = Duration::ZERO;
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.start(100, "bob").uses(0, 21, 50).job("tree 99");
    loop {
        let evaluation = evaluate(
            &guard.compiled_rules,
            &mut guard.state,
            &world.next_sample(SAMPLE_MS),
        );
        if let Some(ending) = guard.state.enforcements(&evaluation.records).pop() {
            return (guard, world, ending);
        }
        assert!(world.now < Timestamp(600_000), "nobody is chosen");
    }
}

fn outcome(ending: &Enforcement, ended: u32) -> EnforcementOutcome {
    let GuardStep::Ended(victim) = &ending.record.step else {
        panic!("{ending:?}");
    };
    EnforcementOutcome {
        job: victim.job.clone(),
        ended,
        left: 1,
        why: Some("process 100 survived SIGKILL".into()),
    }
}

/// When jobs are chosen in this many samples by a guard that starts no order.
fn times_chosen(guard: &mut TestGuard, world: &mut TestHost, samples: usize) -> Vec<i64> {
    let mut chosen = Vec::new();
    let start = world.now.0;
    for _ in 0..samples {
        let evaluation = evaluate(
            &guard.compiled_rules,
            &mut guard.state,
            &world.next_sample(SAMPLE_MS),
        );
        let endings = guard.state.enforcements(&evaluation.records);
        chosen.extend(endings.iter().map(|it| (it.record.at.0 - start) / 1_000));
    }
    chosen
}

fn reload_state(guard: &mut TestGuard) {
    let text = serde_json::to_string(&guard.state).unwrap();
    guard.state = serde_json::from_str(&text).unwrap();
}

#[test]
fn unstarted_order_repeats_after_a_minute() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world, _) = chosen_job(mode);
        // The daemon was killed before it sent a signal.
        reload_state(&mut guard);
        let again = times_chosen(&mut guard, &mut world, 10);
        assert_eq!(again.len(), 1, "{mode:?} {again:?}");
        assert!((60..=80).contains(&again[0]), "{mode:?} {again:?}");
    }
}

/// Starts each order and settles it at once with this outcome. Returns when jobs are chosen
/// in this many samples, and which of their processes.
fn choices_with_outcome(
    guard: &mut TestGuard,
    world: &mut TestHost,
    samples: usize,
) -> Vec<(i64, Vec<u32>)> {
    let mut chosen = Vec::new();
    let from = world.now.0;
    for _ in 0..samples {
        let evaluation = evaluate(
            &guard.compiled_rules,
            &mut guard.state,
            &world.next_sample(SAMPLE_MS),
        );
        for ending in guard.state.enforcements(&evaluation.records) {
            guard.state.mark_started(&ending);
            let came = (outcome(&ending, 0), SignalStatus::Sent);
            let _ = guard.state.record_outcome(&ending, came, world.now);
            reload_state(guard);
            let pids = ending.processes.iter().map(|(pid, _)| *pid).collect();
            chosen.push(((ending.record.at.0 - from) / 1_000, pids));
        }
    }
    chosen
}

/// As [`chosen_job`], and the job survives its signals.
fn surviving_job(mode: GuardMode) -> (TestGuard, TestHost) {
    let (mut guard, world, ending) = chosen_job(mode);
    assert!(guard.state.is_still_chosen(&ending));
    guard.state.mark_started(&ending);
    let came = (outcome(&ending, 0), SignalStatus::Sent);
    let record = guard.state.record_outcome(&ending, came, world.now);
    assert_eq!(record.step.name(), "outcome");
    reload_state(&mut guard);
    (guard, world)
}

#[test]
fn started_order_does_not_repeat_soon() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world, ending) = chosen_job(mode);
        assert!(guard.state.is_still_chosen(&ending));
        guard.state.mark_started(&ending);
        reload_state(&mut guard);
        assert!(!guard.state.is_still_chosen(&ending), "{mode:?}");
        let again = times_chosen(&mut guard, &mut world, 359);
        assert_eq!(again, [0; 0], "{mode:?}");
        // The outcome is never reported. The job is still not left alone for ever.
        let again = choices_with_outcome(&mut guard, &mut world, 3);
        assert_eq!(again.len(), 1, "{mode:?} {again:?}");
    }
}

#[test]
fn restart_during_signals_gives_no_immunity() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world, ending) = chosen_job(mode);
        guard.state.mark_started(&ending);
        // A late member may have been signalled, too.
        world.start(101, "bob").uses(0, 1, 50).job("tree 99");
        assert_eq!(times_chosen(&mut guard, &mut world, 1), [0; 0]);
        reload_state(&mut guard);
        guard.state = guard.state.into_restarted();
        assert!(!guard.state.is_still_chosen(&ending));
        let again = choices_with_outcome(&mut guard, &mut world, 30);
        // As for any survivor, two minutes after it was chosen first.
        let (at, pids) = again.first().unwrap();
        assert!((110..=140).contains(at), "{mode:?} {again:?}");
        assert_eq!(pids, &[100, 101], "{mode:?}");
    }
}

/// When a job was ended for the only violation, and the end that did not succeed.
fn shown_end(state: &GuardState) -> (Option<Timestamp>, Option<UnfinishedEnd>) {
    let open = &state.violations()[0];
    (open.ended_at, open.unfinished_end)
}

#[test]
fn only_a_job_that_is_gone_is_shown_as_ended() {
    let (guard, world, ending) = chosen_job(GuardMode::Enforce);
    let chosen_at = ending.record.at;
    let under_way = (None, Some(UnfinishedEnd::UnderWay(chosen_at)));
    assert_eq!(shown_end(&guard.state), under_way);
    let survived = (None, Some(UnfinishedEnd::Survived(world.now)));
    for (ended, left, signals, expected) in [
        (1, 0, SignalStatus::Sent, (Some(chosen_at), None)),
        (1, 1, SignalStatus::Sent, survived),
        (0, 1, SignalStatus::Sent, survived),
        (0, 1, SignalStatus::Unsent, (None, None)),
        (0, 1, SignalStatus::Postponed, (None, None)),
    ] {
        let mut state = guard.state.clone();
        let came = EnforcementOutcome {
            left,
            ..outcome(&ending, ended)
        };
        let _ = state.record_outcome(&ending, (came, signals), world.now);
        assert_eq!(shown_end(&state), expected, "{ended} {left} {signals:?}");
    }
    // The daemon was killed before the outcome: with, and without signals.
    let mut started = guard.state.clone();
    started.mark_started(&ending);
    let expected = (None, Some(UnfinishedEnd::Survived(chosen_at)));
    assert_eq!(shown_end(&started.into_restarted()), expected);
    assert_eq!(shown_end(&guard.state.into_restarted()), (None, None));
}

#[test]
fn job_that_a_restart_saved_does_not_count_as_ended() {
    let (mut guard, mut world, ending) = chosen_job(GuardMode::Enforce);
    guard.state = guard.state.into_restarted();
    assert!(!guard.state.is_still_chosen(&ending));
    let mut rules = guard.compiled_rules.rules().clone();
    rules.enforcement.max_ended = 1;
    guard.compiled_rules = CompiledRules::new(rules);
    world.start(200, "alice").uses(0, 21, 50).job("tree 200");
    let records = guard.evaluate_samples(&mut world, 4);
    let victims = records.iter().filter_map(|it| it.step.victim());
    let victims: Vec<&str> = victims.map(|it| it.job.id.as_str()).collect();
    assert_eq!(victims, ["tree 200"]);
    assert_eq!(guard.state.tripped_at(), None);
}

#[test]
fn survivors_are_retried_with_growing_waits() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world) = surviving_job(mode);
        let again = choices_with_outcome(&mut guard, &mut world, 1_500);
        let mut waits: Vec<i64> = again.windows(2).map(|two| two[1].0 - two[0].0).collect();
        waits.insert(0, again[0].0);
        // One more sample confirms that the violation goes on.
        let expected = [120, 240, 480, 960, 1_920, 3_840, 3_840];
        let is_near = |(wait, least): (&i64, &i64)| (*least..=least + 20).contains(wait);
        assert!(
            waits.len() >= expected.len() && waits.iter().zip(&expected).all(is_near),
            "{mode:?} {waits:?}"
        );
        assert!(again.iter().all(|(_, pids)| pids == &[100]), "{again:?}");
        // The survivor counts once, so a process that cannot be ended does not trip the
        // breaker.
        assert_eq!(guard.state.tripped_at(), None);
    }
}

#[test]
fn survivor_does_not_protect_its_job() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world) = surviving_job(mode);
        assert_eq!(choices_with_outcome(&mut guard, &mut world, 4), []);
        world.start(101, "bob").uses(0, 12, 50).job("tree 99");
        world.start(102, "bob").uses(0, 10, 50).job("tree 99");
        let again = choices_with_outcome(&mut guard, &mut world, 5);
        let [(_, pids)] = &again[..] else {
            panic!("{mode:?} {again:?}")
        };
        // The survivor has its wait.
        assert_eq!(pids, &[101, 102], "{mode:?}");
    }
}

#[test]
fn survivor_counts_as_ended_for_limits() {
    let (mut guard, mut world) = surviving_job(GuardMode::Enforce);
    // The survivor holds 21 GiB of 20.
    world.start(200, "bob").uses(0, 19, 50).job("tree 200");
    let before = world.now;
    let again = choices_with_outcome(&mut guard, &mut world, 60);
    assert!(again.iter().all(|(_, pids)| pids == &[100]), "{again:?}");
    assert!(before < world.now && !again.is_empty());
    world.start(201, "bob").uses(0, 7, 50).job("tree 201");
    let again = choices_with_outcome(&mut guard, &mut world, 6);
    let pids: Vec<_> = again.iter().map(|(_, pids)| pids.clone()).collect();
    assert_eq!(pids, [[201]]);
}

#[test]
fn unsignalled_order_repeats_after_a_minute() {
    // The intent, or the start of the order, could not be recorded.
    let (mut guard, mut world, ending) = chosen_job(GuardMode::Enforce);
    guard.state.mark_started(&ending);
    let came = (outcome(&ending, 0), SignalStatus::Unsent);
    let _ = guard.state.record_outcome(&ending, came, world.now);
    assert_eq!(guard.state.violations()[0].ended_at, None);
    reload_state(&mut guard);
    let again = times_chosen(&mut guard, &mut world, 10);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!((60..=80).contains(&again[0]), "{again:?}");
}

#[test]
fn postponed_order_repeats_at_once() {
    let (mut guard, mut world, mut ending) = chosen_job(GuardMode::Enforce);
    for _ in 0..5 {
        let came = (outcome(&ending, 0), SignalStatus::Postponed);
        let _ = guard.state.record_outcome(&ending, came, world.now);
        reload_state(&mut guard);
        let mut samples = 0;
        ending = loop {
            samples += 1;
            assert!(samples <= 2, "it waits");
            let evaluation = evaluate(
                &guard.compiled_rules,
                &mut guard.state,
                &world.next_sample(SAMPLE_MS),
            );
            if let Some(ending) = guard.state.enforcements(&evaluation.records).pop() {
                break ending;
            }
        };
    }
    // The first wait after it is no longer either, if the order could not be started.
    let came = (outcome(&ending, 0), SignalStatus::Unsent);
    let _ = guard.state.record_outcome(&ending, came, world.now);
    let again = times_chosen(&mut guard, &mut world, 10);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!((60..=80).contains(&again[0]), "{again:?}");
}

#[test]
fn late_member_is_no_second_victim() {
    let (mut guard, mut world, ending) = chosen_job(GuardMode::Soft);
    guard.state.mark_started(&ending);
    // The launcher starts another worker immediately.
    world.processes.clear();
    world.start(101, "bob").uses(0, 21, 50).job("tree 99");
    assert_eq!(times_chosen(&mut guard, &mut world, 5), [0; 0]);
    // The outcome is reported. A process that exists now started later.
    let came = (outcome(&ending, 1), SignalStatus::Sent);
    let _ = guard.state.record_outcome(&ending, came, world.now);
    assert_eq!(times_chosen(&mut guard, &mut world, 5).len(), 1);
}

#[test]
fn pause_of_the_guard_repeats_no_end() {
    let (mut guard, mut world, ending) = chosen_job(GuardMode::Enforce);
    guard.state.mark_started(&ending);
    let on = guard.compiled_rules.rules().clone();
    guard.compiled_rules = CompiledRules::new(RuleSet {
        mode: GuardMode::Disabled,
        ..on.clone()
    });
    assert_eq!(guard.evaluate_samples(&mut world, 1), []);
    assert_eq!(guard.state.violations(), []);
    guard.compiled_rules = CompiledRules::new(on);
    assert_eq!(times_chosen(&mut guard, &mut world, 60), [0; 0]);
}

#[test]
fn changed_rule_cancels_the_order() {
    let (mut guard, _, ending) = chosen_job(GuardMode::Enforce);
    let rules = guard.compiled_rules.rules().clone();
    for (changed, expected) in [
        (
            RuleSet {
                defaults: memory_limit(40),
                ..rules.clone()
            },
            "its rule changed",
        ),
        (
            RuleSet {
                mode: GuardMode::DryRun,
                ..rules.clone()
            },
            "the guard was switched to dry run",
        ),
        (
            RuleSet {
                mode: GuardMode::Disabled,
                ..rules
            },
            "the guard was switched off",
        ),
    ] {
        let compiled_rules = CompiledRules::new(changed);
        let reason = ending.withdrawal_reason(&guard.compiled_rules, &compiled_rules);
        assert_eq!(reason, Some(expected));
    }
    // An edit for another person does not concern it.
    let mut other = guard.compiled_rules.rules().clone();
    other.users.push(UserPolicy {
        name: "alice".to_owned(),
        limits: memory_limit(40),
        ..UserPolicy::default()
    });
    let other = CompiledRules::new(other);
    assert!(!other.is_same(&guard.compiled_rules));
    assert_eq!(
        ending.withdrawal_reason(&guard.compiled_rules, &other),
        None
    );
    assert!(guard.state.is_still_chosen(&ending));
    guard.state = GuardState::default();
    assert!(!guard.state.is_still_chosen(&ending));
}

#[test]
fn outcome_keeps_rule_and_subject() {
    let (mut guard, world, ending) = chosen_job(GuardMode::Enforce);
    guard.state.mark_started(&ending);
    let came = outcome(&ending, 1);
    let record = guard
        .state
        .record_outcome(&ending, (came.clone(), SignalStatus::Sent), world.now);
    let expected = GuardRecord {
        at: world.now,
        step: GuardStep::Outcome(came),
        ..ending.record
    };
    assert_eq!(record, expected);
}
