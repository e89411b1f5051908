//! What is broken, and since when. A fault is named by its part and its words,
//! so words must not change while the fault is the same.

use crate::catalogue::tell;
use gpukill_proto::snapshot::Fault;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// Remembers when each present fault began.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    since: BTreeMap<(String, String), Timestamp>,
}

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
