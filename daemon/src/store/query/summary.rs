//! Sums up a time span of the history.

mod devices;
mod local_hours;
mod owners;
#[cfg(test)]
mod tests;

use super::super::blob::{DecodedUsage, decode_in_order};
use super::filter::{MayReadCommand, QueryScope};
use super::gaps::GapFinder;
use super::range::{CoveredRows, RollupLevel, covering_rows, for_each_blob};
use super::{Deadline, QueryError, run_query};
use chrono::{Local, TimeZone};
use devices::DeviceSums;
use gpukill_proto::audit::{AuditFilter, AuditSummary};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use local_hours::HourSplit;
use owners::UsageByOwner;
use rusqlite::Connection;
use std::time::SystemTime;

/// Sums up what `filter` selects. `may_read` decides, by user and namespace owner, whether the
/// command line of a process is its label.
pub(in super::super) fn summary(
    connection: &mut Connection,
    filter: &AuditFilter,
    may_read: MayReadCommand<'_>,
) -> Result<AuditSummary, Refusal> {
    run_query(connection, |connection, deadline| {
        let now = Timestamp::from(SystemTime::now());
        summarize(connection, filter, may_read, &Local, now, deadline)
    })
}

/// Sums up in the local time of this zone.
fn summarize(
    connection: &Connection,
    filter: &AuditFilter,
    may_read: MayReadCommand<'_>,
    zone: &impl TimeZone,
    now: Timestamp,
    deadline: Deadline,
) -> Result<AuditSummary, QueryError> {
    // One transaction: rows that are written or deleted meanwhile would otherwise be missing or
    // counted twice.
    let connection = &*connection.unchecked_transaction()?;
    let scope = QueryScope::from_filter(connection, filter, may_read)?;
    let parts = covering_rows(
        connection,
        RollupLevel::Hours,
        filter.since,
        filter.until,
        deadline,
    )?;
    let mut devices = DeviceSums::default();
    let mut people = UsageByOwner::new(connection, &scope, may_read, deadline);
    let mut gaps = GapFinder::new(connection, filter.since)?;
    let mut covered: Option<(Timestamp, Timestamp)> = None;
    for_each_row(connection, &parts, deadline, |level, id, row| {
        let split = HourSplit::from_row(zone, level, row);
        devices.add(&scope, row, &split);
        people.add(row, split.monday())?;
        gaps.add(level, id, (row.from, row.until), row.seen_ms)?;
        let (from, until) = covered.unwrap_or((row.from, row.until));
        covered = Some((from.min(row.from), until.max(row.until)));
        Ok(())
    })?;
    let (since, until) = covered.map_or((filter.since, filter.until), |(from, until)| {
        (from, until.min(filter.until).max(from))
    });
    let mut used = people.finish()?;
    let times = devices.finish(&scope);
    Ok(AuditSummary {
        since,
        until,
        devices: times.devices,
        weeks: used.weeks(times.weeks),
        owners: used.owners,
        more_owners: used.more_owners,
        processes: used.processes,
        more_processes: used.more_processes,
        hours: times.hours,
        days: times.days,
        gaps: gaps.finish(filter.until, now)?,
    })
}

/// Calls `visit` for each row, in order.
pub(super) fn for_each_row(
    connection: &Connection,
    parts: &[CoveredRows],
    deadline: Deadline,
    mut visit: impl FnMut(RollupLevel, i64, &DecodedUsage) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    for CoveredRows { rows, since, until } in parts {
        let time = (*since, *until);
        for_each_blob(connection, *rows, time, deadline, |id, at, blob| {
            // A corrupt row is logged where the rollup reads it, and skipped here.
            match decode_in_order(blob, at) {
                Ok(unpacked) => visit(rows.level, id, &unpacked),
                Err(_) => Ok(()),
            }
        })?;
    }
    Ok(())
}
