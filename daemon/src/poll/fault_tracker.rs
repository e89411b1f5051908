//! Faults with their start times, and devices above a threshold. A fault is identified by its part
//! and its text, so the text must not change while the fault lasts.

use crate::fault::{FaultCause, PartFault};
use crate::log_events::event;
use gpukill_policy::alert::{self, AlertChange, AlertState, AlertTransition, Thresholds};
use gpukill_proto::model::{Fault, Snapshot};
use gpukill_proto::reading::IMPOSSIBLE;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// The present faults with their start times.
#[derive(Debug, Default)]
pub(super) struct FaultTracker {
    /// By the part and the text without its variable values.
    present: BTreeMap<(String, String), Fault>,
}

/// The devices above a threshold.
#[derive(Debug, Default)]
pub(super) struct AlertTracker(AlertState);

/// The most faults that are kept and reported; a host with more has one underlying problem.
const MAX_FAULTS: usize = 200;

impl FaultTracker {
    /// Takes the faults that are present now and returns them with their start times. Logs each
    /// when it starts and when it ends.
    pub(super) fn update(&mut self, present: Vec<PartFault>, now: Timestamp) -> Vec<Fault> {
        let mut before = std::mem::take(&mut self.present);
        for PartFault { part, cause } in present.into_iter().take(MAX_FAULTS) {
            let FaultCause { code, what } = cause;
            let key = (part.clone(), stable_text(&what).to_owned());
            // The text stays as it was at the start.
            let fault = before.remove(&key).unwrap_or_else(|| {
                event!(FaultStarted, part, what);
                Fault {
                    part,
                    code,
                    what,
                    since: now,
                }
            });
            self.present.entry(key).or_insert(fault);
        }
        for Fault { part, what, .. } in before.values() {
            event!(FaultOver, part, what);
        }
        self.present.values().cloned().collect()
    }
}

/// The text of a fault up to an implausible value, which may differ at each poll.
fn stable_text(what: &str) -> &str {
    let end = what.find(IMPOSSIBLE).map(|start| start + IMPOSSIBLE.len());
    end.and_then(|end| what.get(..end)).unwrap_or(what)
}

impl AlertTracker {
    /// Evaluates the devices of this poll and returns the lasting alerts as faults, at most two per
    /// device. Logs each alert when it starts and when it ends.
    pub(super) fn update(&mut self, thresholds: &Thresholds, snapshot: &Snapshot) -> Vec<Fault> {
        for change in alert::evaluate(thresholds, &mut self.0, snapshot) {
            log_alert_change(&change);
        }
        let alerts = self.0.active();
        alerts
            .map(|alert| Fault {
                part: alert.part(),
                code: alert.quantity.fault_code(),
                what: alert.description(),
                since: alert.since,
            })
            .collect()
    }
}

fn log_alert_change(
    AlertChange {
        alert,
        transition: step,
    }: &AlertChange,
) {
    let (gpu, gpu_uuid, what) = (alert.index, alert.device.0.as_str(), alert.description());
    let (quantity, limit) = (alert.quantity.name(), alert.limit);
    let (value, why) = match *step {
        AlertTransition::Started(value) => {
            event!(
                AlertStarted, gpu, gpu_uuid, quantity, value, limit;
                "alert on GPU {gpu}: {what}"
            );
            return;
        }
        AlertTransition::Ended(value) => (Some(value), None),
        AlertTransition::ThresholdChanged => (None, Some("this threshold no longer applies")),
        AlertTransition::DeviceGone => (None, Some("the GPU is gone")),
    };
    event!(
        AlertOver, gpu, gpu_uuid, quantity, value, limit, why;
        "alert is over on GPU {gpu}: {what}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::FaultCode;

    #[test]
    fn fault_lasts_while_its_value_changes() {
        let mut faults = FaultTracker::default();
        let words = |value: &str| format!("power: {IMPOSSIBLE}: {value}");
        let mut update = |value: &str, now| {
            let present = vec![PartFault::new(
                "GPU 0",
                FaultCode::ReadingFailed,
                words(value),
            )];
            let faults = faults.update(present, Timestamp(now));
            let pairs = faults.into_iter().map(|fault| (fault.what, fault.since));
            pairs.collect::<Vec<_>>()
        };
        let first = vec![(words("-1"), Timestamp(1))];
        assert_eq!(update("-1", 1), first);
        assert_eq!(update("-2", 2), first);
    }

    #[test]
    fn fault_keeps_its_start() {
        let mut faults = FaultTracker::default();
        let fault = || vec![PartFault::new("store", FaultCode::DiskFull, "disk full")];
        let since = |faults: Vec<Fault>| faults.first().map(|fault| fault.since);
        assert_eq!(
            since(faults.update(fault(), Timestamp(1))),
            Some(Timestamp(1))
        );
        assert_eq!(
            since(faults.update(fault(), Timestamp(2))),
            Some(Timestamp(1))
        );
        assert_eq!(since(faults.update(Vec::new(), Timestamp(3))), None);
        assert_eq!(
            since(faults.update(fault(), Timestamp(4))),
            Some(Timestamp(4))
        );
    }
}
