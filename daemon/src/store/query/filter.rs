//! Selects the devices and runs of a query.

mod selected_runs;

pub(super) use selected_runs::{
    for_each_run_in, for_each_selected_run, process_condition, shorter_index,
};

use super::super::sample_writer::start_ticks_if_ended;
use super::super::sql_values::{owner_kind, parse_instance};
use super::QueryError;
use gpukill_policy::select::{DeviceName, compile_pattern, names_one_user_of, select_devices};
use gpukill_policy::usage::Gauge;
use gpukill_policy::usage::job_runs::ProcessEnding;
use gpukill_policy::usage::label::{label, truncate_label};
use gpukill_proto::audit::{AuditFilter, UsageTotals};
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::model::{InstanceId, Owner};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::text::NO_PROCESS;
use gpukill_proto::units::{Bytes, Timestamp};
use rusqlite::{Connection, Row, Rows};
use std::collections::{BTreeMap, BTreeSet};

/// The devices and processes of a query.
pub(super) struct QueryScope<'a> {
    pub(super) devices: BTreeSet<i64>,
    pub(super) all_devices: BTreeMap<i64, StoredDevice>,
    /// Whether the query selects processes, so that whole devices are not part of the answer.
    pub(super) selects_processes: bool,
    pub(super) filter: &'a AuditFilter,
    /// Whether only runs of this process are selected, for columns from [`RunColumns::Process`] on.
    pid: Option<u32>,
    /// The patterns of the query for names and for command lines.
    name_pattern: Option<Pattern>,
    command_pattern: Option<Pattern>,
    pub(super) may_read: MayReadCommand<'a>,
}

type Pattern = Box<dyn Fn(&str) -> bool>;

/// Whether the caller may see the command lines of this user's processes; the second uid is the
/// owner of the user namespace.
pub(super) type MayReadCommand<'a> = &'a dyn Fn(Option<u32>, Option<u32>) -> bool;

/// The label of a process with an unknown name.
const UNNAMED_LABEL: &str = "?";

/// A device as it was last observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StoredDevice {
    pub(super) uuid: String,
    pub(super) gpu_index: u32,
    pub(super) name: Option<String>,
    pub(super) pci: Option<String>,
}

impl StoredDevice {
    /// The names by which a selector may select it.
    pub(super) fn names(&self) -> DeviceName<'_> {
        DeviceName {
            index: self.gpu_index,
            id: &self.uuid,
            pci: self.pci.as_deref(),
            name: self.name.as_deref(),
        }
    }
}

pub(super) struct StoredRun {
    pub(super) device: i64,
    pub(super) instance: String,
    pub(super) process: StoredProcess,
}

/// A process as it was last observed.
pub(super) struct StoredProcess {
    pub(super) pid: u32,
    pub(super) uid: Option<u32>,
    pub(super) user: Option<String>,
    pub(super) owner: Option<Owner>,
    pub(super) namespace_owner: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) command: Option<String>,
    pub(super) container: Option<String>,
    pub(super) job: Option<String>,
}

impl<'a> QueryScope<'a> {
    /// The scope of `filter`, regardless of time. `may_read` decides, by user and namespace owner,
    /// whether patterns see the command line of a process.
    pub(super) fn from_filter(
        connection: &Connection,
        filter: &'a AuditFilter,
        may_read: MayReadCommand<'a>,
    ) -> Result<Self, QueryError> {
        let all_devices = all_devices(connection)?;
        Ok(Self {
            devices: selected_device_ids(&all_devices, filter)?,
            all_devices,
            selects_processes: filter.user.is_some()
                || filter.process.is_some()
                || filter.command.is_some()
                || filter.container.is_some()
                || filter.job.is_some()
                || filter.group.is_some(),
            filter,
            pid: None,
            name_pattern: pattern(filter.process.as_deref())?,
            command_pattern: pattern(filter.command.as_deref())?,
            may_read,
        })
    }

    /// The scope with only the processes with this pid.
    pub(super) fn with_pid(self, pid: Option<u32>) -> Self {
        Self {
            selects_processes: self.selects_processes || pid.is_some(),
            pid,
            ..self
        }
    }

    pub(super) fn selects_all(&self) -> bool {
        !self.selects_processes && self.devices.len() == self.all_devices.len()
    }

    /// Whether the run is on a selected device and its process matches the user, group, container,
    /// job and patterns.
    pub(super) fn contains(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        if !self.devices.contains(&run.device()?) {
            return Ok(false);
        }
        Ok(self.matches_pid(run)?
            && self.matches_user(run)?
            && self.matches_group(run)
            && self.matches_container(run)
            && self.matches_job(run)
            && self.matches_patterns(run)?)
    }

    /// A pattern sees a command line, and the label that is made of it, only if the caller may see
    /// them: otherwise patterns could be used to guess them.
    fn matches_patterns(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        if self.name_pattern.is_none() && self.command_pattern.is_none() {
            return Ok(true);
        }
        let may_read = (self.may_read)(run.uid()?, run.namespace_owner()?);
        let command = run.command().filter(|_| may_read);
        let matches_name = self.name_pattern.as_ref().is_none_or(|matches| {
            run.name().is_some_and(matches)
                || command.and_then(label).is_some_and(|label| matches(&label))
        });
        let mut command_pattern = self.command_pattern.iter();
        Ok(matches_name && command_pattern.all(|matches| command.is_some_and(matches)))
    }

    fn matches_pid(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        match self.pid {
            Some(pid) => Ok(run.0.get::<_, u32>(PID)? == pid),
            None => Ok(true),
        }
    }

    fn matches_user(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        let Some(typed) = self.filter.user.as_deref() else {
            return Ok(true);
        };
        let owner = run.text(OWNER);
        Ok(names_one_user_of(typed, run.uid()?, run.text(USER))
            || owner.is_some() && names_one_user_of(typed, run.0.get(OWNER_UID)?, owner))
    }

    /// A process without known groups is in none.
    fn matches_group(&self, run: &RunRow<'_>) -> bool {
        self.filter.group.as_deref().is_none_or(|typed| {
            let groups = run.text(GROUPS);
            let groups = groups.and_then(|groups| serde_json::from_str::<Vec<String>>(groups).ok());
            let groups = groups.unwrap_or_default();
            let mut typed = typed.split(',').map(str::trim);
            typed.any(|group| groups.iter().any(|member| member == group))
        })
    }

    fn matches_container(&self, run: &RunRow<'_>) -> bool {
        self.filter.container.as_deref().is_none_or(|typed| {
            let id = run.text(CONTAINER);
            run.text(CONTAINER_NAME) == Some(typed)
                || id.is_some_and(|id| matches_container_id(typed, id))
        })
    }

    fn matches_job(&self, run: &RunRow<'_>) -> bool {
        let job = self.filter.job.as_deref();
        job.is_none_or(|typed| run.text(JOB) == Some(typed))
    }
}

fn pattern(typed: Option<&str>) -> Result<Option<Pattern>, QueryError> {
    let Some(typed) = typed else {
        return Ok(None);
    };
    let invalid = |what| QueryError::Refused(Refusal::Invalid(what));
    let compiled = compile_pattern(typed).map_err(invalid)?;
    Ok(Some(Box::new(move |text| compiled.is_match(text))))
}

pub(super) struct RunRow<'a>(pub(super) &'a Row<'a>);

/// Defines the columns and a constant with the position of each.
macro_rules! columns {
    ($($name:ident = $column:literal,)*) => {
        const COLUMNS: &[&str] = &[$($column),*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named as constants")]
        enum Position { $($name),* }

        $(const $name: usize = Position::$name as usize;)*
    };
}

// First those that identify the user of a device, then the other filter columns, then the rest.
columns! {
    ID = "r.id",
    DEVICE = "r.device",
    UID = "p.uid",
    OWNER = "p.owner",
    OWNER_UID = "p.owner_uid",
    OWNER_KIND = "p.owner_kind",
    NAMESPACE_OWNER = "p.namespace_owner",
    NAME = "p.name",
    COMMAND = "p.command",
    USER = "p.user",
    CONTAINER = "p.container",
    CONTAINER_NAME = "p.container_name",
    JOB = "p.job",
    GROUPS = "p.groups",
    INSTANCE = "r.instance",
    PID = "p.pid",
    FIRST_SAMPLE = "r.first_sample",
    LAST_SAMPLE = "CASE WHEN r.ended_at IS NULL THEN 9223372036854775807 ELSE r.last_sample END",
    PROCESS = "r.process",
    FIRST_AT = "r.first_at",
    LAST_AT = "r.last_at",
    ENDED_AT = "r.ended_at",
    ENDING = "r.ending",
    ACTION = "r.action",
    BUSY_MS = "r.busy_ms",
    IDLE_MS = "r.idle_ms",
    UNKNOWN_MS = "r.unknown_ms",
    MEMORY_MIB_S = "r.memory_mib_s",
    MEMORY_MAX = "r.memory_max",
    BOOT = "p.boot",
    START_TICKS = "p.start_ticks",
    HELD_MS = "r.held_ms",
    PROCESS_BUSY_MS = "r.process_busy_ms",
    PROCESS_IDLE_MS = "r.process_idle_ms",
    UTILIZATION_TOTAL = "r.utilization_total",
    UTILIZATION_KNOWN_MS = "r.utilization_known_ms",
}

/// The columns to read of each run: most of the time goes into reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunColumns {
    /// The columns that identify who used the device.
    User,
    /// Also the other columns of the process, and the samples of the run.
    Process,
    /// All columns: also the times and sums of the run.
    All,
}

impl RunColumns {
    /// The columns to select, including those that the scope needs.
    pub(super) fn columns(self, scope: &QueryScope<'_>) -> String {
        let many = match (self, scope.selects_processes) {
            (Self::User, false) => USER,
            (Self::User, true) => INSTANCE,
            (Self::Process, _) => PROCESS,
            (Self::All, _) => COLUMNS.len(),
        };
        COLUMNS.get(..many).unwrap_or(COLUMNS).join(", ")
    }
}

impl RunRow<'_> {
    pub(super) fn id(&self) -> rusqlite::Result<i64> {
        self.0.get(ID)
    }

    pub(super) fn pid(&self) -> rusqlite::Result<u32> {
        self.0.get(PID)
    }

    pub(super) fn job(&self) -> Option<&str> {
        self.text(JOB)
    }

    pub(super) fn device(&self) -> rusqlite::Result<i64> {
        self.0.get(DEVICE)
    }

    pub(super) fn uid(&self) -> rusqlite::Result<Option<u32>> {
        self.0.get(UID)
    }

    pub(super) fn namespace_owner(&self) -> rusqlite::Result<Option<u32>> {
        self.0.get(NAMESPACE_OWNER)
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.text(NAME)
    }

    pub(super) fn command(&self) -> Option<&str> {
        self.text(COMMAND)
    }

    pub(super) fn owner(&self) -> rusqlite::Result<Option<Owner>> {
        let kind: Option<i64> = self.0.get(OWNER_KIND)?;
        let uid = self.0.get(OWNER_UID)?;
        let owner = self.text(OWNER).zip(kind.and_then(owner_kind));
        Ok(owner.map(|(name, kind)| Owner {
            name: name.to_owned(),
            uid,
            kind,
        }))
    }

    /// The label of the process: its program and script if the caller may see its command line,
    /// else its name. A pid that a driver lists and no process has belongs to nobody.
    pub(super) fn label(&self, may_read: bool) -> rusqlite::Result<String> {
        let command = self.command().filter(|_| may_read);
        Ok(match (command.and_then(label), self.name(), self.uid()?) {
            (Some(label), _, _) => label,
            (None, Some(name), _) => truncate_label(name),
            (None, None, Some(_)) => UNNAMED_LABEL.to_owned(),
            (None, None, None) => NO_PROCESS.to_owned(),
        })
    }

    pub(super) fn container_name(&self) -> Option<&str> {
        self.text(CONTAINER_NAME).or_else(|| self.text(CONTAINER))
    }

    pub(super) fn process(&self) -> rusqlite::Result<i64> {
        self.0.get(PROCESS)
    }

    pub(super) fn boot(&self) -> &str {
        self.text(BOOT).unwrap_or_default()
    }

    /// The instance, if the device was divided.
    pub(super) fn instance(&self) -> Option<InstanceId> {
        parse_instance(self.text(INSTANCE)?)
    }

    /// `None` for a pid that no process has.
    pub(super) fn start_ticks(&self) -> rusqlite::Result<Option<u64>> {
        Ok(u64::try_from(self.0.get::<_, i64>(START_TICKS)?).ok())
    }

    /// The start of a process that had ended while its driver still listed it; `None` for others.
    pub(super) fn start_ticks_if_ended(&self) -> rusqlite::Result<Option<u64>> {
        Ok(start_ticks_if_ended(self.0.get(START_TICKS)?))
    }

    pub(super) fn first_at(&self) -> rusqlite::Result<Timestamp> {
        Ok(Timestamp(self.0.get(FIRST_AT)?))
    }

    /// `None` for a run that goes on.
    pub(super) fn ended_at(&self) -> rusqlite::Result<Option<Timestamp>> {
        let ended: Option<i64> = self.0.get(ENDED_AT)?;
        Ok(ended.map(Timestamp))
    }

    pub(super) fn action(&self) -> rusqlite::Result<Option<i64>> {
        self.0.get(ACTION)
    }

    /// When the run was first and last observed; `now` for a run that goes on.
    pub(super) fn period(&self, now: Timestamp) -> rusqlite::Result<(Timestamp, Timestamp)> {
        let from = self.first_at()?;
        let last = Timestamp(self.0.get(LAST_AT)?);
        // After the clock went back, a run may seem to end before it began.
        let until = self.ended_at()?.unwrap_or_else(|| now.max(last)).max(from);
        Ok((from, until))
    }

    /// When the run was last observed; `now` for a run that goes on. A kill may have ended it later.
    pub(super) fn last_observed(&self, now: Timestamp) -> rusqlite::Result<Timestamp> {
        let last = Timestamp(self.0.get(LAST_AT)?);
        Ok(match self.ended_at()? {
            Some(_) => last,
            None => now.max(last),
        })
    }

    pub(super) fn ending(&self) -> rusqlite::Result<ProcessEnding> {
        if self.ended_at()?.is_none() {
            return Ok(ProcessEnding::Running);
        }
        Ok(match (self.text(ENDING), self.action()?) {
            (Some("killed"), Some(action)) => ProcessEnding::Killed(action),
            (Some("ended"), _) => ProcessEnding::Exited,
            (Some("released"), _) => ProcessEnding::Released,
            (Some(_) | None, _) => ProcessEnding::Unobserved,
        })
    }

    fn number(&self, column: usize) -> rusqlite::Result<u64> {
        Ok(u64::try_from(self.0.get::<_, i64>(column)?).unwrap_or(0))
    }

    /// The usage up to the last minute, with the times of the process itself.
    pub(super) fn process_totals(&self) -> rusqlite::Result<UsageTotals> {
        let (busy_ms, idle_ms) = (self.number(PROCESS_BUSY_MS)?, self.number(PROCESS_IDLE_MS)?);
        let known = busy_ms.saturating_add(idle_ms);
        Ok(UsageTotals {
            busy_ms,
            idle_ms,
            unknown_ms: self.number(HELD_MS)?.saturating_sub(known),
            ..self.totals()?
        })
    }

    /// The utilization up to the last minute, in percent.
    pub(super) fn utilization(&self) -> rusqlite::Result<Gauge> {
        Ok(Gauge {
            known_ms: self.number(UTILIZATION_KNOWN_MS)?,
            total: self.number(UTILIZATION_TOTAL)?.into(),
            ..Gauge::default()
        })
    }

    /// The usage up to the last minute, with the shares of its owner's time.
    pub(super) fn totals(&self) -> rusqlite::Result<UsageTotals> {
        let number = |column| self.number(column);
        let max: Option<i64> = self.0.get(MEMORY_MAX)?;
        Ok(UsageTotals {
            busy_ms: number(BUSY_MS)?,
            idle_ms: number(IDLE_MS)?,
            unknown_ms: number(UNKNOWN_MS)?,
            memory_mib_s: number(MEMORY_MIB_S)?,
            memory_max: max.and_then(|max| u64::try_from(max).ok()).map(Bytes),
            runs: 1,
        })
    }

    /// Also `None` for a value that is not text, which we never write.
    fn text(&self, column: usize) -> Option<&str> {
        let value = self.0.get_ref(column).ok()?;
        value.as_str_or_null().ok().flatten()
    }

    /// The first and the last sample that may contain the run.
    pub(super) fn sample_range(&self) -> rusqlite::Result<(i64, i64)> {
        Ok((self.0.get(FIRST_SAMPLE)?, self.0.get(LAST_SAMPLE)?))
    }

    pub(super) fn to_stored(&self) -> rusqlite::Result<StoredRun> {
        let text = |column| self.text(column).map(ToOwned::to_owned);
        Ok(StoredRun {
            device: self.device()?,
            instance: text(INSTANCE).unwrap_or_default(),
            process: StoredProcess {
                pid: self.0.get(PID)?,
                uid: self.uid()?,
                user: text(USER),
                owner: self.owner()?,
                namespace_owner: self.namespace_owner()?,
                name: text(NAME),
                command: text(COMMAND),
                container: text(CONTAINER),
                job: text(JOB),
            },
        })
    }
}

/// Calls `visit` for each run in the scope between two ids, in the order of the ids.
pub(super) fn for_each_run(
    connection: &Connection,
    scope: &QueryScope<'_>,
    extent: RunColumns,
    (first, last): (i64, i64),
    mut visit: impl FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    // In this join order, both tables are read from one end to the other.
    let columns = extent.columns(scope);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.id >= ?1 AND r.id <= ?2 ORDER BY r.id"
    ))?;
    visit_selected(statement.query([first, last])?, scope, &mut visit)
}

/// Calls `visit` for each of these runs that is in the scope.
fn visit_selected(
    mut rows: Rows<'_>,
    scope: &QueryScope<'_>,
    visit: &mut dyn FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    while let Some(row) = rows.next()? {
        let run = RunRow(row);
        if scope.contains(&run)? {
            visit(&run)?;
        }
    }
    Ok(())
}

fn all_devices(connection: &Connection) -> Result<BTreeMap<i64, StoredDevice>, QueryError> {
    let mut statement =
        connection.prepare_cached("SELECT id, uuid, gpu_index, name, pci FROM device")?;
    let mut devices = BTreeMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let device = StoredDevice {
            uuid: row.get(1)?,
            gpu_index: row.get(2)?,
            name: row.get(3)?,
            pci: row.get(4)?,
        };
        devices.insert(row.get(0)?, device);
    }
    Ok(devices)
}

fn selected_device_ids(
    all: &BTreeMap<i64, StoredDevice>,
    filter: &AuditFilter,
) -> Result<BTreeSet<i64>, QueryError> {
    let Some(typed) = &filter.gpu else {
        return Ok(all.keys().copied().into_set());
    };
    // In the order of the GPU indexes.
    let mut all: Vec<(i64, &StoredDevice)> = all.iter().map(|(id, it)| (*id, it)).collect();
    all.sort_indirect_by_key(|(id, device)| (device.gpu_index, *id));
    let names: Vec<DeviceName<'_>> = all.iter().map(|(_, device)| device.names()).collect();
    let chosen = select_devices(typed, &names);
    let chosen = chosen.map_err(|error| QueryError::Refused(error.into()))?;
    Ok(chosen
        .into_iter()
        .filter_map(|position| all.get(position).map(|(id, _)| *id))
        .into_set())
}

/// Whether `typed` means this container: the full id with the runtime, `docker/0123…`, or at least
/// the first four characters of the id.
fn matches_container_id(typed: &str, id: &str) -> bool {
    const LEAST: usize = 4;
    let bare = id.split_once('/').map_or(id, |(_, bare)| bare);
    typed == id || (typed.len() >= LEAST && bare.starts_with(typed))
}
