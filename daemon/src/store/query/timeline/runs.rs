//! When processes were first and last observed on devices.

use super::super::super::sql_values::ids_json;
use super::super::actions::action_entry_id;
use super::super::filter::{QueryScope, RunColumns, RunRow, process_condition, shorter_index};
use super::super::{Deadline, QueryError};
use super::PastRights;
use super::merge::SourcePart;
use gpukill_policy::usage::job_runs::ProcessEnding;
use gpukill_proto::audit::{TimelineEnd, TimelineEntry, TimelineEvent, TimelineProcess};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{InstanceId, Owner};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// A run that overlaps the requested time.
pub(super) struct SelectedRun {
    pub(super) id: i64,
    pub(super) device: i64,
    pub(super) pid: u32,
    /// `None` if there was no such process.
    pub(super) start_ticks: Option<u64>,
    pub(super) instance: Option<InstanceId>,
    pub(super) owner: Option<Owner>,
    pub(super) first_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// The row of the action that ended it.
    pub(super) action: Option<i64>,
}

/// Reads the starts and ends of the runs in a scope.
pub(super) struct RunReader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) scope: &'a QueryScope<'a>,
    /// All runs in the scope that overlap the requested time; `None` if they are unknown.
    pub(super) selected: Option<&'a [SelectedRun]>,
    pub(super) rights: &'a PastRights,
    pub(super) deadline: Deadline,
}

/// The moments of a run that are entries.
#[derive(Clone, Copy)]
enum RunMoment {
    Start,
    End,
}

impl RunMoment {
    const fn column(self) -> &'static str {
        match self {
            Self::Start => "first_at",
            Self::End => "ended_at",
        }
    }

    /// The time in a run; `None` if it did not come yet.
    const fn time(self, run: &SelectedRun) -> Option<Timestamp> {
        match self {
            Self::Start => Some(run.first_at),
            Self::End => run.ended_at,
        }
    }
}

/// The index of the device, and the event of a run.
type RowToEvent<'a> =
    &'a mut dyn FnMut(&RunRow<'_>) -> rusqlite::Result<(Option<u32>, TimelineEvent)>;

impl RunReader<'_> {
    /// Reads the starts of runs, the oldest first.
    pub(super) fn starts(&self, part: &mut SourcePart<TimelineEntry>) -> Result<(), QueryError> {
        self.read(RunMoment::Start, part, &mut |run| {
            let (gpu, process) = self.process(run)?;
            Ok((gpu, TimelineEvent::Started(process)))
        })
    }

    /// Reads the ends of runs, the oldest first. Returns the boot of the host of each run that
    /// ended unobserved, by the id of the run.
    pub(super) fn ends(
        &self,
        part: &mut SourcePart<TimelineEntry>,
    ) -> Result<BTreeMap<u64, String>, QueryError> {
        let mut boots = BTreeMap::new();
        self.read(RunMoment::End, part, &mut |run| {
            let (gpu, process) = self.process(run)?;
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

    /// Reads runs in the order of this moment.
    fn read(
        &self,
        moment: RunMoment,
        part: &mut SourcePart<TimelineEntry>,
        to_event: RowToEvent<'_>,
    ) -> Result<(), QueryError> {
        let (columns, time) = (RunColumns::All.columns(self.scope), moment.column());
        let ids = self.page_ids(moment, part);
        // Without the ids, the runs of all processes are read by the index of the times.
        let (selected, by_time) = match &ids {
            Some(_) => ("r.id IN (SELECT value FROM json_each(?5))", "+"),
            None => ("?5 IS NULL", ""),
        };
        // A process that had ended while its driver still listed it has another row, which is no
        // start or end of its own.
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
             WHERE {selected} AND {by_time}r.{time} >= ?1 AND {by_time}r.{time} < ?2
             AND ({by_time}r.{time} > ?3 OR +r.id >= ?4)
             AND p.start_ticks >= -1 ORDER BY r.{time}, r.id"
        ))?;
        let (start, id) = part.start();
        let since = self.scope.filter.since.max(start);
        let until = self.scope.filter.until;
        let mut rows =
            statement.query(params![since.0, until.0, start.0, id.cast_signed(), ids])?;
        while let Some(row) = rows.next()? {
            self.deadline.check()?;
            let (at, id): (i64, i64) = (row.get(time)?, row.get(0)?);
            let (at, id) = (Timestamp(at), id.unsigned_abs());
            if !part.takes(at, id) {
                break;
            }
            let run = RunRow(row);
            if self.scope.contains(&run)? {
                let (gpu, event) = to_event(&run)?;
                let gpus = gpu.into_iter().collect();
                part.push(at, id, TimelineEntry { at, gpus, event });
            }
        }
        Ok(())
    }

    /// The ids of the selected runs that the page can need, as JSON.
    fn page_ids(&self, moment: RunMoment, part: &SourcePart<TimelineEntry>) -> Option<String> {
        let (since, until) = (self.scope.filter.since, self.scope.filter.until);
        let start = part.start();
        let runs = self.selected?.iter();
        let runs = runs.filter_map(|run| Some((moment.time(run)?, run.id)));
        let mut runs: Vec<(Timestamp, i64)> = runs
            .filter(|(at, id)| *at >= since && *at < until && (*at, id.unsigned_abs()) >= start)
            .collect();
        runs.sort_indirect();
        let ids = runs.iter().take(part.max_rows()).map(|(_, id)| *id);
        Some(ids_json(&ids.collect::<Vec<_>>()))
    }

    fn process(&self, run: &RunRow<'_>) -> rusqlite::Result<(Option<u32>, TimelineProcess)> {
        let stored = run.to_stored()?;
        let device = self.scope.all_devices.get(&stored.device);
        let process = stored.process;
        let command = match process.command {
            None => Reading::Unsupported,
            Some(_) if !(self.rights.may_read_command)(process.uid, process.namespace_owner) => {
                Reading::Withheld
            }
            Some(command) => Reading::Value(command),
        };
        let process = TimelineProcess {
            pid: process.pid,
            start_ticks: run.start_ticks()?,
            instance: run.instance(),
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
    // After the clock went back, a run may seem to end before it began.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE ({by_start}r.first_at < ?2 OR {by_start}r.ended_at < ?2)
         AND ({by_end}r.first_at >= ?1 OR {by_end}r.ended_at >= ?1 OR {by_end}r.ended_at IS NULL)
         AND ?3 IS ?3 AND +r.device IN (SELECT value FROM json_each(?4))
         AND p.start_ticks >= -1 {processes}"
    ))?;
    let devices = serde_json::to_string(&scope.devices).unwrap_or_default();
    let mut rows = statement.query(params![since.0, until.0, typed, devices])?;
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
            start_ticks: run.start_ticks()?,
            instance: run.instance(),
            owner: run.owner()?,
            first_at: run.first_at()?,
            ended_at: run.ended_at()?,
            action: run.action()?,
        });
        if runs.len() >= limit {
            break;
        }
    }
    runs.sort_indirect_by_key(|run| run.id);
    Ok(runs)
}
