//! A hundred hostile connections at once, for seconds, while honest users list their GPUs.

use super::attacks::run_under_attack;
use super::{
    assert_resources_released, box_with_processes, measure_resources, measure_resources_at_rest,
    poll_counts,
};
use gpukill_tests::harness::{can_use_several_persons, run_as_user, test_uid};
use std::time::{Duration, Instant};

/// A plain user who attacks no one.
const HONEST_UID: u32 = test_uid(100);

const LIST_CALLS: usize = 25;

/// Limits for the memory that the attacks make the daemon use at once, and for the growth
/// afterwards.
const MAX_MEMORY_UNDER_ATTACK: u64 = 64 << 20;
const MAX_GROWTH: u64 = 16 << 20;

/// The connections of the daemon, and one that is being refused.
const CONNECTIONS: usize = 64 + 1;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[test]
fn hostile_connections_do_not_block_honest_users() {
    let others = can_use_several_persons();
    let test_box = box_with_processes(400);
    test_box.make_world_accessible();
    let mut command = test_box.daemon_command();
    let mut daemon = test_box.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "500ms"));
    let (before, resident) = (
        measure_resources_at_rest(&test_box, &daemon),
        daemon.anonymous_bytes(),
    );
    let (first_poll, late) = poll_counts(&test_box);
    let started_at = Instant::now();
    let (most, let_in) = run_under_attack(&test_box.socket(), || {
        let calls = (0..LIST_CALLS).map(|call| {
            let list = || test_box.ctl(&["list", "-o", "json", "--request-timeout", "30"]);
            let ran = match others && call % 2 == 1 {
                true => run_as_user(HONEST_UID, &[], list),
                false => list(),
            };
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "call {call}");
            (
                measure_resources(&daemon).descriptors,
                daemon.anonymous_bytes(),
            )
        });
        calls.reduce(|most, now| (most.0.max(now.0), most.1.max(now.1)))
    });
    let due = started_at.elapsed().as_millis() / POLL_INTERVAL.as_millis();
    let (last_poll, still_late) = poll_counts(&test_box);
    assert!(let_in > 5, "no attacker was admitted");
    assert_eq!(daemon.exit_status(), None, "{}", daemon.log());
    assert!(!daemon.log().contains("panic"), "{}", daemon.log());
    // Half of the polls are enough: the attackers themselves keep the machine busy.
    let polled = last_poll - first_poll;
    assert!(u128::from(polled) >= due / 2, "{polled} polls of {due}");
    assert!(
        still_late - late <= polled / 2,
        "{} late",
        still_late - late
    );
    let (descriptors, most_resident) = most.unwrap();
    let allowed = before.descriptors + CONNECTIONS;
    assert!(descriptors <= allowed, "{descriptors} descriptors");
    let held = most_resident.saturating_sub(resident);
    assert!(held < MAX_MEMORY_UNDER_ATTACK, "held {held} bytes");
    assert_resources_released(&daemon, before);
    daemon.assert_memory_released(resident, MAX_GROWTH);
    daemon.stop();
}
