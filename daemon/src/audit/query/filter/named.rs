//! Runs of the processes that a question names, found by an index.

use super::super::Failure;
use super::super::range::Level;
use super::{Extent, RunRow, Scope};
use gpukill_policy::select::is_user;
use rusqlite::{Connection, params};

/// Processes of a job, in a container, of a user by number or by name, and of some
/// names, as JSON. `?3` is what was typed. Some that are not meant may be among them.
const OF_JOB: &str = "SELECT id FROM process WHERE job = ?3";
const IN_CONTAINER: &str = "SELECT id FROM process WHERE container_name = ?3
    UNION SELECT id FROM process WHERE container IS NOT NULL
    AND substr(container, instr(container, '/') + 1) >= substr(?3, instr(?3, '/') + 1)
    AND substr(container, instr(container, '/') + 1)
        < substr(?3, instr(?3, '/') + 1) || char(1114111)";
const OF_NUMBER: &str = "SELECT id FROM process WHERE uid = CAST(?3 AS INTEGER)
    UNION SELECT id FROM process WHERE owner_uid = CAST(?3 AS INTEGER)";
const OF_USER: &str = "SELECT id FROM process WHERE user = ?3
    UNION SELECT id FROM process WHERE owner = ?3";
const OF_NAMES: &str = "SELECT id FROM process WHERE name IN (SELECT value FROM json_each(?3))";

/// Tells of each run in the scope that may have been there in the time asked for,
/// where the scope names processes.
pub(in super::super) fn each_named_run(
    connection: &Connection,
    scope: &Scope<'_>,
    mut tell: impl FnMut(&RunRow<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (named, typed) = named(connection, scope)?;
    let columns = Extent::All.columns(scope);
    // Few devices by the index too, and all of them not.
    let by_index = if scope.devices.len() < scope.all_devices.len() {
        ""
    } else {
        "+"
    };
    // In this order: of processes on other devices, or of another time, nothing is read.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.process IN ({named})
         AND {by_index}r.device IN (SELECT value FROM json_each(?4))
         AND r.first_at < ?2 AND (r.ended_at IS NULL OR r.ended_at >= ?1)"
    ))?;
    // A run that ended before `since` is in the minute or hour that ends after it.
    let since = Level::Hours.reach(scope.filter.since);
    let until = scope.filter.until.0;
    let devices = serde_json::to_string(&scope.devices).unwrap_or_default();
    let mut rows = statement.query(params![since, until, typed, devices])?;
    while let Some(row) = rows.next()? {
        let run = RunRow(row);
        if scope.has(&run)? {
            tell(&run)?;
        }
    }
    Ok(())
}

/// How to find the processes that are named, and by what: of several conditions
/// by that which fewest will meet.
fn named(connection: &Connection, scope: &Scope<'_>) -> Result<(&'static str, String), Failure> {
    let filter = scope.filter;
    if let Some(job) = &filter.job {
        return Ok((OF_JOB, job.clone()));
    }
    if let Some(container) = &filter.container {
        return Ok((IN_CONTAINER, container.clone()));
    }
    if let Some(user) = &filter.user {
        let number: Option<u32> = user.parse().ok();
        let is_number = number.is_some_and(|uid| is_user(user, Some(uid), None));
        let how = if is_number { OF_NUMBER } else { OF_USER };
        return Ok((how, user.clone()));
    }
    let names = names(connection, scope)?;
    Ok((OF_NAMES, serde_json::to_string(&names).unwrap_or_default()))
}

/// The names of processes that are meant.
fn names(connection: &Connection, scope: &Scope<'_>) -> Result<Vec<String>, Failure> {
    // From each to the next one: most processes have the name of many others.
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
        if scope.is_of_name(Some(&name)) {
            names.push(name);
        }
    }
    Ok(names)
}
