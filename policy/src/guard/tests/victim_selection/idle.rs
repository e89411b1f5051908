//! Victim selection among jobs of equal cost.

use super::*;

#[test]
fn idle_job_goes_first() {
    use TestReading::{Known, Unsupported};
    // What each of two jobs does for five minutes and at the end, before both hold too
    // much.
    let victims = |limit, doing: [(TestReading, TestReading); 2]| {
        let mut world = host_with_jobs(&[("old", 1), ("new", 1)]);
        let mut guard = TestGuard::new(enforce_memory_rules(limit));
        for (samples, hold) in [(30, 1), (4, 1), (2, 15)] {
            for (pid, (first, last)) in (100..).zip(doing) {
                let does = if samples == 30 { first } else { last };
                world.process(pid).uses(0, hold, 0).utilization(0, does);
            }
            let ended = guard.evaluate_samples(&mut world, samples);
            let ended = ended.iter().find_map(|it| {
                let victim = it.step.victim()?;
                Some(victim.job.id.clone())
            });
            if ended.is_some() {
                return ended;
            }
        }
        None
    };
    let (idle, works) = ((Known(0), Known(0)), (Known(99), Known(99)));
    for (doing, expected) in [
        ([idle, works], "old"),
        ([works, idle], "new"),
        ([works, works], "new"),
        ([idle, idle], "new"),
        // A pause is not idleness, and neither is an unknown value.
        ([(Known(99), Known(0)), works], "new"),
        ([(Unsupported, Unsupported), works], "new"),
        ([(Known(0), Unsupported), works], "new"),
    ] {
        // One job suffices; or none suffices and both free the same amount.
        for limit in [20, 10] {
            let actual = victims(limit, doing);
            assert_eq!(actual.as_deref(), Some(expected), "{limit} {doing:?}");
        }
    }
}
