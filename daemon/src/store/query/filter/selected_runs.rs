//! Finds the runs of a query that overlap its time, by an index.

use super::super::super::sql_values::ids_json;
use super::super::QueryError;
use super::super::range::RollupLevel;
use super::{QueryScope, RunColumns, RunRow, visit_selected};
use gpukill_policy::select::user_number;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use serde_json::json;

/// Processes by job, container, or numbers and names of users. `?3` is the argument. The result may
/// include processes that do not match.
const SELECT_BY_JOB: &str = "SELECT id FROM process WHERE job = ?3";
const SELECT_BY_CONTAINER: &str = "SELECT id FROM process WHERE container_name = ?3
    UNION SELECT id FROM process WHERE container IS NOT NULL
    AND substr(container, instr(container, '/') + 1) >= substr(?3, instr(?3, '/') + 1)
    AND substr(container, instr(container, '/') + 1)
        < substr(?3, instr(?3, '/') + 1) || char(1114111)";
const SELECT_BY_USERS: &str =
    "SELECT id FROM process WHERE uid IN (SELECT value FROM json_each(?3, '$.uids'))
    UNION SELECT id FROM process WHERE owner_uid IN (SELECT value FROM json_each(?3, '$.uids'))
    UNION SELECT id FROM process WHERE user IN (SELECT value FROM json_each(?3, '$.names'))
    UNION SELECT id FROM process WHERE owner IN (SELECT value FROM json_each(?3, '$.names'))";

/// By pid; the index needs the boot of the host too.
const SELECT_BY_PID: &str = "WITH RECURSIVE each(boot) AS (
        SELECT min(boot) FROM process
        UNION ALL
        SELECT (SELECT min(boot) FROM process WHERE boot > each.boot) FROM each
        WHERE each.boot IS NOT NULL)
    SELECT id FROM process WHERE boot IN (SELECT boot FROM each WHERE boot IS NOT NULL)
    AND pid = CAST(?3 AS INTEGER)";

/// Calls `visit` for each run in the scope that may overlap the requested time.
pub(in super::super) fn for_each_selected_run(
    connection: &Connection,
    scope: &QueryScope<'_>,
    extent: RunColumns,
    mut visit: impl FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    // A run that ended before `since` is in the minute or hour that ends after it.
    let since = Timestamp(RollupLevel::Hours.earliest_start(scope.filter.since));
    let until = scope.filter.until;
    let (select, typed) = selected_runs_statement(connection, scope, extent, (since, until))?;
    let mut statement = connection.prepare_cached(&select)?;
    let devices = serde_json::to_string(&scope.devices).unwrap_or_default();
    let rows = statement.query(params![since.0, until.0, typed, devices])?;
    visit_selected(rows, scope, &mut visit)
}

/// Calls `visit` for each of these runs that is in the scope, whatever its times.
pub(in super::super) fn for_each_run_in(
    connection: &Connection,
    scope: &QueryScope<'_>,
    ids: &[i64],
    visit: &mut dyn FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let columns = RunColumns::All.columns(scope);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.id IN (SELECT value FROM json_each(?1))"
    ))?;
    visit_selected(statement.query([ids_json(ids)])?, scope, visit)
}

/// The statement that selects these runs, with its argument `?3`.
fn selected_runs_statement(
    connection: &Connection,
    scope: &QueryScope<'_>,
    extent: RunColumns,
    (since, until): (Timestamp, Timestamp),
) -> Result<(String, Option<String>), QueryError> {
    let columns = extent.columns(scope);
    let (named, typed) = match process_condition(scope) {
        Some((select, typed)) => (format!("r.process IN ({select})"), typed),
        // Patterns are compared with each run of that time.
        None => ("?3 IS NULL".to_owned(), None),
    };
    // Few devices also by the index; all devices without it. Without a process, by the index of
    // the starts or of the ends.
    let by_device = if typed.is_some() && scope.devices.len() < scope.all_devices.len() {
        ""
    } else {
        "+"
    };
    let [by_start, by_end] = match &typed {
        Some(_) => ["+", "+"],
        None => shorter_index(connection, since, until)?,
    };
    // In this join order, no run of other devices or other times is read.
    let select = format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE {named}
         AND {by_device}r.device IN (SELECT value FROM json_each(?4))
         AND {by_start}r.first_at < ?2
         AND ({by_end}r.ended_at IS NULL OR {by_end}r.ended_at >= ?1)"
    );
    Ok((select, typed))
}

/// The condition that finds the processes, with its argument; `None` if only patterns or groups
/// select them.
/// Of several filters the most selective one is used.
pub(in super::super) fn process_condition(
    scope: &QueryScope<'_>,
) -> Option<(&'static str, Option<String>)> {
    let filter = scope.filter;
    if let Some(pid) = scope.pid {
        return Some((SELECT_BY_PID, Some(pid.to_string())));
    }
    if let Some(job) = &filter.job {
        return Some((SELECT_BY_JOB, Some(job.clone())));
    }
    if let Some(container) = &filter.container {
        return Some((SELECT_BY_CONTAINER, Some(container.clone())));
    }
    let users = filter.user.as_ref()?.split(',').map(str::trim);
    let (mut uids, mut names) = (Vec::new(), Vec::new());
    for user in users {
        match user_number(user) {
            Some(uid) => uids.push(uid),
            None => names.push(user),
        }
    }
    let users = json!({ "uids": uids, "names": names }).to_string();
    Some((SELECT_BY_USERS, Some(users)))
}

/// Prefixes of the columns of the start and the end of a run that make SQLite use the index that
/// leads to fewer rows, or neither if most rows are wanted: then reading the table is faster.
pub(in super::super) fn shorter_index(
    connection: &Connection,
    since: Timestamp,
    until: Timestamp,
) -> Result<[&'static str; 2], QueryError> {
    let select = "SELECT (SELECT min(first_at) FROM run), (SELECT max(first_at) FROM run)";
    let mut statement = connection.prepare_cached(select)?;
    let ends = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (first, last): (Option<i64>, Option<i64>) = ends;
    let (first, last) = (first.unwrap_or(i64::MIN), last.unwrap_or(i64::MAX));
    let (first, last) = (Timestamp(first), Timestamp(last));
    let (started_before, ended_after) = (until.since(first), last.since(since));
    let are_most = started_before.min(ended_after) > last.since(first) / 2;
    Ok(match (are_most, started_before < ended_after) {
        (true, _) => ["+", "+"],
        (false, true) => ["", "+"],
        (false, false) => ["+", ""],
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::sample_store::{HOUR, MONDAY, SampleStore, between, device, process};
    use super::*;
    use gpukill_proto::audit::AuditFilter;
    use gpukill_proto::model::GpuProcess;
    use gpukill_proto::reading::Reading;

    const DAY: i64 = 24 * HOUR;

    /// Asserts that all runs that a filter selects are found by this index.
    fn assert_index(store: &SampleStore, filter: &AuditFilter, index: &str) {
        let connection = &store.opened.connection;
        let scope = QueryScope::from_filter(connection, filter, &|_, _| true);
        let scope = scope.ok().unwrap();
        let period = (filter.since, filter.until);
        let made = selected_runs_statement(connection, &scope, RunColumns::All, period);
        let (select, typed) = made.ok().unwrap();
        let mut explain = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {select}"))
            .unwrap();
        let values = params![filter.since.0, filter.until.0, typed, "[1]"];
        let steps = explain
            .query_map(values, |row| row.get::<_, String>(3))
            .unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let is_of_runs = |step: &&String| step.contains(" r ") || step.ends_with(" r");
        let mut of_runs = steps.iter().filter(is_of_runs).peekable();
        assert!(of_runs.peek().is_some(), "{steps:?}");
        let by_index = format!("SEARCH r USING INDEX {index} (");
        assert!(of_runs.all(|step| step.starts_with(&by_index)), "{steps:?}");
    }

    #[test]
    fn runs_are_found_by_the_index_with_fewer_rows() {
        let mut store = SampleStore::new();
        for day in 0..10_u32 {
            let at = MONDAY + i64::from(day) * DAY;
            let process = GpuProcess {
                first_seen: Reading::Value(Timestamp(at)),
                ..process(0, day + 1, "alice", 50)
            };
            store.sample(at, 10_000, vec![device(0, 50, 100)], vec![process]);
        }
        let newest = between(MONDAY + 9 * DAY, MONDAY + 10 * DAY);
        assert_index(&store, &newest, "run_ended");
        assert_index(&store, &between(MONDAY, MONDAY + DAY), "run_first");
        let connection = &store.opened.connection;
        let (since, until) = (Timestamp(MONDAY + 2 * DAY), Timestamp(MONDAY + 10 * DAY));
        let prefixes = shorter_index(connection, since, until).ok();
        assert_eq!(prefixes, Some(["+", "+"]));
        let alice = AuditFilter {
            user: Some("alice".into()),
            ..newest
        };
        assert_index(&store, &alice, "sqlite_autoindex_run_1");
    }
}
