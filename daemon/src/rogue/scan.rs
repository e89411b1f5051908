//! Scans the stored samples for rogue processes.

use super::RogueStatus;
use crate::store::Store;
use gpukill_policy::rogue::rules::RogueRules;
use gpukill_policy::rogue::scan::HistoryScan;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::{RogueFinding, ScanReport};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The suspicious processes since this moment, as far as `is_reported` lets the caller see them. Stops
/// when the result is no longer wanted. Waits for the disk.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn scan(
    store: &Store,
    rules: RogueRules,
    since: Timestamp,
    (snapshot, status): (&Snapshot, &RogueStatus),
    is_reported: &dyn Fn(&RogueFinding) -> bool,
    is_wanted: &dyn Fn() -> bool,
) -> Result<ScanReport, Refusal> {
    let mut scan = HistoryScan::new(rules, since);
    for finding in store.findings_since(since, None)? {
        scan.add_recorded(RogueFinding {
            is_present: false,
            ..finding
        });
    }
    store.guard_samples((since, snapshot.taken_at), &mut |sample, _| {
        if !is_wanted() {
            return ControlFlow::Break(());
        }
        scan.add(&sample);
        ControlFlow::Continue(())
    })?;
    if !is_wanted() {
        // The caller has gone.
        return Err(Refusal::Expired);
    }
    let living = current_findings(snapshot, status);
    Ok(scan.finish(&living, snapshot.taken_at, is_reported))
}

/// The processes that use a device now, with their findings.
fn current_findings(
    snapshot: &Snapshot,
    status: &RogueStatus,
) -> BTreeMap<ProcessKey, Option<RogueFinding>> {
    let keys = snapshot.processes.iter().filter_map(GpuProcess::key);
    let mut living: BTreeMap<ProcessKey, Option<RogueFinding>> = keys
        // For a process that was not assessed yet, the stored findings count.
        .filter(|key| status.assessments.contains_key(key))
        .map(|key| (key, None))
        .into_map();
    for finding in &status.findings {
        if let Some(found) = living.get_mut(&finding.process) {
            *found = Some(RogueFinding {
                last_seen: snapshot.taken_at,
                ..finding.clone()
            });
        }
    }
    living
}
