//! The memory that the end of a process frees, if others share it.

use super::*;

#[test]
fn shared_memory_is_not_freed() {
    let published = published();
    let answers = |devices: &[u32], pid: u32, with: [u32; 2]| {
        let sharing = devices.iter().map(|index| {
            let id = DeviceId(format!("GPU-{index}"));
            (id, BTreeSet::from(with))
        });
        let inspected = InspectedProcess {
            devices: vec![device(1, vec![holder(74, 1000)])],
            sharing: sharing.collect(),
            ..inspected(&published, pid)
        };
        let guarded = guard_fixture();
        let explained = explain_inspected(&guarded, &published, &inspected, pid, 0, &[], None);
        let explained = explained.unwrap();
        (explained.frees, explained.shared_with)
    };
    // The memory of the other device is its own.
    let own = Reading::Value(Bytes(5 << 30));
    assert_eq!(answers(&[1], 71, [74, 75]), (own, vec![74, 75]));
    let none = Reading::Unsupported;
    assert_eq!(answers(&[1], 74, [71, 75]), (none.clone(), vec![71, 75]));
    assert_eq!(answers(&[0, 1], 71, [74, 75]), (none, vec![74, 75]));
}

#[test]
fn shared_buffers_are_not_freed() {
    let mut published = published();
    let mut share = |shares: &[(u32, u64, Option<u64>)]| {
        let shared = shares.iter().map(|(index, start_ticks, shared)| {
            let key = ProcessKey {
                pid: 71,
                start_ticks: *start_ticks,
            };
            let sharing = Sharing::from_client(Bytes(5 << 30), shared.map(|gib| Bytes(gib << 30)));
            ((DeviceId(format!("GPU-{index}")), key), sharing)
        });
        published.sharing = Arc::new(shared.collect());
        explain_with_snapshot(&published, 71, 0, &[], None)
            .unwrap()
            .frees
    };
    let gib = |count: u64| Reading::Value(Bytes(count << 30));
    let cases = [
        (vec![(0, 1, Some(2))], gib(8)),
        (vec![(0, 1, Some(2)), (1, 1, Some(5))], gib(3)),
        // Of another process with its pid.
        (vec![(0, 2, Some(2))], gib(10)),
        // One device is unknown: at least the memory of the other one is freed.
        (vec![(0, 1, None)], gib(5)),
        (
            vec![(0, 1, None), (1, 1, None)],
            Reading::Failed("its driver does not report shared memory".into()),
        ),
    ];
    for (shares, expected) in cases {
        assert_eq!(share(&shares), expected, "{shares:?}");
    }
}
