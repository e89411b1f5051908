//! The outcome of ending a job, as the guard records it.

use super::super::enforcement::order::SignalStatus;
use super::super::enforcement::plan_check::{signals_sent, summarize_report};
use super::kill_plan_check::{evaluated_job, key, reaper, tree};
use super::*;
use gpukill_proto::kill::{
    KillReport, KillSignal, MemoryReclaim, Outcome as End, ProcessOutcome, Stage,
    UninterruptibleWait,
};
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;

#[test]
fn refused_targets_were_not_signalled() {
    let changed = || End::Changed("it is another".into());
    for (endings, expected) in [
        (vec![], SignalStatus::Unsent),
        (
            vec![changed(), End::Gone, End::Zombie(reaper())],
            SignalStatus::Unsent,
        ),
        (
            vec![
                End::Protected("it is Xorg".into()),
                End::Denied("root".into()),
                End::Unclear("unread".into()),
            ],
            SignalStatus::Unsent,
        ),
        (
            vec![changed(), End::Ended(KillSignal::Terminate, 10)],
            SignalStatus::Sent,
        ),
        (
            vec![changed(), End::Survived(KillSignal::Kill, 10)],
            SignalStatus::Sent,
        ),
        (
            vec![End::Uninterruptible(UninterruptibleWait::default())],
            SignalStatus::Sent,
        ),
        // It is not known whether the process was signalled.
        (vec![End::Failed("EIO".into())], SignalStatus::Sent),
    ] {
        let mut report = kill_report(endings, Vec::new());
        assert_eq!(signals_sent(&report), expected, "{report:?}");
        report.unrecorded = Some("the disk is full".into());
        assert_eq!(signals_sent(&report), SignalStatus::Unsent);
    }
}

fn kill_report(endings: Vec<End>, memory: Vec<MemoryReclaim>) -> KillReport {
    let outcome = |(pid, ending)| ProcessOutcome {
        key: key(pid),
        name: "python".into(),
        command: Reading::Unsupported,
        outcome: ending,
    };
    KillReport {
        version: 1,
        stage: Stage::Done,
        outcomes: (100..).zip(endings).map(outcome).collect(),
        memory,
        respawned: Vec::new(),
        unchecked: None,
        unrecorded: None,
    }
}

#[test]
fn counts_and_first_reason() {
    let ended = || End::Ended(KillSignal::Terminate, 10);
    let job = evaluated_job(&tree(100));
    let of = |endings| {
        let acted = summarize_report(job.clone(), &kill_report(endings, Vec::new()));
        (acted.ended, acted.left, acted.why)
    };
    let result = |ended: u32, left: u32, why: &str| (ended, left, Some(why.to_owned()));
    assert_eq!(of(vec![ended(), ended()]), (2, 0, None));
    assert_eq!(of(vec![End::Gone, End::Zombie(reaper())]), (0, 0, None));
    let survived = || End::Survived(KillSignal::Kill, 40_000);
    for (ending, why) in [
        (survived(), "process 101 survived SIGKILL"),
        (
            End::Protected("it is Xorg".into()),
            "process 101 is protected: it is Xorg",
        ),
        (
            End::Denied("root".into()),
            "process 101 cannot be ended: not permitted",
        ),
        (
            End::Changed("it is another".into()),
            "process 101: it is another",
        ),
        (End::Unclear("unread".into()), "process 101: unread"),
        (End::Failed("no pidfd".into()), "process 101: no pidfd"),
    ] {
        assert_eq!(of(vec![ended(), ending]), result(1, 1, why));
    }
    let both = of(vec![survived(), End::Failed("no pidfd".into()), ended()]);
    assert_eq!(both, result(1, 2, "process 100 survived SIGKILL"));
}

#[test]
fn unseen_processes_count_as_left() {
    let of = |endings| {
        let report = KillReport {
            unchecked: Some("there are more than 7 processes".into()),
            ..kill_report(endings, Vec::new())
        };
        let summary = summarize_report(evaluated_job(&tree(100)), &report);
        (summary.ended, summary.left, summary.why)
    };
    let ended = End::Ended(KillSignal::Kill, 10);
    let why = "processes of it may be left: there are more than 7 processes";
    assert_eq!(of(vec![ended.clone()]), (1, 1, Some(why.to_owned())));
    let failed = End::Failed("no pidfd".into());
    let why = "process 101: no pidfd";
    assert_eq!(of(vec![ended, failed]), (1, 1, Some(why.to_owned())));
}

#[test]
fn reports_unreleased_memory() {
    let memory = |after_ms| MemoryReclaim {
        device: DeviceId("GPU-0".into()),
        index: 3,
        held: Reading::Value(Bytes(GIB)),
        returned: Reading::Unsupported,
        after_ms,
        still_held_by: Vec::new(),
    };
    let why = |endings, memory| {
        summarize_report(evaluated_job(&tree(100)), &kill_report(endings, memory)).why
    };
    let ended = || vec![End::Ended(KillSignal::Kill, 10)];
    assert_eq!(why(ended(), vec![memory(Some(10))]), None);
    let reason = "not all memory of GPU 3 was released".to_owned();
    assert_eq!(
        why(ended(), vec![memory(Some(10)), memory(None)]),
        Some(reason)
    );
    let failed = vec![End::Failed("no pidfd".into())];
    let reason = "process 100: no pidfd".to_owned();
    assert_eq!(why(failed, vec![memory(None)]), Some(reason));
}

#[test]
fn snooze_of_another_rule_is_no_outcome() {
    let idle = ForbiddenBehaviour::Idle(IdleParams {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    let live = RuleSet {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour_rule("idle", idle)],
        ..dry_run_rules()
    };
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 2, 0).job("tree 100");
    let mut guard = TestGuard::new(live);
    guard.evaluate_samples(&mut world, 8);
    let owner = guard.state.violations()[0].readers[0].uid;
    let snoozer = crate::guard::enforcement::order::SnoozeRequest {
        requester: owner,
        owner,
        process: (100, 1_000),
        job: None,
    };
    let granted = guard
        .state
        .snooze(&guard.compiled_rules, &snoozer, world.now);
    assert_eq!(granted.map(|it| it.len()), Ok(1));
    let mut replay = crate::guard::replay::Replay::new(dry_run_rules(), world.now);
    for grant in guard.state.snoozes() {
        replay.add_snooze(grant.clone());
    }
    for _ in 0..3 {
        replay.add(&world.next_sample(SAMPLE_MS)).unwrap();
    }
    let replayed = replay.finish();
    assert_eq!((replayed.outcomes, replayed.records), (vec![], vec![]));
}
