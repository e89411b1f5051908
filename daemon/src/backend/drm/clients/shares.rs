//! Combines the activity of a group of clients: those of a process, or all of a card.

use super::counter::{CounterHistory, FULL_SHARE};
use crate::backend::Utilization;
use crate::backend::drm::engines::{Driver, EngineWork};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeMap;

/// The share of the busiest engine for this work. Failed if one part is; unsupported if no such
/// engine is reported or one was observed for the first time.
pub(super) fn busiest_engine_share(
    driver: &Driver,
    clients: &[&CounterHistory],
    work: EngineWork,
) -> Reading<Percent> {
    if let Some(why) = clients.iter().find_map(|client| client.unknown_reason) {
        return Reading::Failed(why.to_owned());
    }
    let mut engines: BTreeMap<&str, u64> = BTreeMap::new();
    let shares = clients.iter().flat_map(|client| &client.shares);
    for (name, share) in shares.filter(|(name, _)| driver.role(name).serves(work)) {
        let Reading::Value(share) = share else {
            return share.as_unknown();
        };
        let sum = engines.entry(name).or_default();
        *sum = sum.saturating_add(*share);
    }
    let is_reported = |name: &str| {
        clients
            .iter()
            .any(|client| client.shares.contains_key(name))
    };
    if driver.may_hide_work(work, is_reported) {
        return Reading::Unsupported;
    }
    let is_never_reported =
        !driver.omits_unused_engines || !driver.reports_work(work) || clients.is_empty();
    match engines.values().max() {
        Some(busiest) => Reading::Value(percent(*busiest)),
        None if is_never_reported => Reading::Unsupported,
        None => Reading::Value(Percent(0)),
    }
}

/// The share by all clients of a card. The share of new clients is left out: otherwise each start
/// of a process would make the card's share unknown. If the others were idle the result is unknown:
/// the new clients may have worked.
pub(super) fn busiest_engine_share_of_card(
    driver: &Driver,
    clients: &[&CounterHistory],
    work: EngineWork,
) -> Reading<Percent> {
    let is_new = |client: &&CounterHistory| {
        let mut shares = client.shares.iter();
        shares.any(|(name, share)| driver.role(name).serves(work) && *share == Reading::Unsupported)
    };
    let (new, known): (Vec<&CounterHistory>, Vec<&CounterHistory>) =
        clients.iter().copied().partition(is_new);
    match busiest_engine_share(driver, &known, work) {
        Reading::Value(Percent(0)) if !new.is_empty() => Reading::Unsupported,
        shares => shares,
    }
}

/// Rounds to the nearest percent.
fn percent(millionths: u64) -> Percent {
    let rounded = (millionths.min(FULL_SHARE) + FULL_SHARE / 200) / (FULL_SHARE / 100);
    Percent(u32::try_from(rounded).unwrap_or(100))
}

/// The shares of all three kinds of work for one process.
pub(super) fn process_utilization(driver: &Driver, clients: &[&CounterHistory]) -> Utilization {
    Utilization {
        sm: busiest_engine_share(driver, clients, EngineWork::Main),
        memory: Reading::Unsupported,
        encoder: busiest_engine_share(driver, clients, EngineWork::Encode),
        decoder: busiest_engine_share(driver, clients, EngineWork::Decode),
        sampled_at: None,
    }
}

/// The sum of all parts; unknown where one part is, unsupported where there are none.
pub(super) fn sum_bytes<'a>(parts: impl IntoIterator<Item = &'a Reading<Bytes>>) -> Reading<Bytes> {
    let parts = parts.into_iter().cloned();
    let sum = parts.reduce(|sum, part| sum.combine(part, add_bytes));
    sum.unwrap_or(Reading::Unsupported)
}

fn add_bytes(one: Bytes, other: Bytes) -> Reading<Bytes> {
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
    fn sum_needs_every_part() {
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
            assert_eq!(sum_bytes(&parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn share_is_rounded_and_capped() {
        let cases = [
            (0, 0),
            (4_999, 0),
            (5_000, 1),
            (994_999, 99),
            (FULL_SHARE, 100),
            (u64::MAX, 100),
        ];
        for (millionths, expected) in cases {
            assert_eq!(percent(millionths), Percent(expected), "{millionths}");
        }
    }
}
