//! Converts ids, kinds and counts to and from their SQL values.

use gpukill_proto::model::{InstanceId, OwnerKind};

/// The bits of a record id that number the record within its sample.
pub(super) const RECORD_BITS: u32 = 20;

/// The most records of one sample.
pub(super) const MAX_RECORDS_PER_SAMPLE: i64 = 1 << RECORD_BITS;

pub(super) const fn record_id(sample: i64, row: i64) -> i64 {
    (sample << RECORD_BITS) | row
}

/// The number of an owner kind. The numbers never change.
pub(super) const fn owner_kind_number(kind: OwnerKind) -> i64 {
    match kind {
        OwnerKind::User => 0,
        OwnerKind::Namespace => 1,
        OwnerKind::Label => 2,
        OwnerKind::Container => 3,
        OwnerKind::Subordinate => 4,
    }
}

pub(super) const fn owner_kind(number: i64) -> Option<OwnerKind> {
    match number {
        0 => Some(OwnerKind::User),
        1 => Some(OwnerKind::Namespace),
        2 => Some(OwnerKind::Label),
        3 => Some(OwnerKind::Container),
        4 => Some(OwnerKind::Subordinate),
        _ => None,
    }
}

/// Parses a stored instance: `2/0`, or nothing.
pub(super) fn parse_instance(stored: &str) -> Option<InstanceId> {
    let (gpu, compute) = stored.split_once('/')?;
    Some(InstanceId {
        gpu: gpu.parse().ok()?,
        compute: compute.parse().ok()?,
    })
}

/// Converts a count to an SQL integer; a count that does not fit becomes the maximum.
pub(super) fn saturating_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Ids as JSON, for `json_each`.
pub(super) fn ids_json(ids: &[i64]) -> String {
    let numbers: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_kinds_round_trip() {
        use OwnerKind::{Container, Label, Namespace, Subordinate, User};
        for kind in [User, Namespace, Label, Container, Subordinate] {
            assert_eq!(owner_kind(owner_kind_number(kind)), Some(kind));
        }
        assert_eq!(owner_kind(5), None);
    }

    #[test]
    fn record_ids_do_not_overflow() {
        let samples = 1000 * 366 * 86_400;
        assert!(record_id(samples, MAX_RECORDS_PER_SAMPLE - 1) < 1 << 56);
        // Every ten seconds, the default, for 27 years: as much as JavaScript holds.
        assert!(record_id(27 * 366 * 8_640, MAX_RECORDS_PER_SAMPLE - 1) < 1 << 53);
    }
}
