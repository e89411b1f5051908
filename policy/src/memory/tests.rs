//! Tests of the memory that processes explain together.

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn gib(n: u64) -> Reading<Bytes> {
    Reading::Value(Bytes(n * GIB))
}

/// Processes without shared memory.
fn alone(memories: &[Reading<Bytes>]) -> Vec<(&Reading<Bytes>, Sharing)> {
    memories
        .iter()
        .map(|memory| (memory, Sharing::NONE))
        .collect()
}

/// A client with this resident and shared memory, in GiB.
fn client(resident: u64, shared: Option<u64>) -> (Reading<Bytes>, Sharing) {
    let shared = shared.map(|shared| Bytes(shared * GIB));
    (
        gib(resident),
        Sharing::from_client(Bytes(resident * GIB), shared),
    )
}

fn parts(clients: &[(Reading<Bytes>, Sharing)]) -> Vec<(&Reading<Bytes>, Sharing)> {
    clients
        .iter()
        .map(|(memory, sharing)| (memory, *sharing))
        .collect()
}

#[test]
fn shared_memory_can_make_remainder_unknown() {
    let untold = || Reading::Failed("the memory shared by processes is not known".into());
    let cases = [
        // Two clients that share 4 hold 12 to 16 together.
        (20, vec![(8, Some(4)), (8, Some(4))], gib(4)),
        (16, vec![(8, Some(4)), (8, Some(4))], untold()),
        (12, vec![(8, Some(4)), (8, Some(4))], gib(0)),
        // Memory that is shared with processes of another device counts once here.
        (8, vec![(8, Some(4))], gib(0)),
        (9, vec![(8, Some(8))], gib(1)),
        // At least 4 of the shared memory is here, and 2 may be counted twice.
        (16, vec![(8, Some(4)), (8, Some(2))], untold()),
        (14, vec![(8, Some(4)), (8, Some(2))], gib(0)),
        // Without reports, the same 8 may be counted twice.
        (16, vec![(8, None), (8, None)], untold()),
        (8, vec![(8, None), (8, None)], gib(0)),
        (17, vec![(8, None), (8, None)], gib(1)),
        (8, vec![(8, None)], gib(0)),
        (8, vec![(8, None), (0, None)], gib(0)),
        (17, vec![(8, None), (9, Some(0))], gib(0)),
    ];
    for (used, clients, expected) in cases {
        let readings: Vec<_> = clients.iter().map(|(all, it)| client(*all, *it)).collect();
        let found = unattributed_memory(&gib(used), &gib(80), parts(&readings));
        assert_eq!(found, expected, "{used} {clients:?}");
    }
}

#[test]
fn shared_memory_counts_once_and_frees_nothing() {
    let cases = [
        (vec![(8, Some(0)), (8, Some(0))], gib(16), [gib(8), gib(8)]),
        (vec![(8, Some(4)), (8, Some(4))], gib(12), [gib(4), gib(4)]),
        // More memory is shared than is resident.
        (vec![(8, Some(9)), (8, Some(2))], gib(14), [gib(0), gib(6)]),
    ];
    for (clients, together, freed) in cases {
        let readings: Vec<_> = clients.iter().map(|(all, it)| client(*all, *it)).collect();
        assert_eq!(combined_memory(parts(&readings)), together, "{clients:?}");
        let alone = [0, 1].map(|at: usize| readings[at].1.exclusive_memory(&readings[at].0));
        assert_eq!(alone, freed, "{clients:?}");
    }
}

#[test]
fn unreported_sharing_frees_unknown_memory() {
    let why = || Reading::Failed("its driver does not report shared memory".into());
    let (memory, sharing) = client(8, None);
    assert_eq!(sharing.exclusive_memory(&memory), why());
    // One of its two clients.
    let both = sharing.combine(client(8, Some(0)).1);
    assert_eq!(both.exclusive_memory(&gib(16)), why());
    // Without a report, the client counts as sharing nothing.
    assert_eq!(combined_memory([(&gib(16), both)]), gib(16));
    // A client without memory shares nothing.
    assert_eq!(Sharing::from_client(Bytes(0), None), Sharing::NONE);
    for unknown in [
        Reading::Unsupported,
        Reading::Withheld,
        Reading::Failed("x".into()),
    ] {
        for sharing in [Sharing::NONE, sharing] {
            assert_eq!(sharing.exclusive_memory(&unknown), unknown);
        }
    }
    let old = Reading::Stale(Bytes(8 * GIB), 7);
    let some = client(8, Some(3)).1.exclusive_memory(&old);
    assert_eq!(some, Reading::Stale(Bytes(5 * GIB), 7));
}

#[test]
fn clients_of_one_process_may_share() {
    let process = client(8, Some(4)).1.combine(client(6, Some(2)).1);
    // Each client has 4 of its own, and one of them 4 more.
    assert_eq!(combined_memory([(&gib(14), process)]), gib(12));
    assert_eq!(process.exclusive_memory(&gib(14)), gib(8));
    // Shared memory that is not resident is not part of the resident memory.
    assert_eq!(client(1, Some(9)).1, client(1, Some(1)).1);
    // A list of the driver may report more than the clients do.
    assert_eq!(process.exclusive_memory(&gib(20)), gib(14));
}

proptest! {
    #[test]
    fn bounds_hold_for_any_sharing(
        // Each buffer has its size, its clients, and whether it is resident.
        buffers in proptest::collection::vec((0u64..9, 1u8..32, any::<bool>()), 0..12),
        // The process of each of five clients.
        owners in proptest::array::uniform5(0usize..3),
        is_known in proptest::array::uniform5(any::<bool>()),
    ) {
        let has = |holders: u8, at: usize| (holders >> at) & 1 == 1;
        let size = |buffers: Vec<&(u64, u8, bool)>| -> u64 {
            buffers.iter().map(|(size, ..)| size * GIB).sum()
        };
        let mut processes: [Option<(u64, Sharing)>; 3] = [None; 3];
        for (at, owner) in owners.into_iter().enumerate() {
            let mine = buffers.iter().filter(|(_, holders, _)| has(*holders, at));
            let shared = mine.clone().filter(|(_, holders, _)| holders.count_ones() > 1);
            let shared = Bytes(size(shared.collect()));
            let resident = size(mine.filter(|it| it.2).collect());
            let shared = is_known[at].then_some(shared);
            let client_sharing = Sharing::from_client(Bytes(resident), shared);
            let before = processes[owner];
            processes[owner] = Some(before.map_or((resident, client_sharing), |(memory, sharing)| {
                (memory + resident, sharing.combine(client_sharing))
            }));
        }
        let there: Vec<_> = buffers.iter().filter(|it| it.2).collect();
        let used = size(there.clone());
        let readings: Vec<_> = processes
            .iter()
            .flatten()
            .map(|(memory, sharing)| (Reading::Value(Bytes(*memory)), *sharing))
            .collect();
        let together = CombinedMemory::calculate(parts(&readings)).map_err(Clone::clone).unwrap();
        prop_assert!(together.min.0 <= used && used <= together.max.0);
        // All memory is explained, so no remainder may appear.
        let used_memory = Reading::Value(Bytes(used));
        let remainder = unattributed_memory(&used_memory, &gib(80), parts(&readings));
        prop_assert!(remainder.known().is_none_or(|bytes| bytes.0 == 0));
        for (at, process) in processes.iter().enumerate() {
            let Some((memory, sharing)) = process else { continue };
            let is_own = |holders: u8| (0..5).all(|it| !has(holders, it) || owners[it] == at);
            let own = there.iter().copied().filter(|(_, holders, _)| is_own(*holders));
            let freed = size(own.collect());
            let exclusive = sharing.exclusive_memory(&Reading::Value(Bytes(*memory)));
            prop_assert!(exclusive.known().is_none_or(|bytes| bytes.0 <= freed));
        }
    }
}

#[test]
fn remainder_is_used_minus_held() {
    let processes = [gib(15), gib(16)];
    assert_eq!(
        unattributed_memory(&gib(63), &gib(80), alone(&processes)),
        gib(32)
    );
    assert_eq!(unattributed_memory(&gib(63), &gib(80), []), gib(63));
}

#[test]
fn sum_is_unknown_when_a_part_is() {
    assert_eq!(combined_memory([]), gib(0));
    assert_eq!(combined_memory(alone(&[gib(2), gib(3)])), gib(5));
    assert_eq!(
        combined_memory(alone(&[gib(2), Reading::Unsupported])),
        Reading::Unsupported
    );
}

#[test]
fn lower_bound_sums_known_parts() {
    let failed = || Reading::Failed("x".into());
    let cases = [
        (vec![], Reading::Unsupported),
        (vec![failed()], failed()),
        (vec![Reading::Unsupported, failed()], failed()),
        (vec![failed(), gib(2), Reading::Unsupported, gib(3)], gib(5)),
        (vec![Reading::Stale(Bytes(GIB), 7)], Reading::Unsupported),
    ];
    for (parts, expected) in cases {
        assert_eq!(sum_of_known(parts.clone()), expected, "{parts:?}");
    }
}

#[test]
fn remainder_within_noise_is_zero() {
    let used = Reading::Value(Bytes::mib(700));
    assert_eq!(unattributed_memory(&used, &gib(80), []), gib(0));
    assert_eq!(unattributed_memory(&used, &gib(8), []), used);
}

#[test]
fn claims_above_used_leave_no_remainder() {
    assert_eq!(
        unattributed_memory(&gib(1), &gib(80), alone(&[gib(2)])),
        gib(0)
    );
    assert_eq!(
        unattributed_memory(
            &gib(1),
            &gib(80),
            alone(&[Reading::Value(Bytes(u64::MAX)), gib(9)])
        ),
        gib(0)
    );
}

#[test]
fn unknown_part_makes_remainder_unknown() {
    let unknown = [gib(15), Reading::Unsupported];
    assert_eq!(
        unattributed_memory(&gib(63), &gib(80), alone(&unknown)).known(),
        None
    );
    assert_eq!(
        unattributed_memory(&gib(3), &Reading::Unsupported, []).known(),
        None
    );
    assert_eq!(
        unattributed_memory(&Reading::Unsupported, &gib(80), []),
        Reading::Unsupported
    );
}
