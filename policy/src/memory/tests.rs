//! What processes explain together, whatever they share.

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn gib(n: u64) -> Reading<Bytes> {
    Reading::Value(Bytes(n * GIB))
}

/// Processes that share nothing.
fn alone(memories: &[Reading<Bytes>]) -> Vec<(&Reading<Bytes>, Sharing)> {
    memories
        .iter()
        .map(|memory| (memory, Sharing::NONE))
        .collect()
}

/// A client with so much memory of which it shares so much, in GiB.
fn client(resident: u64, shared: Option<u64>) -> (Reading<Bytes>, Sharing) {
    let shared = shared.map(|shared| Bytes(shared * GIB));
    (gib(resident), Sharing::of(Bytes(resident * GIB), shared))
}

fn parts(clients: &[(Reading<Bytes>, Sharing)]) -> Vec<(&Reading<Bytes>, Sharing)> {
    clients
        .iter()
        .map(|(memory, sharing)| (memory, *sharing))
        .collect()
}

#[test]
fn a_remainder_is_what_no_process_can_hold_and_unknown_where_they_may_share_it() {
    let untold = || Reading::Failed("how much the processes share is not known".into());
    let cases = [
        // Two that share 4: they hold 12 to 16 together.
        (20, vec![(8, Some(4)), (8, Some(4))], gib(4)),
        (16, vec![(8, Some(4)), (8, Some(4))], untold()),
        (12, vec![(8, Some(4)), (8, Some(4))], gib(0)),
        // What one shares with another device's processes is here once.
        (8, vec![(8, Some(4))], gib(0)),
        (9, vec![(8, Some(8))], gib(1)),
        // Of what they share 4 at least is here, and 2 may be twice.
        (16, vec![(8, Some(4)), (8, Some(2))], untold()),
        (14, vec![(8, Some(4)), (8, Some(2))], gib(0)),
        // Nobody tells: the same 8 may be counted twice.
        (16, vec![(8, None), (8, None)], untold()),
        (8, vec![(8, None), (8, None)], gib(0)),
        (17, vec![(8, None), (8, None)], gib(1)),
        (8, vec![(8, None)], gib(0)),
        (8, vec![(8, None), (0, None)], gib(0)),
        (17, vec![(8, None), (9, Some(0))], gib(0)),
    ];
    for (used, clients, expected) in cases {
        let told: Vec<_> = clients.iter().map(|(all, it)| client(*all, *it)).collect();
        let found = unattributed(&gib(used), &gib(80), parts(&told));
        assert_eq!(found, expected, "{used} {clients:?}");
    }
}

#[test]
fn what_is_shared_is_held_once_and_frees_nothing() {
    let cases = [
        (vec![(8, Some(0)), (8, Some(0))], gib(16), [gib(8), gib(8)]),
        (vec![(8, Some(4)), (8, Some(4))], gib(12), [gib(4), gib(4)]),
        // More is shared than is resident.
        (vec![(8, Some(9)), (8, Some(2))], gib(14), [gib(0), gib(6)]),
    ];
    for (clients, together, freed) in cases {
        let told: Vec<_> = clients.iter().map(|(all, it)| client(*all, *it)).collect();
        assert_eq!(held(parts(&told)), together, "{clients:?}");
        let alone = [0, 1].map(|at: usize| told[at].1.alone(&told[at].0));
        assert_eq!(alone, freed, "{clients:?}");
    }
}

#[test]
fn where_nobody_tells_what_is_shared_it_is_not_known_what_an_end_frees() {
    let why = || Reading::Failed("its driver does not tell what it shares".into());
    let (memory, sharing) = client(8, None);
    assert_eq!(sharing.alone(&memory), why());
    // One of its two clients.
    let both = sharing.and(client(8, Some(0)).1);
    assert_eq!(both.alone(&gib(16)), why());
    // Until somebody tells that it shares, it is taken to share nothing.
    assert_eq!(held([(&gib(16), both)]), gib(16));
    // A client without memory shares none.
    assert_eq!(Sharing::of(Bytes(0), None), Sharing::NONE);
    for unknown in [
        Reading::Unsupported,
        Reading::Withheld,
        Reading::Failed("x".into()),
    ] {
        for sharing in [Sharing::NONE, sharing] {
            assert_eq!(sharing.alone(&unknown), unknown);
        }
    }
    let old = Reading::Stale(Bytes(8 * GIB), 7);
    let some = client(8, Some(3)).1.alone(&old);
    assert_eq!(some, Reading::Stale(Bytes(5 * GIB), 7));
}

#[test]
fn two_clients_of_one_process_may_share_with_each_other() {
    let process = client(8, Some(4)).1.and(client(6, Some(2)).1);
    // Each has 4 of its own, and one of them 4 more.
    assert_eq!(held([(&gib(14), process)]), gib(12));
    assert_eq!(process.alone(&gib(14)), gib(8));
    // What is shared and not there is none of what is there.
    assert_eq!(client(1, Some(9)).1, client(1, Some(1)).1);
    // A list of its driver's own tells more than its clients do.
    assert_eq!(process.alone(&gib(20)), gib(14));
}

proptest! {
    #[test]
    fn bounds_hold_whatever_is_shared(
        // Of each buffer its size, the clients that have it, and whether it is resident.
        buffers in proptest::collection::vec((0u64..9, 1u8..32, any::<bool>()), 0..12),
        // Of which process each of five clients is.
        owners in proptest::array::uniform5(0usize..3),
        is_told in proptest::array::uniform5(any::<bool>()),
    ) {
        let has = |who: u8, at: usize| (who >> at) & 1 == 1;
        let size = |buffers: Vec<&(u64, u8, bool)>| -> u64 {
            buffers.iter().map(|(size, ..)| size * GIB).sum()
        };
        let mut processes: [Option<(u64, Sharing)>; 3] = [None; 3];
        for (at, owner) in owners.into_iter().enumerate() {
            let mine = buffers.iter().filter(|(_, who, _)| has(*who, at));
            let shared = mine.clone().filter(|(_, who, _)| who.count_ones() > 1);
            let shared = Bytes(size(shared.collect()));
            let resident = size(mine.filter(|it| it.2).collect());
            let told = Sharing::of(Bytes(resident), is_told[at].then_some(shared));
            let before = processes[owner];
            processes[owner] = Some(before.map_or((resident, told), |(memory, sharing)| {
                (memory + resident, sharing.and(told))
            }));
        }
        let there: Vec<_> = buffers.iter().filter(|it| it.2).collect();
        let used = size(there.clone());
        let told: Vec<_> = processes
            .iter()
            .flatten()
            .map(|(memory, sharing)| (Reading::Value(Bytes(*memory)), *sharing))
            .collect();
        let together = Together::of(parts(&told)).map_err(Clone::clone).unwrap();
        prop_assert!(together.least.0 <= used && used <= together.most.0);
        // All of it is explained: nothing is ever made up.
        let remainder = unattributed(&Reading::Value(Bytes(used)), &gib(80), parts(&told));
        prop_assert!(remainder.known().is_none_or(|bytes| bytes.0 == 0));
        for (at, process) in processes.iter().enumerate() {
            let Some((memory, sharing)) = process else { continue };
            let is_own = |who: u8| (0..5).all(|it| !has(who, it) || owners[it] == at);
            let own = there.iter().copied().filter(|(_, who, _)| is_own(*who));
            let freed = size(own.collect());
            let said = sharing.alone(&Reading::Value(Bytes(*memory)));
            prop_assert!(said.known().is_none_or(|bytes| bytes.0 <= freed));
        }
    }
}

#[test]
fn what_processes_hold_is_explained_and_the_rest_is_not() {
    let processes = [gib(15), gib(16)];
    assert_eq!(unattributed(&gib(63), &gib(80), alone(&processes)), gib(32));
    assert_eq!(unattributed(&gib(63), &gib(80), []), gib(63));
}

#[test]
fn what_is_held_together_is_unknown_when_a_part_is() {
    assert_eq!(held([]), gib(0));
    assert_eq!(held(alone(&[gib(2), gib(3)])), gib(5));
    assert_eq!(
        held(alone(&[gib(2), Reading::Unsupported])),
        Reading::Unsupported
    );
}

#[test]
fn what_is_held_at_least_is_what_is_known() {
    let failed = || Reading::Failed("x".into());
    let cases = [
        (vec![], Reading::Unsupported),
        (vec![failed()], failed()),
        (vec![Reading::Unsupported, failed()], failed()),
        (vec![failed(), gib(2), Reading::Unsupported, gib(3)], gib(5)),
        (vec![Reading::Stale(Bytes(GIB), 7)], Reading::Unsupported),
    ];
    for (parts, expected) in cases {
        assert_eq!(held_at_least(parts.clone()), expected, "{parts:?}");
    }
}

#[test]
fn a_remainder_within_the_noise_is_nothing() {
    let used = Reading::Value(Bytes::mib(700));
    assert_eq!(unattributed(&used, &gib(80), []), gib(0));
    assert_eq!(unattributed(&used, &gib(8), []), used);
}

#[test]
fn processes_that_claim_more_than_is_used_leave_no_remainder() {
    assert_eq!(unattributed(&gib(1), &gib(80), alone(&[gib(2)])), gib(0));
    assert_eq!(
        unattributed(
            &gib(1),
            &gib(80),
            alone(&[Reading::Value(Bytes(u64::MAX)), gib(9)])
        ),
        gib(0)
    );
}

#[test]
fn an_unknown_part_makes_the_remainder_unknown_and_never_zero() {
    let unknown = [gib(15), Reading::Unsupported];
    assert_eq!(
        unattributed(&gib(63), &gib(80), alone(&unknown)).known(),
        None
    );
    assert_eq!(
        unattributed(&gib(3), &Reading::Unsupported, []).known(),
        None
    );
    assert_eq!(
        unattributed(&Reading::Unsupported, &gib(80), []),
        Reading::Unsupported
    );
}
