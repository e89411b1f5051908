//! Counts since the daemon started: of actions, decisions of the guard, refusals and XID errors. A
//! record that is lost is counted all the same.

use super::Action;
use gpukill_proto::audit::GUARD_REQUEST;
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::model::{DeviceId, GpuEvent};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::{
    ActionCount, CountersReport, DecisionCount, DeviceEnergy, RefusalCount, XidCount,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most pairs of device and XID that are counted individually. The driver chooses both.
const MAX_XID_COUNTS: usize = 256;

/// The counts. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters(Arc<Mutex<Counts>>);

/// All keys but those of XIDs are words of gpukilld, so that their number is bounded.
#[derive(Debug, Default)]
struct Counts {
    /// By kind and result.
    actions: BTreeMap<(&'static str, &'static str), u64>,
    decisions: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    xids: BTreeMap<(Option<DeviceId>, Option<u64>), u64>,
}

pub(super) fn counted_kind(action: &Action) -> &'static str {
    match action.request.starts_with(GUARD_REQUEST) {
        true => ActionCount::GUARD_END,
        false => action.kind.name(),
    }
}

impl Counters {
    pub(super) fn count_action(&self, kind: &'static str, result: &'static str) {
        add_one(&mut self.lock().actions, (kind, result));
    }

    pub(super) fn count_decisions(&self, records: &[GuardRecord]) {
        let mut counts = self.lock();
        for record in records {
            add_one(&mut counts.decisions, record.decision());
        }
    }

    /// Counts the refusal of a call or of a connection.
    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        add_one(&mut self.lock().refusals, refusal.reason());
    }

    /// Counts the XID errors among these events.
    pub(super) fn count_xids(&self, events: &[GpuEvent]) {
        let xids: Vec<_> = events
            .iter()
            .filter_map(|event| Some((event.device.clone(), event.kind.xid()?)))
            .collect();
        if xids.is_empty() {
            return;
        }
        let mut counts = self.lock();
        for (device, xid) in xids {
            let key = (device, Some(xid));
            // One entry is for all that do not fit.
            let has_room = counts.xids.len() < MAX_XID_COUNTS - 1;
            let key = match has_room || counts.xids.contains_key(&key) {
                true => key,
                false => (None, None),
            };
            add_one(&mut counts.xids, key);
        }
    }

    /// All counts, for a caller who may see what every user does, with the energy of these devices.
    pub(crate) fn report(&self, energy: Vec<DeviceEnergy>) -> CountersReport {
        let counts = self.lock();
        CountersReport {
            actions: counts
                .actions
                .iter()
                .map(|((kind, result), count)| ActionCount {
                    kind: (*kind).to_owned(),
                    result: (*result).to_owned(),
                    count: *count,
                })
                .collect(),
            decisions: Reading::Value(
                counts
                    .decisions
                    .iter()
                    .map(|(decision, count)| DecisionCount {
                        decision: (*decision).to_owned(),
                        count: *count,
                    })
                    .collect(),
            ),
            refusals: counts
                .refusals
                .iter()
                .map(|(reason, count)| RefusalCount {
                    reason: (*reason).to_owned(),
                    count: *count,
                })
                .collect(),
            xids: counts
                .xids
                .iter()
                .map(|((device, xid), count)| XidCount {
                    device: device.clone(),
                    xid: *xid,
                    count: *count,
                })
                .collect(),
            energy,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // No code panics while it holds this lock; even then the counts would be right.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ActionKind;
    use gpukill_proto::model::EventKind;
    use gpukill_proto::units::Timestamp;

    fn xid(device: Option<&str>, code: u64) -> GpuEvent {
        GpuEvent {
            device: device.map(|id| DeviceId(id.into())),
            instance: None,
            at: Timestamp(0),
            kind: EventKind::Xid(code),
        }
    }

    #[test]
    fn kills_of_the_guard_have_a_kind_of_their_own() {
        let kill = |request: &str| Action {
            kind: ActionKind::Kill,
            uid: 7,
            request: request.into(),
            plan: String::new(),
        };
        assert_eq!(counted_kind(&kill("48213 --force")), "kill");
        assert_eq!(counted_kind(&kill("guard: default: idle")), "guard_end");
        let counters = Counters::default();
        counters.count_action("kill", "done");
        counters.count_action("kill", "done");
        counters.count_refusal(&Refusal::Busy);
        let report = counters.report(Vec::new());
        assert_eq!(
            report.actions,
            [ActionCount {
                kind: "kill".into(),
                result: "done".into(),
                count: 2,
            }]
        );
        assert_eq!(report.refusals[0].reason, "busy");
    }

    #[test]
    fn xids_are_counted_by_device_and_number_and_are_bounded() {
        let counters = Counters::default();
        let mut other = xid(Some("GPU-0"), 79);
        other.kind = EventKind::MigChange;
        counters.count_xids(&[xid(Some("GPU-0"), 79), other, xid(None, 13)]);
        for code in 0..400 {
            counters.count_xids(&[xid(Some("GPU-1"), code)]);
        }
        counters.count_xids(&[xid(Some("GPU-0"), 79)]);
        let xids = counters.report(Vec::new()).xids;
        assert_eq!(xids.len(), MAX_XID_COUNTS);
        let count = |device: Option<&str>, code| {
            let device = device.map(|id| DeviceId(id.into()));
            let mut same = xids.iter();
            let same = same.find(|it| it.device == device && it.xid == code);
            same.map(|it| it.count)
        };
        assert_eq!(count(Some("GPU-0"), Some(79)), Some(2));
        assert_eq!(count(None, Some(13)), Some(1));
        assert_eq!(count(Some("GPU-1"), Some(0)), Some(1));
        assert_eq!(count(None, None), Some(400 + 2 - 255));
    }
}
