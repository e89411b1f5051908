//! How readings and ids are stored as numbers.

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::OwnerKind;

/// So many bits of a row's id number the row within its sample.
const ROW_BITS: u32 = 20;

/// The most rows one sample may have.
pub(super) const MOST_ROWS: i64 = 1 << ROW_BITS;

/// The id of a row of a sample.
pub(super) const fn id(sample: i64, row: i64) -> i64 {
    (sample << ROW_BITS) | row
}

/// The sample that a row belongs to, in SQL.
pub(super) const SAMPLE_OF_ID: &str = "id >> 20";

const UNSUPPORTED: i64 = -1001;
const FAILED: i64 = -1002;
const STALE: i64 = -1003;

/// A reading as a number. Why one failed is not kept, and a stale value is not
/// kept either: it would count twice.
pub(super) fn encode<T: Copy>(reading: &Reading<T>, number: impl Fn(T) -> i64) -> i64 {
    match reading {
        Reading::Value(value) => number(*value),
        Reading::Unsupported => UNSUPPORTED,
        Reading::Failed(_) | Reading::Withheld => FAILED,
        Reading::Stale(..) => STALE,
    }
}

/// The reading that a number stands for.
pub(super) fn decode<T>(stored: i64, value: impl Fn(i64) -> Option<T>) -> Reading<T> {
    match stored {
        UNSUPPORTED => Reading::Unsupported,
        FAILED => Reading::Failed("it failed when the sample was taken".into()),
        STALE => Reading::Failed("there was no fresh value when the sample was taken".into()),
        number => value(number).map_or_else(
            || Reading::Failed("the stored value makes no sense".into()),
            Reading::Value,
        ),
    }
}

/// How an owner was found, as a number. These never change.
pub(super) const fn kind_number(kind: OwnerKind) -> i64 {
    match kind {
        OwnerKind::User => 0,
        OwnerKind::Namespace => 1,
        OwnerKind::Label => 2,
        OwnerKind::Container => 3,
    }
}

/// How the owner was found for whom this number stands.
pub(super) const fn kind_of(number: i64) -> Option<OwnerKind> {
    match number {
        0 => Some(OwnerKind::User),
        1 => Some(OwnerKind::Namespace),
        2 => Some(OwnerKind::Label),
        3 => Some(OwnerKind::Container),
        _ => None,
    }
}

/// A count as SQLite has it; what does not fit is as large as can be.
pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::units::{Bytes, Celsius};

    #[test]
    fn an_unknown_is_never_stored_as_a_number_that_could_be_one() {
        let stored = |reading: &Reading<Bytes>| encode(reading, |bytes: Bytes| count(bytes.0));
        let read = |number| decode(number, |n| u64::try_from(n).ok().map(Bytes));
        assert_eq!(
            read(stored(&Reading::Value(Bytes(0)))),
            Reading::Value(Bytes(0))
        );
        assert_eq!(read(stored(&Reading::Unsupported)), Reading::Unsupported);
        assert_eq!(read(stored(&Reading::Failed("x".into()))).known(), None);
        assert_eq!(read(stored(&Reading::Stale(Bytes(7), 3))).known(), None);
        assert_eq!(read(-5).known(), None);
        let cold = encode(&Reading::Value(Celsius(-40)), |c: Celsius| i64::from(c.0));
        assert_eq!(
            decode(cold, |n| i32::try_from(n).ok().map(Celsius)),
            Reading::Value(Celsius(-40))
        );
    }

    #[test]
    fn how_an_owner_was_found_is_read_as_it_was_stored() {
        use OwnerKind::{Container, Label, Namespace, User};
        for kind in [User, Namespace, Label, Container] {
            assert_eq!(kind_of(kind_number(kind)), Some(kind));
        }
        assert_eq!(kind_of(4), None);
    }

    #[test]
    fn ids_fit_in_53_bits_for_a_thousand_years_of_one_second_samples() {
        let samples = 1000 * 366 * 86_400;
        assert!(id(samples, MOST_ROWS - 1) < 1 << 56);
        // Every ten seconds, the default, for 27 years: what JavaScript holds.
        assert!(id(27 * 366 * 8_640, MOST_ROWS - 1) < 1 << 53);
    }
}
