//! When processes were first and last observed on devices.

use super::super::super::sql_values::parse_instance;
use super::super::actions::action_entry_id;
use super::super::filter::{QueryScope, RunColumns, RunRow, process_condition, shorter_index};
use super::super::{Deadline, QueryError};
use super::PastRights;
use super::merge::SourcePart;
use gpukill_policy::usage::job_runs::ProcessEnding;
use gpukill_proto::audit::{TimelineEnd, TimelineEntry, TimelineEvent, TimelineProcess};
use gpukill_proto::model::Owner;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// A run that overlaps the requested time.
pub(super) struct SelectedRun {
    pub(super) id: i64,
    pub(super) device: i64,
    pub(super) pid: u32,
    pub(super) owner: Option<Owner>,
    pub(super) first_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// The row of the action that ended it.
    pub(super) action: Option<i64>,
}

/// Reads the starts of runs, the oldest first.
pub(super) fn read_starts(
    connection: &Connection,
    scope: &QueryScope<'_>,
    rights: &PastRights,
    part: &mut SourcePart<TimelineEntry>,
    deadline: Deadline,
) -> Result<(), QueryError> {
    read_runs(connection, scope, "first_at", part, deadline, &mut |run| {
        let (gpu, process) = process(run, scope, rights)?;
        Ok((gpu, TimelineEvent::Started(process)))
    })
}

/// Reads the ends of runs, the oldest first. Returns the boot of the host of each run that ended
/// unobserved, by the id of the run.
pub(super) fn read_ends(
    connection: &Connection,
    scope: &QueryScope<'_>,
    rights: &PastRights,
    part: &mut SourcePart<TimelineEntry>,
    deadline: Deadline,
) -> Result<BTreeMap<u64, String>, QueryError> {
    let mut boots = BTreeMap::new();
    read_runs(connection, scope, "ended_at", part, deadline, &mut |run| {
        let (gpu, process) = process(run, scope, rights)?;
        let end = match run.ending()? {
            ProcessEnding::Killed(action) => TimelineEnd::Killed(Some(action_entry_id(action))),
            ProcessEnding::Released => TimelineEnd::Released,
            ProcessEnding::Exited => TimelineEnd::Exited,
            // A run that goes on is not among those with an end.
            ProcessEnding::Unobserved | ProcessEnding::Running => {
                boots.insert(run.id()?.unsigned_abs(), run.boot().to_owned());
                TimelineEnd::Unobserved
            }
        };
        Ok((gpu, TimelineEvent::Ended(process, end)))
    })?;
    Ok(boots)
}

/// The index of the device, and the event of a run.
type RowToEvent<'a> =
    &'a mut dyn FnMut(&RunRow<'_>) -> rusqlite::Result<(Option<u32>, TimelineEvent)>;

/// Reads runs in the order of the time in this column.
fn read_runs(
    connection: &Connection,
    scope: &QueryScope<'_>,
    time: &str,
    part: &mut SourcePart<TimelineEntry>,
    deadline: Deadline,
    to_event: RowToEvent<'_>,
) -> Result<(), QueryError> {
    let columns = RunColumns::All.columns(scope);
    // A process that had ended while its driver still listed it has another row, which is no start
    // or end of its own.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.{time} >= ?1 AND r.{time} < ?2 AND (r.{time} > ?3 OR r.id >= ?4)
         AND p.start_ticks >= -1 ORDER BY r.{time}, r.id"
    ))?;
    let (start, id) = part.start();
    let since = scope.filter.since.max(start);
    let mut rows = statement.query(params![
        since.0,
        scope.filter.until.0,
        start.0,
        id.cast_signed()
    ])?;
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let (at, id): (i64, i64) = (row.get(time)?, row.get(0)?);
        let (at, id) = (Timestamp(at), id.unsigned_abs());
        if !part.takes(at, id) {
            break;
        }
        let run = RunRow(row);
        if scope.contains(&run)? {
            let (gpu, event) = to_event(&run)?;
            let gpus = gpu.into_iter().collect();
            part.push(at, id, TimelineEntry { at, gpus, event });
        }
    }
    Ok(())
}

fn process(
    run: &RunRow<'_>,
    scope: &QueryScope<'_>,
    rights: &PastRights,
) -> rusqlite::Result<(Option<u32>, TimelineProcess)> {
    let stored = run.to_stored()?;
    let device = scope.all_devices.get(&stored.device);
    let process = stored.process;
    let command = match process.command {
        None => Reading::Unsupported,
        Some(_) if !(rights.may_read_command)(process.uid, process.namespace_owner) => {
            Reading::Withheld
        }
        Some(command) => Reading::Value(command),
    };
    let process = TimelineProcess {
        pid: process.pid,
        start_ticks: run.start_ticks()?,
        instance: parse_instance(&stored.instance),
        uid: process.uid,
        user: process.user,
        owner: process.owner,
        name: process.name,
        command,
        container: process.container,
        job: process.job,
    };
    Ok((device.map(|it| it.gpu_index), process))
}

/// The runs in the scope that overlap the requested time, by id; at most this many.
pub(super) fn overlapping_runs(
    connection: &Connection,
    scope: &QueryScope<'_>,
    limit: usize,
    deadline: Deadline,
) -> Result<Vec<SelectedRun>, QueryError> {
    let (since, until) = (scope.filter.since, scope.filter.until);
    let (processes, typed) = match process_condition(scope) {
        Some((condition, typed)) => (format!("AND r.process IN ({condition})"), typed),
        None => (String::new(), None),
    };
    let [by_start, by_end] = match &typed {
        Some(_) => ["+", "+"],
        None => shorter_index(connection, since, until)?,
    };
    let columns = RunColumns::All.columns(scope);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE {by_start}r.first_at < ?2
         AND ({by_end}r.ended_at >= ?1 OR {by_end}r.ended_at IS NULL)
         AND ?3 IS ?3 AND p.start_ticks >= -1 {processes}"
    ))?;
    let mut rows = statement.query(params![since.0, until.0, typed])?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let run = RunRow(row);
        if !scope.contains(&run)? {
            continue;
        }
        runs.push(SelectedRun {
            id: run.id()?,
            device: run.device()?,
            pid: run.pid()?,
            owner: run.owner()?,
            first_at: run.first_at()?,
            ended_at: run.ended_at()?,
            action: run.action()?,
        });
        if runs.len() >= limit {
            break;
        }
    }
    runs.sort_unstable_by_key(|run| run.id);
    Ok(runs)
}
