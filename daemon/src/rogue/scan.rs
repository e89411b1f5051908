//! A scan of what the store keeps.

use super::Standing;
use crate::audit::Store;
use gpukill_policy::rogue::rules::Rules;
use gpukill_policy::rogue::scan::Scan;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::{Finding, ScanReport};
use gpukill_proto::snapshot::{GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Who may have been up to no good since this moment, of those whom `is_told` lets the
/// asker see. Ends when nobody wants it any more. Waits for the disk.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn scan(
    store: &Store,
    rules: Rules,
    since: Timestamp,
    (snapshot, standing): (&Snapshot, &Standing),
    is_told: &dyn Fn(&Finding) -> bool,
    is_wanted: &dyn Fn() -> bool,
) -> Result<ScanReport, Refusal> {
    let mut scan = Scan::new(rules, since);
    for finding in store.found_since(since, None)? {
        scan.was_found(Finding {
            is_present: false,
            ..finding
        });
    }
    store.buckets((since, snapshot.taken_at), &mut |bucket, _| {
        if !is_wanted() {
            return ControlFlow::Break(());
        }
        scan.add(&bucket);
        ControlFlow::Continue(())
    })?;
    if !is_wanted() {
        // Nobody reads this.
        return Err(Refusal::Expired);
    }
    let living = living(snapshot, standing);
    Ok(scan.finish(&living, snapshot.taken_at, is_told))
}

/// Who uses a device now, and what was found of them.
fn living(snapshot: &Snapshot, standing: &Standing) -> BTreeMap<ProcessKey, Option<Finding>> {
    let keys = snapshot.processes.iter().filter_map(GpuProcess::key);
    let mut living: BTreeMap<ProcessKey, Option<Finding>> = keys
        // Of whom was not looked at yet what is recorded counts.
        .filter(|key| standing.looked.contains_key(key))
        .map(|key| (key, None))
        .into_map();
    for finding in &standing.findings {
        if let Some(found) = living.get_mut(&finding.process) {
            *found = Some(Finding {
                last_seen: snapshot.taken_at,
                ..finding.clone()
            });
        }
    }
    living
}
