//! Of jobs that cost as much, which goes.

use super::*;

#[test]
fn of_two_that_suffice_the_one_that_has_done_nothing_goes() {
    use Told::{Known, Unsupported};
    // What each of two does for five minutes and at last, before both hold too much.
    let victims = |limit, doing: [(Told, Told); 2]| {
        let mut world = jobs(&[("old", 1), ("new", 1)]);
        let mut guard = Guard::new(enforcing(limit));
        for (buckets, hold) in [(30, 1), (4, 1), (2, 15)] {
            for (pid, (first, last)) in (100..).zip(doing) {
                let does = if buckets == 30 { first } else { last };
                world.process(pid).uses(0, hold, 0).utilization(0, does);
            }
            let ended = guard.watches(&mut world, buckets);
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
        // A pause is not it, nor is what is not known.
        ([(Known(99), Known(0)), works], "new"),
        ([(Unsupported, Unsupported), works], "new"),
        ([(Known(0), Unsupported), works], "new"),
    ] {
        // One is enough, and none is but both free as much.
        for limit in [20, 10] {
            let told = victims(limit, doing);
            assert_eq!(told.as_deref(), Some(expected), "{limit} {doing:?}");
        }
    }
}
