//! What a group of clients does together: those of a process, or all of a card.

use super::counter::{History, WHOLE};
use crate::backend::Utilization;
use crate::backend::drm::engines::{Driver, Work};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeMap;

/// How busy they kept the busiest engine for this work. Unknown where a part of
/// it is, unsupported where no such engine is told or one was seen for the first
/// time.
pub(super) fn share(driver: &Driver, clients: &[&History], work: Work) -> Reading<Percent> {
    if let Some(why) = clients.iter().find_map(|client| client.unknown) {
        return Reading::Failed(why.to_owned());
    }
    let mut engines: BTreeMap<&str, u64> = BTreeMap::new();
    let told = clients.iter().flat_map(|client| &client.shares);
    for (name, share) in told.filter(|(name, _)| driver.role(name).serves(work)) {
        let Reading::Value(share) = share else {
            return share.because();
        };
        let sum = engines.entry(name).or_default();
        *sum = sum.saturating_add(*share);
    }
    let is_told = |name: &str| {
        clients
            .iter()
            .any(|client| client.shares.contains_key(name))
    };
    if driver.may_hide(work, is_told) {
        return Reading::Unsupported;
    }
    let is_never_told = !driver.only_when_used || !driver.tells(work) || clients.is_empty();
    match engines.values().max() {
        Some(most) => Reading::Value(percent(*most)),
        None if is_never_told => Reading::Unsupported,
        None => Reading::Value(Percent(0)),
    }
}

/// How busy all clients of a card kept it. What those did that were seen for the
/// first time is left out: each start of a process would make it unknown. Where
/// the others did nothing, it is: these may have.
pub(super) fn of_all(driver: &Driver, clients: &[&History], work: Work) -> Reading<Percent> {
    let is_new = |client: &&History| {
        let mut told = client.shares.iter();
        told.any(|(name, share)| driver.role(name).serves(work) && *share == Reading::Unsupported)
    };
    let (new, known): (Vec<&History>, Vec<&History>) = clients.iter().copied().partition(is_new);
    match share(driver, &known, work) {
        Reading::Value(Percent(0)) if !new.is_empty() => Reading::Unsupported,
        told => told,
    }
}

/// To the nearest one.
fn percent(millionths: u64) -> Percent {
    let rounded = (millionths.min(WHOLE) + WHOLE / 200) / (WHOLE / 100);
    Percent(u32::try_from(rounded).unwrap_or(100))
}

/// All three kinds of work of one process.
pub(super) fn utilization(driver: &Driver, clients: &[&History]) -> Utilization {
    Utilization {
        sm: share(driver, clients, Work::Main),
        memory: Reading::Unsupported,
        encoder: share(driver, clients, Work::Encode),
        decoder: share(driver, clients, Work::Decode),
        at: None,
    }
}

/// All of them together; unknown where a part is, unsupported where there is
/// none.
pub(super) fn sum<'a>(parts: impl IntoIterator<Item = &'a Reading<Bytes>>) -> Reading<Bytes> {
    let parts = parts.into_iter().cloned();
    let sum = parts.reduce(|sum, part| sum.both(part, plus));
    sum.unwrap_or(Reading::Unsupported)
}

fn plus(one: Bytes, other: Bytes) -> Reading<Bytes> {
    let sum = one.0.checked_add(other.0).map(Bytes);
    sum.map_or_else(
        || Reading::Failed("too much to count".into()),
        Reading::Value,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_known_only_where_every_part_is() {
        let value = |bytes| Reading::Value(Bytes(bytes));
        let failed = || Reading::Failed("x".to_owned());
        let cases = [
            (vec![], Reading::Unsupported),
            (vec![value(0)], value(0)),
            (vec![value(2), value(3)], value(5)),
            (vec![value(2), Reading::Unsupported], Reading::Unsupported),
            (vec![Reading::Unsupported, value(2)], Reading::Unsupported),
            (vec![value(2), failed(), value(3)], failed()),
            (vec![failed(), Reading::Unsupported], failed()),
            (vec![Reading::Unsupported, failed()], failed()),
            (
                vec![value(u64::MAX), value(1)],
                Reading::Failed("too much to count".into()),
            ),
        ];
        for (parts, expected) in cases {
            assert_eq!(sum(&parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn a_share_is_the_nearest_percent_and_never_more_than_all() {
        let cases = [
            (0, 0),
            (4_999, 0),
            (5_000, 1),
            (994_999, 99),
            (WHOLE, 100),
            (u64::MAX, 100),
        ];
        for (millionths, expected) in cases {
            assert_eq!(percent(millionths), Percent(expected), "{millionths}");
        }
    }
}
