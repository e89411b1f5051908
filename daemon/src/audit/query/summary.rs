//! What a stretch of the past comes to.

mod civil;

mod devices;

mod gaps;

mod people;

#[cfg(test)]
mod tests;

use super::super::packed::{Unpacked, read};
use super::filter::Scope;
use super::range::{Level, Part, parts};
use super::{Deadline, Failure, within_time};
use chrono::{Local, TimeZone};
use civil::Split;
use devices::Devices;
use gaps::Gaps;
use gpukill_proto::audit::{AuditFilter, AuditSummary};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use people::People;
use rusqlite::{Connection, params};

/// Whose command lines may be told: of a user, and of who made the process's user
/// namespace.
type MayRead<'a> = &'a dyn Fn(Option<u32>, Option<u32>) -> bool;

/// Adds up what `filter` asks for. Whose command lines may be told, `may_read`
/// says, of a user and a namespace's owner.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(in super::super) fn summary(
    connection: &mut Connection,
    filter: &AuditFilter,
    may_read: MayRead<'_>,
) -> Result<AuditSummary, Refusal> {
    within_time(connection, |connection, deadline| {
        summarize(connection, filter, may_read, &Local, deadline)
    })
}

/// In the civil time of this zone.
fn summarize(
    connection: &Connection,
    filter: &AuditFilter,
    may_read: MayRead<'_>,
    zone: &impl TimeZone,
    deadline: Deadline,
) -> Result<AuditSummary, Failure> {
    // Everything is read as it stands now: what is written or deleted meanwhile
    // would be missing, or be there twice.
    let connection = &*connection.unchecked_transaction()?;
    let scope = Scope::of(connection, filter)?;
    let parts = parts(connection, filter.since, filter.until, deadline)?;
    let mut devices = Devices::default();
    let mut people = People::new(connection, &scope, may_read, deadline);
    let mut gaps = Gaps::new(connection)?;
    let mut told: Option<(Timestamp, Timestamp)> = None;
    each_row(connection, &parts, deadline, |level, id, row| {
        let split = Split::of(zone, level, row);
        devices.add(&scope, row, &split);
        people.add(row, split.week())?;
        gaps.add(level, id, row)?;
        let (from, until) = told.unwrap_or((row.from, row.until));
        told = Some((from.min(row.from), until.max(row.until)));
        Ok(())
    })?;
    let (since, until) = told.map_or((filter.since, filter.until), |(from, until)| {
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
        gaps: gaps.finish(),
    })
}

/// Tells of each row of these parts, in their order.
fn each_row(
    connection: &Connection,
    parts: &[Part],
    deadline: Deadline,
    mut tell: impl FnMut(Level, i64, &Unpacked) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for Part { rows, since, until } in parts {
        // Rows are read by their ids, whose order they must have, not by `at`.
        let mut statement = connection.prepare_cached(&format!(
            "SELECT id, at, usage FROM {}
             WHERE id >= ?1 AND id < ?2 AND +at >= ?3 AND +at < ?4 ORDER BY id",
            rows.level.table()
        ))?;
        let mut found = statement.query(params![rows.first, rows.end, since, until])?;
        while let Some(row) = found.next()? {
            deadline.check()?;
            let (id, at): (i64, i64) = (row.get(0)?, row.get(1)?);
            let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
            // One that is broken is told of where it was found, and left out here.
            if let Ok(unpacked) = read(blob, Timestamp(at)) {
                tell(rows.level, id, &unpacked)?;
            }
        }
    }
    Ok(())
}
