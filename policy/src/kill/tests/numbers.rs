//! The second look at a process that runs as another user than when it was planned.

use super::super::again::{Again, objection};
use super::super::*;
use super::again::{scene, target};
use super::scene::*;
use gpukill_proto::kill::{Ending, KillTarget};
use proptest::prelude::*;

/// What is objected to this process, for the guard or for whoever may end everybody's.
fn objected_to_change(
    before: &Candidate,
    now: &Candidate,
    person: Option<u32>,
    caller: &Caller,
) -> Option<Ending> {
    let mut scene = scene();
    let target = KillTarget {
        uid: before.uids.clone().map(|uids| uids.real),
        ..target(&scene, 300)
    };
    *scene.at(300) = before.clone();
    let again = Again {
        caller,
        roles: &scene.roles,
        operators: "gpukill-operators",
        crowd: &scene.crowd,
        protection: &scene.protection,
        before: Some(before),
        person,
        uses_gpu: true,
        used_gpu_itself: false,
        had_signal: false,
    };
    objection(&target, now, &again)
}

/// The process that is planned, with these users, in a namespace of this maker.
fn running_as(real: u32, saved: u32, maker: Option<u32>) -> Candidate {
    let mut process = scene().crowd[&300].clone();
    process.uids = Reading::Value(Uids {
        real,
        effective: real,
        saved,
    });
    process.kin.uid = Some(real);
    process.kin.maker = maker;
    process.namespace_owner = Reading::Value(maker);
    process
}

#[test]
fn a_number_that_its_owner_chooses_keeps_no_signal_back() {
    let in_lab = |mut process: Candidate| {
        process.container = Reading::Value(Some(container('a', "lab", None)));
        process
    };
    let in_own = |mut process: Candidate| {
        process.container = Reading::Value(Some(container('c', "mine", Some(ALICE))));
        process
    };
    let own = Some(ALICE);
    // Before, now, and whether root and operators, the guard, and alice end it.
    let cases = [
        // Numbers within a namespace of her own, also such as the system's.
        (
            running_as(60_006, 60_006, own),
            running_as(60_007, 60_007, own),
            [true, true, true],
        ),
        (
            running_as(60_006, 60_006, own),
            running_as(77, 77, own),
            [true, true, true],
        ),
        (
            running_as(ALICE, ALICE, None),
            running_as(60_007, 60_007, own),
            [true, true, true],
        ),
        // Within one that somebody made in a namespace of root's.
        (
            running_as(60_006, 60_006, Some(301_000)),
            running_as(60_007, 60_007, Some(301_000)),
            [true, true, false],
        ),
        // A program that takes turns with its users.
        (
            running_as(ALICE, 60_020, None),
            running_as(60_020, ALICE, None),
            [true, true, false],
        ),
        // What is somebody else's by now is not what was judged.
        (
            running_as(ALICE, ALICE, None),
            running_as(BOB, BOB, None),
            [true, false, false],
        ),
        (
            running_as(ALICE, ALICE, None),
            running_as(BOB, BOB, Some(BOB)),
            [true, false, false],
        ),
        // Or the system's.
        (
            running_as(ALICE, ALICE, None),
            running_as(0, ALICE, None),
            [false; 3],
        ),
        (
            running_as(ALICE, ALICE, None),
            running_as(77, ALICE, None),
            [false; 3],
        ),
        (
            running_as(60_006, 60_006, own),
            running_as(0, 0, own),
            [false; 3],
        ),
        (
            in_own(running_as(ALICE, ALICE, None)),
            in_own(running_as(0, ALICE, None)),
            [false; 3],
        ),
        // In a container of the system's root is that container's.
        (
            in_lab(running_as(5, 5, None)),
            in_lab(running_as(0, 0, None)),
            [true, false, false],
        ),
        (
            running_as(5, 5, None),
            in_lab(running_as(0, 0, None)),
            [false; 3],
        ),
    ];
    for (before, now, expected) in cases {
        let found = [
            (None, olga()),
            (Some(ALICE), caller(0, &[])),
            (None, caller(ALICE, &[ALICE])),
        ]
        .map(
            |(person, caller)| match objected_to_change(&before, &now, person, &caller) {
                None => true,
                Some(Ending::Changed(_)) => false,
                other => panic!("{other:?}"),
            },
        );
        assert_eq!(found, expected, "{before:?}\n{now:?}");
    }
    // The guard that judged a container, whoever runs in it.
    let [before, now] = [5, 0].map(|uid| in_lab(running_as(uid, uid, None)));
    assert_eq!(
        objected_to_change(&before, &now, None, &caller(0, &[])),
        None
    );
}

proptest! {
    #[test]
    fn whoever_was_chosen_is_ended_whatever_numbers_their_owner_has(
        before in any::<[u32; 2]>(),
        now in any::<[u32; 2]>(),
        maker in 1_000u32..,
    ) {
        // In a namespace, and by programs that keep their caller's number.
        let inside = |uids: [u32; 2]| running_as(uids[0].max(1), uids[1].max(1), Some(maker));
        let toggling = |uid: u32, back: bool| {
            let uid = uid.max(1_000);
            if back { running_as(maker, uid, None) } else { running_as(uid, maker, None) }
        };
        let cases = [
            (inside(before), inside(now)),
            (toggling(before[0], true), toggling(now[0], false)),
            (toggling(before[0], false), toggling(now[0], true)),
        ];
        for (before, now) in cases {
            for person in [None, Some(maker)] {
                prop_assert_eq!(objected_to_change(&before, &now, person, &olga()), None);
            }
        }
    }
}
