//! How ids and kinds are stored as numbers.

use gpukill_proto::snapshot::{InstanceId, OwnerKind};

/// So many bits of a row's id number the row within its sample.
pub(super) const ROW_BITS: u32 = 20;

/// The most rows one sample may have.
pub(super) const MOST_ROWS: i64 = 1 << ROW_BITS;

/// The id of a row of a sample.
pub(super) const fn id(sample: i64, row: i64) -> i64 {
    (sample << ROW_BITS) | row
}

/// How an owner was found, as a number. These never change.
pub(super) const fn kind_number(kind: OwnerKind) -> i64 {
    match kind {
        OwnerKind::User => 0,
        OwnerKind::Namespace => 1,
        OwnerKind::Label => 2,
        OwnerKind::Container => 3,
        OwnerKind::Subordinate => 4,
    }
}

/// How the owner was found for whom this number stands.
pub(super) const fn kind_of(number: i64) -> Option<OwnerKind> {
    match number {
        0 => Some(OwnerKind::User),
        1 => Some(OwnerKind::Namespace),
        2 => Some(OwnerKind::Label),
        3 => Some(OwnerKind::Container),
        4 => Some(OwnerKind::Subordinate),
        _ => None,
    }
}

/// The part of a device, as it was stored: `2/0`, or nothing.
pub(super) fn instance_of(stored: &str) -> Option<InstanceId> {
    let (gpu, compute) = stored.split_once('/')?;
    Some(InstanceId {
        gpu: gpu.parse().ok()?,
        compute: compute.parse().ok()?,
    })
}

/// A count as SQLite has it; what does not fit is as large as can be.
pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Ids as JSON, for `json_each`.
pub(super) fn json(ids: &[i64]) -> String {
    let numbers: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_an_owner_was_found_is_read_as_it_was_stored() {
        use OwnerKind::{Container, Label, Namespace, Subordinate, User};
        for kind in [User, Namespace, Label, Container, Subordinate] {
            assert_eq!(kind_of(kind_number(kind)), Some(kind));
        }
        assert_eq!(kind_of(5), None);
    }

    #[test]
    fn ids_fit_in_53_bits_for_a_thousand_years_of_one_second_samples() {
        let samples = 1000 * 366 * 86_400;
        assert!(id(samples, MOST_ROWS - 1) < 1 << 56);
        // Every ten seconds, the default, for 27 years: what JavaScript holds.
        assert!(id(27 * 366 * 8_640, MOST_ROWS - 1) < 1 << 53);
    }
}
