//! Tests of the recheck of a process that changed its user after the plan.

use super::super::recheck::{KnownNames, RecheckContext, veto};
use super::super::*;
use super::fixture::*;
use super::recheck::{host, target};
use gpukill_proto::kill::{KillTarget, Outcome};
use proptest::prelude::*;

/// The veto against this process, for the guard or for a caller who may end any
/// process.
fn veto_of_uid_change(
    before: &ProcessInfo,
    now: &ProcessInfo,
    person: Option<u32>,
    caller: &Caller,
) -> Option<Outcome> {
    let mut test_host = host();
    let target = KillTarget {
        uid: before.uids.clone().map(|uids| uids.real),
        ..target(&test_host, 300)
    };
    *test_host.process_mut(300) = before.clone();
    let again = RecheckContext {
        caller,
        roles: &test_host.roles,
        operators: "gpukill-operators",
        processes: &test_host.process_table,
        names: &KnownNames::new(&test_host.process_table),
        family: &test_host.daemon_family(),
        protection: &test_host.protection,
        before: Some(before),
        person,
        uses_gpu: true,
        used_gpu_itself: false,
        had_signal: false,
    };
    veto(&target, now, &again)
}

/// The planned process with these uids, in a namespace of this creator.
fn running_as(real: u32, saved: u32, namespace_creator: Option<u32>) -> ProcessInfo {
    let mut process = host().process_table[&300].clone();
    process.uids = Reading::Value(Uids {
        real,
        effective: real,
        saved,
    });
    process.lineage.uid = Some(real);
    process.lineage.namespace_creator = namespace_creator;
    process.namespace_owner = Reading::Value(namespace_creator);
    process
}

#[test]
fn chosen_uid_does_not_veto() {
    let in_lab = |mut process: ProcessInfo| {
        process.container = Reading::Value(Some(container('a', "lab", None)));
        process
    };
    let in_own = |mut process: ProcessInfo| {
        process.container = Reading::Value(Some(container('c', "mine", Some(ALICE))));
        process
    };
    let own = Some(ALICE);
    // The uids before and now, and whether root and operators, the guard, and alice may
    // end the process.
    let cases = [
        // Uids within a namespace of her own, including those of system accounts.
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
        // Within a namespace that another user created inside a namespace of root's.
        (
            running_as(60_006, 60_006, Some(301_000)),
            running_as(60_007, 60_007, Some(301_000)),
            [true, true, false],
        ),
        // A program that switches between its users.
        (
            running_as(ALICE, 60_020, None),
            running_as(60_020, ALICE, None),
            [true, true, false],
        ),
        // A process that belongs to another person now is not the evaluated one.
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
        // A process that belongs to the system now.
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
        // In a container of the system's systemd, root is that container's root.
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
            |(person, caller)| match veto_of_uid_change(&before, &now, person, &caller) {
                None => true,
                Some(Outcome::Changed(_)) => false,
                other => panic!("{other:?}"),
            },
        );
        assert_eq!(found, expected, "{before:?}\n{now:?}");
    }
    // The guard evaluated a container, for any user in it.
    let [before, now] = [5, 0].map(|uid| in_lab(running_as(uid, uid, None)));
    assert_eq!(
        veto_of_uid_change(&before, &now, None, &caller(0, &[])),
        None
    );
}

proptest! {
    #[test]
    fn any_uid_of_the_owner_is_ended(
        before in any::<[u32; 2]>(),
        now in any::<[u32; 2]>(),
        namespace_creator in 1_000u32..,
    ) {
        // In a namespace, and in programs that keep the uid of their caller.
        let inside = |uids: [u32; 2]| {
            running_as(uids[0].max(1), uids[1].max(1), Some(namespace_creator))
        };
        let toggling = |uid: u32, back: bool| {
            let uid = uid.max(1_000);
            if back {
                running_as(namespace_creator, uid, None)
            } else {
                running_as(uid, namespace_creator, None)
            }
        };
        let cases = [
            (inside(before), inside(now)),
            (toggling(before[0], true), toggling(now[0], false)),
            (toggling(before[0], false), toggling(now[0], true)),
        ];
        for (before, now) in cases {
            for person in [None, Some(namespace_creator)] {
                prop_assert_eq!(veto_of_uid_change(&before, &now, person, &olga()), None);
            }
        }
    }
}
