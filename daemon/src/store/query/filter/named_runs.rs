//! Finds the runs of the processes that a query names, by an index.

use super::super::QueryError;
use super::super::range::RollupLevel;
use super::{QueryScope, RunColumns, RunRow};
use gpukill_policy::select::names_user;
use rusqlite::{Connection, params};

/// Processes by job, container, numeric or named user, or by a JSON list of names. `?3` is the
/// argument. The result may include processes that do not match.
const SELECT_BY_JOB: &str = "SELECT id FROM process WHERE job = ?3";
const SELECT_BY_CONTAINER: &str = "SELECT id FROM process WHERE container_name = ?3
    UNION SELECT id FROM process WHERE container IS NOT NULL
    AND substr(container, instr(container, '/') + 1) >= substr(?3, instr(?3, '/') + 1)
    AND substr(container, instr(container, '/') + 1)
        < substr(?3, instr(?3, '/') + 1) || char(1114111)";
const SELECT_BY_UID: &str = "SELECT id FROM process WHERE uid = CAST(?3 AS INTEGER)
    UNION SELECT id FROM process WHERE owner_uid = CAST(?3 AS INTEGER)";
const SELECT_BY_USER: &str = "SELECT id FROM process WHERE user = ?3
    UNION SELECT id FROM process WHERE owner = ?3";
const SELECT_BY_NAMES: &str =
    "SELECT id FROM process WHERE name IN (SELECT value FROM json_each(?3))";

/// Calls `visit` for each run in the scope that may overlap the requested time. The scope must
/// select processes.
pub(in super::super) fn for_each_named_run(
    connection: &Connection,
    scope: &QueryScope<'_>,
    mut visit: impl FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let (named, typed) = process_condition(connection, scope)?;
    let columns = RunColumns::All.columns(scope);
    // Few devices also by the index; all devices without it.
    let by_index = if scope.devices.len() < scope.all_devices.len() {
        ""
    } else {
        "+"
    };
    // In this join order, no run of other devices or other times is read.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.process IN ({named})
         AND {by_index}r.device IN (SELECT value FROM json_each(?4))
         AND r.first_at < ?2 AND (r.ended_at IS NULL OR r.ended_at >= ?1)"
    ))?;
    // A run that ended before `since` is in the minute or hour that ends after it.
    let since = RollupLevel::Hours.earliest_start(scope.filter.since);
    let until = scope.filter.until.0;
    let devices = serde_json::to_string(&scope.devices).unwrap_or_default();
    let mut rows = statement.query(params![since, until, typed, devices])?;
    while let Some(row) = rows.next()? {
        let run = RunRow(row);
        if scope.contains(&run)? {
            visit(&run)?;
        }
    }
    Ok(())
}

/// The condition that finds the processes, with its argument. Of several filters the most selective
/// one is used.
fn process_condition(
    connection: &Connection,
    scope: &QueryScope<'_>,
) -> Result<(&'static str, String), QueryError> {
    let filter = scope.filter;
    if let Some(job) = &filter.job {
        return Ok((SELECT_BY_JOB, job.clone()));
    }
    if let Some(container) = &filter.container {
        return Ok((SELECT_BY_CONTAINER, container.clone()));
    }
    if let Some(user) = &filter.user {
        let number: Option<u32> = user.parse().ok();
        let is_number = number.is_some_and(|uid| names_user(user, Some(uid), None));
        let condition = if is_number {
            SELECT_BY_UID
        } else {
            SELECT_BY_USER
        };
        return Ok((condition, user.clone()));
    }
    let names = matching_names(connection, scope)?;
    Ok((
        SELECT_BY_NAMES,
        serde_json::to_string(&names).unwrap_or_default(),
    ))
}

/// The process names that match the pattern.
fn matching_names(
    connection: &Connection,
    scope: &QueryScope<'_>,
) -> Result<Vec<String>, QueryError> {
    // Steps from each name to the next one: most processes share their name with many others.
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE each(name) AS (
             SELECT min(name) FROM process
             UNION ALL
             SELECT (SELECT min(name) FROM process WHERE name > each.name) FROM each
             WHERE each.name IS NOT NULL)
         SELECT name FROM each WHERE name IS NOT NULL",
    )?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if scope.matches_name(Some(&name)) {
            names.push(name);
        }
    }
    Ok(names)
}
