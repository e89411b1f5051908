//! Stored observations of processes that an earlier daemon saw on their devices.

use super::{PollState, RECALL_TIMEOUT};
use crate::store::{DeviceProcess, PastUse};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

impl PollState {
    /// Whether an earlier daemon may have observed the process and the store may still report it.
    pub(super) fn may_predate_daemon(&self, started_at: Option<Timestamp>, now: Timestamp) -> bool {
        let is_early =
            |began| now.since(began) < RECALL_TIMEOUT && started_at.is_none_or(|at| at < began);
        self.queries_store && self.started_at.is_some_and(is_early)
    }

    /// The processes that the store was not asked about.
    pub(in super::super) fn unqueried(&self) -> impl Iterator<Item = DeviceProcess> {
        let seen = self.use_times.iter();
        seen.filter(|(_, seen)| !seen.is_queried)
            .map(|(on, _)| on.clone())
    }

    /// Takes the store's answer about these processes.
    pub(in super::super) fn apply_past_use(
        &mut self,
        asked: &[DeviceProcess],
        known: &BTreeMap<DeviceProcess, PastUse>,
    ) {
        for on in asked {
            let Some(seen) = self.use_times.get_mut(on) else {
                continue;
            };
            seen.is_queried = true;
            if let Some(past) = known.get(on) {
                seen.first = seen.first.min(past.first_seen);
                seen.last_active = seen.last_active.max(past.last_active);
            }
        }
    }
}
