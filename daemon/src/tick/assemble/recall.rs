//! What the store knows of processes that an earlier daemon saw on their devices.

use super::{Memory, RECALL_TIMEOUT};
use crate::audit::{DeviceProcess, PastUse};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

impl Memory {
    /// Whether an earlier daemon may have seen the process, and the store may still say so.
    pub(super) fn may_have_been_seen_before(
        &self,
        started_at: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let is_early =
            |began| now.since(began) < RECALL_TIMEOUT && started_at.is_none_or(|at| at < began);
        self.asks_store && self.began.is_some_and(is_early)
    }

    /// The processes of which the store has not been asked.
    pub(in super::super) fn not_recalled(&self) -> impl Iterator<Item = DeviceProcess> {
        let seen = self.seen.iter();
        seen.filter(|(_, seen)| !seen.is_recalled)
            .map(|(on, _)| on.clone())
    }

    /// Takes in what the store knows of these processes.
    pub(in super::super) fn recall(
        &mut self,
        asked: &[DeviceProcess],
        known: &BTreeMap<DeviceProcess, PastUse>,
    ) {
        for on in asked {
            let Some(seen) = self.seen.get_mut(on) else {
                continue;
            };
            seen.is_recalled = true;
            if let Some(past) = known.get(on) {
                seen.first = seen.first.min(past.first);
                seen.active = seen.active.max(past.active);
            }
        }
    }
}
