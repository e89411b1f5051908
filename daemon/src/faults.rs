//! What is broken, and since when, and which devices are above a threshold. A fault
//! is named by its part and its words, so words must not change while it is the same.

use crate::catalogue::tell;
use gpukill_policy::alert::{self, Change, Memory, Step, Thresholds};
use gpukill_proto::reading::IMPOSSIBLE;
use gpukill_proto::snapshot::{Fault, FaultCode, Snapshot};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is wrong with a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FaultCause {
    pub(crate) code: FaultCode,
    /// What is wrong, and what to do where that is known.
    pub(crate) what: String,
}

impl FaultCause {
    pub(crate) fn new(code: FaultCode, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { code, what }
    }

    pub(crate) fn found_in(self, part: impl Into<String>) -> FoundFault {
        let part = part.into();
        FoundFault { part, cause: self }
    }
}

/// A fault that a poll found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundFault {
    pub(crate) part: String,
    pub(crate) cause: FaultCause,
}

impl FoundFault {
    pub(crate) fn new(part: impl Into<String>, code: FaultCode, what: impl Into<String>) -> Self {
        FaultCause::new(code, what).found_in(part)
    }
}

/// Remembers when each present fault began.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// By its part and its words without what may change in them.
    present: BTreeMap<(String, String), Fault>,
}

/// Remembers which devices are above a threshold.
#[derive(Debug, Default)]
pub(crate) struct Alerts(Memory);

/// The most faults that are kept and told; a box with more has one problem.
const MOST: usize = 200;

impl Faults {
    /// Takes the faults that are present now, and returns them with their
    /// beginnings. Each is logged once when it comes and once when it goes.
    pub(crate) fn update(&mut self, present: Vec<FoundFault>, now: Timestamp) -> Vec<Fault> {
        let mut before = std::mem::take(&mut self.present);
        for FoundFault { part, cause } in present.into_iter().take(MOST) {
            let FaultCause { code, what } = cause;
            let key = (part.clone(), lasting_words(&what).to_owned());
            // Its words stay those with which it began.
            let fault = before.remove(&key).unwrap_or_else(|| {
                tell!(FaultBegins, part, what);
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
            tell!(FaultOver, part, what);
        }
        self.present.values().cloned().collect()
    }
}

/// The words of a fault without an impossible value, which may be another at each poll.
fn lasting_words(what: &str) -> &str {
    let end = what.find(IMPOSSIBLE).map(|start| start + IMPOSSIBLE.len());
    end.and_then(|end| what.get(..end)).unwrap_or(what)
}

impl Alerts {
    /// Looks at the devices of this poll, and returns the alerts that last, two of a
    /// device at most, as faults. Each is logged once when it begins and once when it
    /// is over.
    pub(crate) fn update(&mut self, thresholds: &Thresholds, snapshot: &Snapshot) -> Vec<Fault> {
        for change in alert::judge(thresholds, &mut self.0, snapshot) {
            log(&change);
        }
        let alerts = self.0.lasting();
        alerts
            .map(|alert| Fault {
                part: alert.part(),
                code: alert.quantity.fault_code(),
                what: alert.what(),
                since: alert.since,
            })
            .collect()
    }
}

fn log(Change { alert, step }: &Change) {
    let (gpu, gpu_uuid, what) = (alert.index, alert.device.0.as_str(), alert.what());
    let (quantity, limit) = (alert.quantity.name(), alert.limit);
    let (value, why) = match *step {
        Step::Begins(value) => {
            tell!(AlertBegins, gpu, gpu_uuid, quantity, value, limit; "alert on GPU {gpu}: {what}");
            return;
        }
        Step::Over(value) => (Some(value), None),
        Step::OtherThreshold => (None, Some("this threshold holds no more")),
        Step::Gone => (None, Some("the GPU is gone")),
    };
    tell!(
        AlertOver, gpu, gpu_uuid, quantity, value, limit, why;
        "alert is over on GPU {gpu}: {what}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_while_the_impossible_value_in_it_changes() {
        let mut faults = Faults::default();
        let words = |value: &str| format!("power: {IMPOSSIBLE}: {value}");
        let mut told = |value: &str, now| {
            let present = vec![FoundFault::new(
                "GPU 0",
                FaultCode::ReadingFailed,
                words(value),
            )];
            let faults = faults.update(present, Timestamp(now));
            let told = faults.into_iter().map(|fault| (fault.what, fault.since));
            told.collect::<Vec<_>>()
        };
        let first = vec![(words("-1"), Timestamp(1))];
        assert_eq!(told("-1", 1), first);
        assert_eq!(told("-2", 2), first);
    }

    #[test]
    fn a_fault_keeps_its_beginning_until_it_is_over() {
        let mut faults = Faults::default();
        let fault = || vec![FoundFault::new("store", FaultCode::DiskFull, "disk full")];
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
