//! The memory that the end of a process frees, if others share it.

use super::*;

#[test]
fn shared_memory_is_not_freed() {
    let sharing = |pid, with| Holder {
        shares_with: Some(with),
        ..holder(pid, 1000)
    };
    let mut published = published();
    let counted = Holder {
        listed: true,
        ..holder(71, 1000)
    };
    let second = device(1, vec![counted.clone(), sharing(74, 71), sharing(75, 71)]);
    let answers = |published: &PublishedPoll, pid| {
        let explained = explain_with_snapshot(published, pid, 0, &[], None).unwrap();
        (explained.frees, explained.shared_with)
    };
    published.holders = Arc::new(vec![second.clone()]);
    // The memory of the other device is its own.
    let own = Reading::Value(Bytes(5 << 30));
    assert_eq!(answers(&published, 71), (own, vec![74, 75]));
    assert_eq!(
        answers(&published, 74),
        (Reading::Unsupported, vec![71, 75])
    );
    let first = device(0, vec![counted, sharing(74, 71)]);
    published.holders = Arc::new(vec![first, second]);
    assert_eq!(
        answers(&published, 71),
        (Reading::Unsupported, vec![74, 75])
    );
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
