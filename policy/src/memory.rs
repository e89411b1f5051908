//! How much of a device's memory no process explains.

use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;

/// What used memory remains after the listed processes are subtracted.
///
/// A remainder within the noise is 0. Where a process's memory is unknown, so
/// is the remainder: it would blame nobody for what that process holds.
pub fn unattributed<'a>(
    used: &Reading<Bytes>,
    total: &Reading<Bytes>,
    processes: impl IntoIterator<Item = &'a Reading<Bytes>>,
) -> Reading<Bytes> {
    let Reading::Value(used) = used else {
        return used.clone();
    };
    let Some(total) = total.known() else {
        return Reading::Failed("the size of the memory is not known".into());
    };
    let mut explained = 0u64;
    for memory in processes {
        match memory {
            Reading::Value(bytes) => explained = explained.saturating_add(bytes.0),
            Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
                return Reading::Failed("a process's memory is not known".into());
            }
        }
    }
    let remainder = Bytes(used.0.saturating_sub(explained));
    Reading::Value(if remainder < noise(*total) {
        Bytes(0)
    } else {
        remainder
    })
}

/// What processes hold together. A part that is unknown makes the sum unknown.
pub fn held<'a>(processes: impl IntoIterator<Item = &'a Reading<Bytes>>) -> Reading<Bytes> {
    let mut sum = Bytes(0);
    for memory in processes {
        match memory {
            Reading::Value(bytes) => sum = Bytes(sum.0.saturating_add(bytes.0)),
            unknown => return unknown.because(),
        }
    }
    Reading::Value(sum)
}

/// What processes hold together at least: those of which it is known. Where none
/// is, that is not known either.
pub fn held_at_least<'a>(
    processes: impl IntoIterator<Item = &'a Reading<Bytes>>,
) -> Reading<Bytes> {
    let mut sum = Reading::Unsupported;
    for memory in processes {
        sum = match (sum, memory) {
            (Reading::Value(Bytes(before)), Reading::Value(Bytes(more))) => {
                Reading::Value(Bytes(before.saturating_add(*more)))
            }
            (_, Reading::Value(first)) => Reading::Value(*first),
            (Reading::Unsupported, unknown) => unknown.because(),
            (known, _) => known,
        };
    }
    sum
}

/// Below this a remainder means nothing. Idle GPUs show some hundred MiB with
/// no process at all: 214 MiB on a captured RTX 2080 Super with a display, about
/// 0.6 GiB on H100s.
pub(crate) fn noise(total: Bytes) -> Bytes {
    Bytes::mib(512).max(Bytes(total.0 / 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gib(n: u64) -> Reading<Bytes> {
        Reading::Value(Bytes(n * GIB))
    }

    #[test]
    fn what_processes_hold_is_explained_and_the_rest_is_not() {
        let processes = [gib(15), gib(16)];
        assert_eq!(unattributed(&gib(63), &gib(80), &processes), gib(32));
        assert_eq!(unattributed(&gib(63), &gib(80), []), gib(63));
    }

    #[test]
    fn what_is_held_together_is_unknown_when_a_part_is() {
        assert_eq!(held(&[]), gib(0));
        assert_eq!(held(&[gib(2), gib(3)]), gib(5));
        assert_eq!(held(&[gib(2), Reading::Unsupported]), Reading::Unsupported);
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
            assert_eq!(held_at_least(&parts), expected, "{parts:?}");
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
        assert_eq!(unattributed(&gib(1), &gib(80), &[gib(2)]), gib(0));
        assert_eq!(
            unattributed(
                &gib(1),
                &gib(80),
                &[Reading::Value(Bytes(u64::MAX)), gib(9)]
            ),
            gib(0)
        );
    }

    #[test]
    fn an_unknown_part_makes_the_remainder_unknown_and_never_zero() {
        let unknown = [gib(15), Reading::Unsupported];
        assert_eq!(unattributed(&gib(63), &gib(80), &unknown).known(), None);
        assert_eq!(
            unattributed(&gib(3), &Reading::Unsupported, []).known(),
            None
        );
        assert_eq!(
            unattributed(&Reading::Unsupported, &gib(80), []),
            Reading::Unsupported
        );
    }
}
