//! What is remembered is bounded, and goes with what it is about.

use super::super::memory::window::{Load, SLOTS, Window};
use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3_600_000;

proptest! {
    #[test]
    fn a_window_has_at_most_so_many_parts_and_loses_nothing_that_is_in_it(
        lengths in proptest::collection::vec(1..200_000_u64, 1..200),
        window_ms in 1..HOUR,
        start in 0..10 * HOUR,
    ) {
        let mut now = i64::try_from(start).unwrap();
        let mut window = Window::from(Timestamp(now));
        let mut all = Vec::new();
        for length in lengths {
            let from = now;
            now += i64::try_from(length).unwrap();
            let load = Load { seen_ms: length, total: length, is_unknown: false };
            window.add(window_ms, Timestamp(from), Timestamp(now), load);
            all.push((now, length));
            prop_assert!(window.slots().count() <= SLOTS);
        }
        let begin = now - i64::try_from(window_ms).unwrap();
        let within: u64 = all.iter().filter(|(until, _)| *until > begin).map(|(_, ms)| ms).sum();
        let kept: u64 = window.slots().map(|slot| slot.part.seen_ms).sum();
        // A part that lies half outside is kept whole.
        let each = window_ms.div_ceil(SLOTS as u64 - 1);
        let longest = all.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
        prop_assert!(within <= kept && kept <= within + each + longest, "{within} {kept}");
    }
}

#[test]
fn who_is_gone_is_forgotten() {
    let waste = Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    };
    let grows = Conduct::Growth {
        by: Bytes(GIB),
        within: minutes(60),
    };
    let runs = Conduct::Runaway {
        above: Percent(0),
        limit: minutes(60),
        orphaned: false,
    };
    let rules = Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: Limits {
            memory: gib(1),
            utilization: Some(Percent(1)),
            ..Limits::default()
        },
        behaviours: vec![
            behaviour("waste", waste),
            behaviour("growth", grows),
            behaviour("runaway", runs),
        ],
        ..rules()
    };
    let written = |guard: &Guard| serde_json::to_string(&guard.memory).unwrap();
    let mut guard = Guard::new(rules);
    let mut world = World::new(2);
    for pid in 100..120 {
        world.start(pid, "bob").uses(0, 2, 50);
    }
    guard.watches(&mut world, 10);
    assert!(written(&guard).len() > 2_000);
    world.processes.clear();
    guard.watches(&mut world, 1);
    let mut expected = Memory {
        until: Some(world.now),
        by: (5, 300_000),
        ..Memory::default()
    };
    expected.sight.look(&world.bucket(0), true);
    expected.sight.look(&world.bucket(TEN_SECONDS), true);
    assert_eq!(written(&guard), serde_json::to_string(&expected).unwrap());
}
