//! Unobserved time, and clocks that are set.

use super::record_text::record_line;
use super::*;

fn warned_guard() -> (TestGuard, TestHost) {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: Limits {
            memory: gib(20),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.now = Timestamp(86_400_000);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    assert_eq!(guard.evaluate_samples(&mut world, 3).len(), 2);
    (guard, world)
}

/// The records of 40 samples, with the seconds since the beginning of the day, by a clock
/// that is set forward by `clock_step` seconds.
fn records_after(
    clock_step: i64,
    guard: &mut TestGuard,
    world: &mut TestHost,
) -> Vec<(i64, String)> {
    let actual = guard.evaluate_samples(world, 40);
    let actual = actual.iter().map(|record| {
        let at = record.at.0 / 1_000 - 86_400 - clock_step;
        let actual = record_line(record);
        let text = actual
            .split(": default: memory: ")
            .nth(1)
            .unwrap_or_default();
        let text = text.split(", ends").next().unwrap_or_default();
        (at, text.replace(" [soft]", ""))
    });
    actual.collect()
}

#[test]
fn unobserved_time_extends_the_grace() {
    // Forward, by days or for the time that the daemon was away, and back.
    for seconds in [0, 30 * 86_400, 3_600, 31, -3_600] {
        let (mut guard, mut world) = warned_guard();
        let text = serde_json::to_string(&guard.state).unwrap();
        guard.state = serde_json::from_str(&text).unwrap();
        world.now = world.now.plus_seconds(seconds);
        let expected = [
            (120, "warned again (2)".to_owned()),
            (220, "warned again (3)".to_owned()),
            (
                320,
                "ends tree 100 of bob (priority 5, 1 on GPUs, which works)".to_owned(),
            ),
            (
                380,
                "nobody is ended: tree 100 was ended and is still running".to_owned(),
            ),
        ];
        let actual = records_after(seconds, &mut guard, &mut world);
        assert_eq!(actual, expected, "{seconds}");
        let open = &guard.state.violations()[0];
        let deadline = Timestamp((86_400 + 320 + seconds) * 1_000);
        assert_eq!(open.deadline, Some(deadline), "{seconds}");
    }
}

#[test]
fn short_gap_counts_as_grace() {
    let (mut guard, mut world) = warned_guard();
    let before = guard.state.violations()[0].deadline;
    world.now = world.now.plus_seconds(30);
    guard.evaluate_samples(&mut world, 2);
    assert_eq!(guard.state.violations()[0].deadline, before);
}

#[test]
fn observed_part_counts_as_grace() {
    let (mut guard, mut world) = warned_guard();
    let before = guard.state.violations()[0].deadline;
    // A replay of an hour of which ten minutes are stored.
    let mut hour = world.next_sample(3_600_000);
    hour.observed_ms = 600_000;
    let _ = super::super::evaluate(&guard.compiled_rules, &mut guard.state, &hour);
    let after = before.map(|it| it.plus_seconds(3_000));
    assert_eq!(guard.state.violations()[0].deadline, after);
}

/// A job that is still there has the rest of its grace period. Another job does not inherit it.
#[test]
fn warnings_end_with_their_processes_in_a_long_gap() {
    let settled = i64::try_from(dry_run_rules().enforcement.settled_after.as_secs()).unwrap();
    for (gap, process, expected) in [
        (settled, Some(100), &[][..]),
        (settled, Some(101), &["over", "violated", "warned"]),
        (settled, None, &["over"]),
        (settled - 60, Some(101), &[]),
        (settled - 60, None, &[]),
    ] {
        let (mut guard, mut world) = warned_guard();
        world.now = world.now.plus_seconds(gap);
        if process != Some(100) {
            world.processes.clear();
        }
        if process == Some(101) {
            world.start(101, "bob").uses(0, 21, 50).job("tree 101");
        }
        let records = guard.evaluate_samples(&mut world, 3);
        let steps: Vec<&str> = records.iter().map(|it| it.step.name()).collect();
        assert_eq!(steps, expected, "{gap} {process:?}");
        let deadline = guard.state.violations().first().and_then(|it| it.deadline);
        let seconds = match (gap == settled, process) {
            (true, Some(101)) => Some(20 + 300 + 30 + gap),
            (true, None) => None,
            _ => Some(320 + gap),
        };
        let expected = seconds.map(|seconds| Timestamp((86_400 + seconds) * 1_000));
        assert_eq!(deadline, expected, "{gap} {process:?}");
    }
}

#[test]
fn two_gaps_extend_the_grace() {
    let (mut guard, mut world) = warned_guard();
    let mut actual = Vec::new();
    for (stops, samples) in [(1, 10), (2, 30)] {
        world.now = world.now.plus_seconds(3_600);
        let records = guard.evaluate_samples(&mut world, samples);
        actual.extend(records.iter().map(|record| {
            let at = record.at.0 / 1_000 - 86_400 - stops * 3_600;
            (at, record.step.name())
        }));
    }
    let expected = [
        (120, "warned"),
        (220, "warned"),
        (320, "ended"),
        (380, "exempt"),
    ];
    assert_eq!(actual, expected);
}
