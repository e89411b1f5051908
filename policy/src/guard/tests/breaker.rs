//! The circuit breaker: a guard that ends one job after another stops.

use super::super::acting::{Ending, Signals};
use super::super::judge;
use super::*;
use gpukill_proto::guard::{Acted, GuardRecord, GuardStep};

/// Nobody of these people may use a GPU, and so many jobs are ended in ten minutes.
fn forbidden(mode: GuardMode, max_ended: u32) -> Rules {
    let mut rules = Rules {
        mode,
        rehearsed: Rehearsed::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&PEOPLE),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    rules.enforcement.max_ended = max_ended;
    rules
}

const PEOPLE: [&str; 5] = ["alice", "bob", "carol", "dave", "eve"];

/// Each is another person's.
fn intrude(world: &mut World, pids: std::ops::Range<u32>) {
    for pid in pids {
        let job = format!("tree {pid}");
        let owner = PEOPLE[pid as usize % PEOPLE.len()];
        world.start(pid, owner).uses(0, 1, 50).job(&job);
    }
}

/// Seconds, and what was decided then, but for what is violated or over: so many ended,
/// and before how many it stops.
fn acts(records: &[GuardRecord]) -> Vec<(i64, String)> {
    let mut acts: Vec<(i64, String)> = Vec::new();
    for record in records {
        let at = record.at.0 / 1_000;
        match &record.step {
            GuardStep::Ended(victim) => acts.push((at, victim.job.id.clone())),
            GuardStep::Tripped { ended } => acts.push((at, format!("stops after {ended}"))),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Spared(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Acted(_) => {}
        }
    }
    acts
}

fn act(at: i64, what: &str) -> (i64, String) {
    (at, what.to_owned())
}

fn refused(ending: &Ending) -> (Acted, Signals) {
    let GuardStep::Ended(victim) = &ending.record.step else {
        panic!("{ending:?}");
    };
    let acted = Acted {
        job: victim.job.clone(),
        ended: 0,
        left: 1,
        why: Some("process 100 is protected: it is Xorg".into()),
    };
    (acted, Signals::Unsent)
}

#[test]
fn before_one_job_too_many_it_stops_and_says_so_once_until_it_is_to_go_on() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 2));
    let mut world = World::new(1);
    intrude(&mut world, 100..104);
    let expected = [
        act(10, "tree 100"),
        act(10, "tree 101"),
        act(10, "stops after 2"),
    ];
    assert_eq!(acts(&guard.watches(&mut world, 1)), expected);
    assert_eq!(guard.memory.tripped_at(), Some(Timestamp(10_000)));
    // As their signals do.
    world.processes.retain(|pid, _| *pid > 101);
    intrude(&mut world, 104..106);
    // However long that is.
    assert_eq!(acts(&guard.watches(&mut world, 200)), []);
    world.processes.remove(&104);
    world.processes.remove(&105);
    intrude(&mut world, 106..107);
    guard.memory.goes_on();
    assert_eq!(guard.memory.tripped_at(), None);
    let acts = acts(&guard.watches(&mut world, 2));
    let acts: Vec<_> = acts.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(acts.len(), 3, "{acts:?}");
    assert_eq!(acts[2], "stops after 2");
}

#[test]
fn a_dry_run_says_that_it_would_stop_and_tells_of_all_whom_it_would_end() {
    let mut guard = Guard::new(forbidden(GuardMode::DryRun, 2));
    let mut world = World::new(1);
    intrude(&mut world, 100..104);
    let expected = [
        act(10, "tree 100"),
        act(10, "tree 101"),
        act(10, "stops after 2"),
        act(10, "tree 102"),
        act(10, "tree 103"),
    ];
    assert_eq!(acts(&guard.watches(&mut world, 1)), expected);
    intrude(&mut world, 104..105);
    let expected = [act(20, "tree 104")];
    assert_eq!(acts(&guard.watches(&mut world, 100)), expected);
}

#[test]
fn whom_a_dry_run_counted_as_ended_counts_as_nobody_when_it_is_armed() {
    let mut guard = Guard::new(forbidden(GuardMode::DryRun, 2));
    let mut world = World::new(1);
    intrude(&mut world, 100..102);
    let expected = [act(10, "tree 100"), act(10, "tree 101")];
    assert_eq!(acts(&guard.watches(&mut world, 3)), expected);
    guard.book = Rulebook::of(forbidden(GuardMode::Enforce, 2));
    intrude(&mut world, 102..103);
    let expected = [
        act(40, "tree 100"),
        act(40, "tree 101"),
        act(40, "stops after 2"),
    ];
    assert_eq!(acts(&guard.watches(&mut world, 1)), expected);
}

#[test]
fn who_was_ended_ten_minutes_ago_counts_no_more() {
    for (after, expected) in [(59, act(600, "stops after 2")), (60, act(610, "tree 102"))] {
        let mut guard = Guard::new(forbidden(GuardMode::Enforce, 2));
        let mut world = World::new(1);
        intrude(&mut world, 100..102);
        guard.watches(&mut world, 1);
        world.processes.clear();
        guard.watches(&mut world, after - 1);
        intrude(&mut world, 102..103);
        assert_eq!(acts(&guard.watches(&mut world, 1)), [expected], "{after}");
    }
}

#[test]
fn time_in_which_nobody_looked_is_no_part_of_the_ten_minutes() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 1));
    let mut world = World::new(1);
    intrude(&mut world, 100..101);
    guard.watches(&mut world, 1);
    world.processes.clear();
    guard.watches(&mut world, 1);
    world.now = world.now.plus_seconds(3_600);
    guard.watches(&mut world, 1);
    intrude(&mut world, 101..102);
    let expected = [act(3_640, "stops after 1")];
    assert_eq!(acts(&guard.watches(&mut world, 1)), expected);
}

#[test]
fn whoever_could_not_be_ended_does_not_count() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 1));
    let mut world = World::new(1);
    intrude(&mut world, 100..101);
    let mut told = Vec::new();
    for _ in 0..30 {
        let judged = judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
        told.extend(acts(&judged.records));
        for ending in guard.memory.endings(&judged.records) {
            let record = guard.memory.acted(&ending, refused(&ending), world.now);
            assert_eq!(record.step.name(), "acted");
        }
    }
    // Ever later, as each try is told of.
    let expected: Vec<_> = [10, 70, 190].map(|at| act(at, "tree 100")).into();
    assert_eq!(told, expected);
    assert_eq!(guard.memory.tripped_at(), None);
}

#[test]
fn that_it_stopped_outlives_the_daemon_and_the_boot() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 1));
    let mut world = World::new(1);
    intrude(&mut world, 100..102);
    guard.watches(&mut world, 1);
    let text = serde_json::to_string(&guard.memory).unwrap();
    let read: Memory = serde_json::from_str(&text).unwrap();
    for memory in [read.clone(), read.after_a_boot()] {
        assert_eq!(memory.tripped_at(), Some(Timestamp(10_000)));
        guard.memory = memory;
        let mut world = world.clone();
        intrude(&mut world, 102..104);
        assert_eq!(acts(&guard.watches(&mut world, 10)), []);
    }
}

#[test]
fn one_person_never_stops_the_guard_and_is_enforced_alone() {
    for most in [1, 2, 5] {
        let mut guard = Guard::new(forbidden(GuardMode::Enforce, most));
        let mut world = World::new(1);
        for pid in 100..140 {
            world
                .start(pid, "bob")
                .uses(0, 1, 50)
                .job(&format!("tree {pid}"));
        }
        let mut ended = 0;
        for _ in 0..60 {
            let records = guard.looks(&mut world).records;
            let victims: Vec<u32> = records
                .iter()
                .filter_map(|it| Some(it.step.victim()?.runs[0].run.pid))
                .collect();
            // A few at a time, so that others' jobs are not kept waiting.
            assert!(victims.len() <= 4, "{most}: {victims:?}");
            for ending in guard.memory.endings(&records) {
                let (mut acted, _) = refused(&ending);
                (acted.ended, acted.left) = (1, 0);
                guard
                    .memory
                    .acted(&ending, (acted, Signals::Sent), world.now);
            }
            world.processes.retain(|pid, _| !victims.contains(pid));
            ended += victims.len();
            // However it is written down.
            let text = serde_json::to_string(&guard.memory).unwrap();
            guard.memory = serde_json::from_str(&text).unwrap();
        }
        assert_eq!((ended, guard.memory.tripped_at()), (40, None), "{most}");
    }
}

#[test]
fn a_job_for_which_there_is_no_place_is_ended_at_the_next_look_after_one_is_free() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 100));
    let mut world = World::new(1);
    for pid in 100..105 {
        world
            .start(pid, "bob")
            .uses(0, 1, 50)
            .job(&format!("tree {pid}"));
    }
    let look = |guard: &mut Guard, world: &mut World| {
        let records = guard.looks(world).records;
        guard.memory.endings(&records)
    };
    let mut first = look(&mut guard, &mut world);
    assert_eq!(first.len(), 4);
    first.iter().for_each(|ending| guard.memory.begins(ending));
    // However often it looks, nothing is recorded of the fifth.
    for _ in 0..3 {
        assert!(look(&mut guard, &mut world).is_empty());
    }
    // carol waits for none of them.
    world.start(200, "carol").uses(0, 1, 50).job("tree 200");
    let ending = look(&mut guard, &mut world);
    assert_eq!(ending.len(), 1);
    let pids: Vec<u32> = ending[0].processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [200]);
    let over = first.pop().expect("there are four");
    let (mut acted, _) = refused(&over);
    (acted.ended, acted.left) = (1, 0);
    let _ = guard.memory.acted(&over, (acted, Signals::Sent), world.now);
    assert_eq!(look(&mut guard, &mut world).len(), 1);
}

#[test]
fn a_guard_that_ends_the_jobs_of_many_people_stops_whoever_of_them_has_most() {
    let mut guard = Guard::new(forbidden(GuardMode::Enforce, 5));
    let mut world = World::new(1);
    for (pid, owner) in (100..).zip([
        "bob", "bob", "bob", "bob", "alice", "alice", "carol", "dave",
    ]) {
        world
            .start(pid, owner)
            .uses(0, 1, 50)
            .job(&format!("tree {pid}"));
    }
    // alice twice, bob four times of which two count, carol once: dave's would be one too many.
    let acts = acts(&guard.watches(&mut world, 1));
    let ended = acts.iter().filter(|(_, what)| what.starts_with("tree"));
    assert_eq!(ended.count(), 7, "{acts:?}");
    assert_eq!(acts.last(), Some(&act(10, "stops after 5")));
    assert!(guard.memory.tripped_at().is_some());
}

/// What happens in one bucket: so many intruders come, all leave, the daemon is started
/// anew, or nobody looks for a while.
type Happening = (u8, bool, bool, u8);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn no_more_people_are_met_in_any_ten_minutes_than_may_be(
        history in proptest::collection::vec(
            proptest::prelude::any::<Happening>(),
            1..120,
        ),
        most in 1..4_u32,
    ) {
        let mut guard = Guard::new(forbidden(GuardMode::Enforce, most));
        let mut world = World::new(1);
        let mut pids = 100..;
        let mut ended: Vec<(Timestamp, u32)> = Vec::new();
        for (come, leave, anew, away) in history {
            if leave {
                world.processes.clear();
            }
            // Mostly nobody comes.
            if come % 16 == 0 {
                let pid = pids.next().expect("there are enough");
                intrude(&mut world, pid..pid + 1);
            }
            if anew {
                let text = serde_json::to_string(&guard.memory).unwrap();
                guard.memory = serde_json::from_str(&text).unwrap();
            }
            if away % 16 == 0 {
                world.now = world.now.plus_seconds(i64::from(away));
            }
            for record in guard.looks(&mut world).records {
                if let Some(victim) = record.step.victim() {
                    let uid = victim.job.owner.uid.expect("each is a user");
                    ended.push((record.at, uid));
                    let of_late = ended.iter().filter(|(at, _)| {
                        record.at.since(*at) < Duration::from_secs(600)
                    });
                    let people: std::collections::BTreeSet<u32> =
                        of_late.map(|(_, uid)| *uid).collect();
                    proptest::prop_assert!(people.len() <= most as usize);
                }
            }
        }
    }
}
