//! What the end of a process frees, where others share it.

use super::*;

#[test]
fn what_others_share_is_not_counted_among_what_its_end_frees() {
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
    let answers = |published: &Published, pid| {
        let explained = asked_of(published, pid, 0, &[], None).unwrap();
        (explained.frees, explained.shared_with)
    };
    published.holders = Arc::new(vec![second.clone()]);
    // The other device's memory is its own.
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
fn buffers_that_others_have_too_are_not_counted_among_what_its_end_frees() {
    let mut published = published();
    let mut share = |shares: &[(u32, u64, Option<u64>)]| {
        let shared = shares.iter().map(|(index, start_ticks, shared)| {
            let key = ProcessKey {
                pid: 71,
                start_ticks: *start_ticks,
            };
            let sharing = Sharing::of(Bytes(5 << 30), shared.map(|gib| Bytes(gib << 30)));
            ((DeviceId(format!("GPU-{index}")), key), sharing)
        });
        published.sharing = Arc::new(shared.collect());
        asked_of(&published, 71, 0, &[], None).unwrap().frees
    };
    let gib = |count: u64| Reading::Value(Bytes(count << 30));
    let cases = [
        (vec![(0, 1, Some(2))], gib(8)),
        (vec![(0, 1, Some(2)), (1, 1, Some(5))], gib(3)),
        // Of another one with its pid.
        (vec![(0, 2, Some(2))], gib(10)),
        // Of one device that is not told: at least what the other gives back.
        (vec![(0, 1, None)], gib(5)),
        (
            vec![(0, 1, None), (1, 1, None)],
            Reading::Failed("its driver does not tell what it shares".into()),
        ),
    ];
    for (shares, expected) in cases {
        assert_eq!(share(&shares), expected, "{shares:?}");
    }
}
