//! A hundred hostile connections at once, for seconds, while honest people look
//! at their GPUs.

use super::attacks::beside;
use super::{assert_given_back, holds, holds_at_rest, polls, stage_with};
use gpukill_tests::harness::{acting_as, can_be_several_people, user};
use std::time::{Duration, Instant};

/// A plain user who attacks nobody.
const HONEST_USER: u32 = user(100);

const LOOKS: usize = 25;

/// What the attacks may make the daemon hold at once, and leave behind.
const HELD: u64 = 64 << 20;
const LEFT_BEHIND: u64 = 16 << 20;

/// The daemon's connections, and one that is being refused.
const CONNECTIONS: usize = 64 + 1;

const INTERVAL: Duration = Duration::from_millis(500);

#[test]
fn a_hundred_hostile_connections_at_once_keep_nobody_else_out() {
    let others = can_be_several_people();
    let stage = stage_with(400);
    stage.open_to_all();
    let mut command = stage.daemon();
    let mut daemon = stage.start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "500ms"));
    let (before, resident) = (holds_at_rest(&stage, &daemon), daemon.anonymous());
    let (first_poll, late) = polls(&stage);
    let began = Instant::now();
    let (most, let_in) = beside(&stage.socket(), || {
        let looks = (0..LOOKS).map(|look| {
            let list = || stage.ctl(&["list", "-o", "json", "--request-timeout", "30"]);
            let ran = match others && look % 2 == 1 {
                true => acting_as(HONEST_USER, &[], list),
                false => list(),
            };
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "look {look}");
            (holds(&daemon).descriptors, daemon.anonymous())
        });
        looks.reduce(|most, now| (most.0.max(now.0), most.1.max(now.1)))
    });
    let due = began.elapsed().as_millis() / INTERVAL.as_millis();
    let (last_poll, still_late) = polls(&stage);
    assert!(let_in > 5, "nobody attacked");
    assert_eq!(daemon.ended(), None, "{}", daemon.log());
    assert!(!daemon.log().contains("panic"), "{}", daemon.log());
    // Half of them: the machine is busy with the attackers themselves.
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
    assert!(held < HELD, "held {held} bytes");
    assert_given_back(&daemon, before);
    let grown = daemon.anonymous().saturating_sub(resident);
    assert!(grown < LEFT_BEHIND, "grew by {grown} bytes");
    daemon.stop();
}
