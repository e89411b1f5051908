//! What becomes of a job that was chosen: that no job is ended twice, wherever the daemon
//! is interrupted.

use super::super::acting::{Ending, Signals};
use super::super::judge;
use super::*;
use gpukill_proto::guard::{Acted, GuardRecord, GuardStep};

/// bob holds too much, and his job was chosen in the last look.
fn chosen(mode: GuardMode) -> (Guard, World, Ending) {
    let mut rules = Rules {
        mode,
        defaults: memory(20),
        ..rules()
    };
    rules.enforcement.cooldown = Duration::ZERO;
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.start(100, "bob").uses(0, 21, 50).job("tree 99");
    loop {
        let judged = judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
        if let Some(ending) = guard.memory.endings(&judged.records).pop() {
            return (guard, world, ending);
        }
        assert!(world.now < Timestamp(600_000), "nobody is chosen");
    }
}

fn came(ending: &Ending, ended: u32) -> Acted {
    let GuardStep::Ended(victim) = &ending.record.step else {
        panic!("{ending:?}");
    };
    Acted {
        job: victim.job.clone(),
        ended,
        left: 1,
        why: Some("process 100 goes on after SIGKILL".into()),
    }
}

/// How often somebody is chosen in so many looks by a guard that begins nothing.
fn chosen_again(guard: &mut Guard, world: &mut World, looks: usize) -> Vec<i64> {
    let mut chosen = Vec::new();
    let began = world.now.0;
    for _ in 0..looks {
        let judged = judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
        let endings = guard.memory.endings(&judged.records);
        chosen.extend(endings.iter().map(|it| (it.record.at.0 - began) / 1_000));
    }
    chosen
}

fn reads_again(guard: &mut Guard) {
    let text = serde_json::to_string(&guard.memory).unwrap();
    guard.memory = serde_json::from_str(&text).unwrap();
}

#[test]
fn a_job_that_was_chosen_and_never_begun_is_chosen_again_after_a_minute() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world, _) = chosen(mode);
        // The daemon was killed before it sent anything.
        reads_again(&mut guard);
        let again = chosen_again(&mut guard, &mut world, 10);
        assert_eq!(again.len(), 1, "{mode:?} {again:?}");
        assert!((60..=80).contains(&again[0]), "{mode:?} {again:?}");
    }
}

/// Begins what is chosen, and settles it with this outcome right away. When jobs are chosen
/// in so many looks, and which of their processes.
fn ended_in_vain(guard: &mut Guard, world: &mut World, looks: usize) -> Vec<(i64, Vec<u32>)> {
    let mut chosen = Vec::new();
    let from = world.now.0;
    for _ in 0..looks {
        let judged = judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
        for ending in guard.memory.endings(&judged.records) {
            guard.memory.begins(&ending);
            let came = (came(&ending, 0), Signals::Sent);
            let _ = guard.memory.acted(&ending, came, world.now);
            reads_again(guard);
            let pids = ending.processes.iter().map(|(pid, _)| *pid).collect();
            chosen.push(((ending.record.at.0 - from) / 1_000, pids));
        }
    }
    chosen
}

/// As [`chosen`], and the job goes on after its signals.
fn survived(mode: GuardMode) -> (Guard, World) {
    let (mut guard, world, ending) = chosen(mode);
    assert!(guard.memory.may_begin(&guard.book, &ending));
    guard.memory.begins(&ending);
    let came = (came(&ending, 0), Signals::Sent);
    let record = guard.memory.acted(&ending, came, world.now);
    assert_eq!(record.step.name(), "acted");
    reads_again(&mut guard);
    (guard, world)
}

#[test]
fn a_job_whose_signals_began_is_not_chosen_again_soon_wherever_the_daemon_was_killed() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world, ending) = chosen(mode);
        assert!(guard.memory.may_begin(&guard.book, &ending));
        guard.memory.begins(&ending);
        reads_again(&mut guard);
        assert!(!guard.memory.may_begin(&guard.book, &ending), "{mode:?}");
        let again = chosen_again(&mut guard, &mut world, 359);
        assert_eq!(again, [0; 0], "{mode:?}");
        // What came of it is never told: it is not left alone for good.
        let again = ended_in_vain(&mut guard, &mut world, 3);
        assert_eq!(again.len(), 1, "{mode:?} {again:?}");
    }
}

#[test]
fn processes_that_survive_their_signals_are_tried_again_after_ever_longer_waits() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world) = survived(mode);
        let again = ended_in_vain(&mut guard, &mut world, 1_500);
        let mut waits: Vec<i64> = again.windows(2).map(|two| two[1].0 - two[0].0).collect();
        waits.insert(0, again[0].0);
        // One look more tells that it still holds.
        let expected = [120, 240, 480, 960, 1_920, 3_840, 3_840];
        let is_near = |(wait, least): (&i64, &i64)| (*least..=least + 20).contains(wait);
        assert!(
            waits.len() >= expected.len() && waits.iter().zip(&expected).all(is_near),
            "{mode:?} {waits:?}"
        );
        assert!(again.iter().all(|(_, pids)| pids == &[100]), "{again:?}");
        // It counted once, so that a process that nobody can end stops no guard.
        assert_eq!(guard.memory.tripped_at(), None);
    }
}

#[test]
fn a_survivor_protects_no_other_process_of_its_job() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let (mut guard, mut world) = survived(mode);
        assert_eq!(ended_in_vain(&mut guard, &mut world, 4), []);
        world.start(101, "bob").uses(0, 12, 50).job("tree 99");
        world.start(102, "bob").uses(0, 10, 50).job("tree 99");
        let again = ended_in_vain(&mut guard, &mut world, 5);
        let [(_, pids)] = &again[..] else {
            panic!("{mode:?} {again:?}")
        };
        // The survivor has its wait.
        assert_eq!(pids, &[101, 102], "{mode:?}");
    }
}

#[test]
fn others_are_ended_for_what_is_too_much_without_a_survivor() {
    let (mut guard, mut world) = survived(GuardMode::Enforce);
    // The survivor holds 21 GiB of 20.
    world.start(200, "bob").uses(0, 19, 50).job("tree 200");
    let before = world.now;
    let again = ended_in_vain(&mut guard, &mut world, 60);
    assert!(again.iter().all(|(_, pids)| pids == &[100]), "{again:?}");
    assert!(before < world.now && !again.is_empty());
    world.start(201, "bob").uses(0, 7, 50).job("tree 201");
    let again = ended_in_vain(&mut guard, &mut world, 6);
    let pids: Vec<_> = again.iter().map(|(_, pids)| pids.clone()).collect();
    assert_eq!(pids, [[201]]);
}

#[test]
fn a_job_that_had_no_signal_after_all_is_chosen_again_after_a_minute() {
    // Its intent could not be recorded, or that it begins could not be written down.
    let (mut guard, mut world, ending) = chosen(GuardMode::Enforce);
    guard.memory.begins(&ending);
    let came = (came(&ending, 0), Signals::Unsent);
    let _ = guard.memory.acted(&ending, came, world.now);
    assert_eq!(guard.memory.violations()[0].ended_at, None);
    reads_again(&mut guard);
    let again = chosen_again(&mut guard, &mut world, 10);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!((60..=80).contains(&again[0]), "{again:?}");
}

#[test]
fn a_job_that_waits_for_others_is_chosen_again_at_once_and_waits_no_longer_each_time() {
    let (mut guard, mut world, mut ending) = chosen(GuardMode::Enforce);
    for _ in 0..5 {
        let came = (came(&ending, 0), Signals::Postponed);
        let _ = guard.memory.acted(&ending, came, world.now);
        reads_again(&mut guard);
        let mut looks = 0;
        ending = loop {
            looks += 1;
            assert!(looks <= 2, "it waits");
            let judged = judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
            if let Some(ending) = guard.memory.endings(&judged.records).pop() {
                break ending;
            }
        };
    }
    // Nor is the first wait after it any longer, where it could not be begun.
    let came = (came(&ending, 0), Signals::Unsent);
    let _ = guard.memory.acted(&ending, came, world.now);
    let again = chosen_again(&mut guard, &mut world, 10);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!((60..=80).contains(&again[0]), "{again:?}");
}

#[test]
fn whoever_is_born_to_a_job_while_it_has_signals_is_no_second_victim() {
    let (mut guard, mut world, ending) = chosen(GuardMode::Soft);
    guard.memory.begins(&ending);
    // Its launcher starts another worker, as quick as that.
    world.processes.clear();
    world.start(101, "bob").uses(0, 21, 50).job("tree 99");
    assert_eq!(chosen_again(&mut guard, &mut world, 5), [0; 0]);
    // What came of it is known: whoever is there now, began after it.
    let came = (came(&ending, 1), Signals::Sent);
    let _ = guard.memory.acted(&ending, came, world.now);
    assert_eq!(chosen_again(&mut guard, &mut world, 5).len(), 1);
}

#[test]
fn nobody_is_ended_a_second_time_for_the_guard_was_off_meanwhile() {
    let (mut guard, mut world, ending) = chosen(GuardMode::Enforce);
    guard.memory.begins(&ending);
    let on = guard.book.rules().clone();
    guard.book = Rulebook::of(Rules {
        mode: GuardMode::Disabled,
        ..on.clone()
    });
    assert_eq!(guard.watches(&mut world, 1), []);
    assert_eq!(guard.memory.violations(), []);
    guard.book = Rulebook::of(on);
    assert_eq!(chosen_again(&mut guard, &mut world, 60), [0; 0]);
}

#[test]
fn nobody_is_ended_for_a_rule_that_has_changed_since() {
    let (mut guard, _, ending) = chosen(GuardMode::Enforce);
    let rules = guard.book.rules().clone();
    for changed in [
        Rules {
            defaults: memory(40),
            ..rules.clone()
        },
        Rules {
            mode: GuardMode::DryRun,
            ..rules.clone()
        },
        Rules {
            mode: GuardMode::Disabled,
            ..rules
        },
    ] {
        let book = Rulebook::of(changed);
        assert!(!guard.memory.may_begin(&book, &ending));
    }
    assert!(guard.memory.may_begin(&guard.book, &ending));
    guard.memory = Memory::default();
    assert!(!guard.memory.may_begin(&guard.book, &ending));
}

#[test]
fn a_record_of_what_came_of_it_is_of_the_same_rule_and_subject() {
    let (mut guard, world, ending) = chosen(GuardMode::Enforce);
    guard.memory.begins(&ending);
    let came = came(&ending, 1);
    let record = guard
        .memory
        .acted(&ending, (came.clone(), Signals::Sent), world.now);
    let expected = GuardRecord {
        at: world.now,
        step: GuardStep::Acted(came),
        ..ending.record
    };
    assert_eq!(record, expected);
}
