//! What came of ending a job, as the guard tells it.

use super::super::acting::Signals;
use super::super::sentence::{acted, signals};
use super::sentences::{judged, key, reaper, tree};
use super::*;
use gpukill_proto::kill::{
    Ending as End, KillOutcome, KillReport, KillSignal, MemoryReturn, Stage, Stuck,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::DeviceId;

#[test]
fn nothing_was_signalled_where_each_was_refused_at_the_second_look() {
    let changed = || End::Changed("it is another".into());
    for (endings, expected) in [
        (vec![], Signals::Unsent),
        (
            vec![changed(), End::Gone, End::Zombie(reaper())],
            Signals::Unsent,
        ),
        (
            vec![
                End::Protected("it is Xorg".into()),
                End::Denied("root".into()),
                End::Unclear("unread".into()),
            ],
            Signals::Unsent,
        ),
        (
            vec![changed(), End::Ended(KillSignal::Terminate, 10)],
            Signals::Sent,
        ),
        (
            vec![changed(), End::Survived(KillSignal::Kill, 10)],
            Signals::Sent,
        ),
        (vec![End::Uninterruptible(Stuck::default())], Signals::Sent),
        // Whether it had one, nobody knows.
        (vec![End::Failed("EIO".into())], Signals::Sent),
    ] {
        let mut report = report(endings, Vec::new());
        assert_eq!(signals(&report), expected, "{report:?}");
        report.unrecorded = Some("the disk is full".into());
        assert_eq!(signals(&report), Signals::Unsent);
    }
}

fn report(endings: Vec<End>, memory: Vec<MemoryReturn>) -> KillReport {
    let outcome = |(pid, ending)| KillOutcome {
        key: key(pid),
        name: "python".into(),
        command: Reading::Unsupported,
        ending,
    };
    KillReport {
        version: 1,
        stage: Stage::Done,
        outcomes: (100..).zip(endings).map(outcome).collect(),
        memory,
        respawned: Vec::new(),
        unrecorded: None,
    }
}

#[test]
fn what_came_of_it_is_told_in_numbers_and_the_first_reason() {
    let ended = || End::Ended(KillSignal::Terminate, 10);
    let job = judged(&tree(100));
    let of = |endings| {
        let acted = acted(job.clone(), &report(endings, Vec::new()));
        (acted.ended, acted.left, acted.why)
    };
    let said = |ended: u32, left: u32, why: &str| (ended, left, Some(why.to_owned()));
    assert_eq!(of(vec![ended(), ended()]), (2, 0, None));
    assert_eq!(of(vec![End::Gone, End::Zombie(reaper())]), (0, 0, None));
    let survived = || End::Survived(KillSignal::Kill, 40_000);
    for (ending, why) in [
        (survived(), "process 101 goes on after SIGKILL"),
        (
            End::Protected("it is Xorg".into()),
            "process 101 is protected: it is Xorg",
        ),
        (
            End::Denied("root".into()),
            "process 101 is nobody's to end here",
        ),
        (
            End::Changed("it is another".into()),
            "process 101: it is another",
        ),
        (End::Unclear("unread".into()), "process 101: unread"),
        (End::Failed("no pidfd".into()), "process 101: no pidfd"),
    ] {
        assert_eq!(of(vec![ended(), ending]), said(1, 1, why));
    }
    let both = of(vec![survived(), End::Failed("no pidfd".into()), ended()]);
    assert_eq!(both, said(1, 2, "process 100 goes on after SIGKILL"));
}

#[test]
fn memory_that_did_not_come_back_is_told_where_nothing_worse_is() {
    let memory = |after_ms| MemoryReturn {
        device: DeviceId("GPU-0".into()),
        index: 3,
        held: Reading::Value(Bytes(GIB)),
        returned: Reading::Unsupported,
        after_ms,
        still_held_by: Vec::new(),
    };
    let why = |endings, memory| acted(judged(&tree(100)), &report(endings, memory)).why;
    let ended = || vec![End::Ended(KillSignal::Kill, 10)];
    assert_eq!(why(ended(), vec![memory(Some(10))]), None);
    let said = "not all memory of GPU 3 came back".to_owned();
    assert_eq!(
        why(ended(), vec![memory(Some(10)), memory(None)]),
        Some(said)
    );
    let failed = vec![End::Failed("no pidfd".into())];
    let said = "process 100: no pidfd".to_owned();
    assert_eq!(why(failed, vec![memory(None)]), Some(said));
}

#[test]
fn a_snooze_of_a_rule_that_is_not_tried_is_no_outcome() {
    let idle = Conduct::Idle {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    };
    let live = Rules {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour("idle", idle)],
        ..rules()
    };
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 2, 0).job("tree 100");
    let mut guard = Guard::new(live);
    guard.watches(&mut world, 8);
    let owner = guard.memory.violations()[0].readers[0].uid;
    let snoozer = crate::guard::Snoozer {
        by: owner,
        owner,
        process: (100, 1_000),
        job: None,
    };
    let granted = guard.memory.snooze(&guard.book, snoozer, world.now);
    assert_eq!(granted.map(|it| it.len()), Ok(1));
    let mut replay = crate::guard::replay::Replay::new(rules(), world.now);
    for grant in guard.memory.snoozes() {
        replay.snoozed(grant.clone());
    }
    for _ in 0..3 {
        replay.add(&world.bucket(TEN_SECONDS)).unwrap();
    }
    let replayed = replay.finish();
    assert_eq!((replayed.outcomes, replayed.records), (vec![], vec![]));
}
