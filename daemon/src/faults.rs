//! What is broken, and since when, and which devices are above a threshold. A fault
//! is named by its part and its words, so words must not change while it is the same.

use crate::catalogue::tell;
use gpukill_policy::alert::{self, Change, Memory, Step, Thresholds};
use gpukill_proto::snapshot::{Fault, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// Remembers when each present fault began.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    since: BTreeMap<(String, String), Timestamp>,
}

/// Remembers which devices are above a threshold.
#[derive(Debug, Default)]
pub(crate) struct Alerts(Memory);

/// The most faults that are kept and told; a box with more has one problem.
const MOST: usize = 200;

impl Faults {
    /// Takes the faults that are present now, and returns them with their
    /// beginnings. Each is logged once when it comes and once when it goes.
    pub(crate) fn update(&mut self, present: Vec<(String, String)>, now: Timestamp) -> Vec<Fault> {
        let mut since = BTreeMap::new();
        for fault in present.into_iter().take(MOST) {
            let began = self.since.get(&fault).copied().unwrap_or_else(|| {
                tell!(FaultBegins, part = fault.0, what = fault.1);
                now
            });
            since.insert(fault, began);
        }
        for (part, what) in self
            .since
            .keys()
            .filter(|fault| !since.contains_key(*fault))
        {
            tell!(FaultOver, part, what);
        }
        self.since = since;
        let faults = self.since.iter();
        faults
            .map(|((part, what), since)| Fault {
                part: part.clone(),
                what: what.clone(),
                since: *since,
            })
            .collect()
    }
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
    fn a_fault_keeps_its_beginning_until_it_is_over() {
        let mut faults = Faults::default();
        let fault = || vec![("store".to_owned(), "disk full".to_owned())];
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
