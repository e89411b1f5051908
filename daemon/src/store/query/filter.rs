//! Selects the devices and runs of a query.

mod named_runs;

pub(super) use named_runs::for_each_named_run;

use super::super::sql_values::owner_kind;
use super::QueryError;
use gpukill_policy::select::{DeviceName, compile_pattern, names_user, select_devices};
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::Owner;
use gpukill_proto::refusal::Refusal;
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, BTreeSet};

/// The devices and processes of a query.
pub(super) struct QueryScope<'a> {
    /// The selected devices.
    pub(super) devices: BTreeSet<i64>,
    pub(super) all_devices: BTreeMap<i64, StoredDevice>,
    /// Whether the query selects processes, so that whole devices are not part of the answer.
    pub(super) selects_processes: bool,
    pub(super) filter: &'a AuditFilter,
    /// Whether the query's pattern matches a name.
    is_named: Option<NameMatcher>,
}

type NameMatcher = Box<dyn Fn(&str) -> bool>;

/// A device as it was last observed.
pub(super) struct StoredDevice {
    pub(super) uuid: String,
    pub(super) gpu_index: u32,
    pub(super) name: Option<String>,
    pci: Option<String>,
}

/// One process on one device.
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
    /// The scope of `filter`, regardless of time.
    pub(super) fn from_filter(
        connection: &Connection,
        filter: &'a AuditFilter,
    ) -> Result<Self, QueryError> {
        let invalid = |what| QueryError::Refused(Refusal::Invalid(what));
        let name = filter.process.as_deref().map(compile_pattern).transpose();
        let name = name.map_err(invalid)?;
        let all_devices = all_devices(connection)?;
        Ok(Self {
            devices: selected_device_ids(&all_devices, filter)?,
            all_devices,
            selects_processes: filter.user.is_some()
                || filter.process.is_some()
                || filter.container.is_some()
                || filter.job.is_some(),
            filter,
            is_named: name.map(|it| Box::new(move |name: &str| it.is_match(name)) as _),
        })
    }

    /// Whether the query selects everything.
    pub(super) fn selects_all(&self) -> bool {
        !self.selects_processes && self.devices.len() == self.all_devices.len()
    }

    /// Whether the run is on a selected device and its process matches the user, container, job and
    /// name.
    pub(super) fn contains(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        if !self.devices.contains(&run.device()?) {
            return Ok(false);
        }
        Ok(self.matches_name(run.name())
            && self.matches_user(run)?
            && self.matches_container(run)
            && self.matches_job(run))
    }

    fn matches_name(&self, name: Option<&str>) -> bool {
        let is_named = self.is_named.as_ref();
        is_named.is_none_or(|is_named| name.is_some_and(is_named))
    }

    fn matches_user(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        let Some(typed) = self.filter.user.as_deref() else {
            return Ok(true);
        };
        let owner = run.text(OWNER);
        Ok(names_user(typed, run.uid()?, run.text(USER))
            || owner.is_some() && names_user(typed, run.0.get(OWNER_UID)?, owner))
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

/// A row of a run and its process.
pub(super) struct RunRow<'a>(pub(super) &'a Row<'a>);

/// The columns in the order of the constants below: first those that identify the user of a device,
/// then the other filter columns, then the rest.
const COLUMNS: [&str; 17] = [
    "r.id",
    "r.device",
    "p.uid",
    "p.owner",
    "p.owner_uid",
    "p.owner_kind",
    "p.namespace_owner",
    "p.name",
    "p.command",
    "p.user",
    "p.container",
    "p.container_name",
    "p.job",
    "r.instance",
    "p.pid",
    "r.first_sample",
    "CASE WHEN r.ended_at IS NULL THEN 9223372036854775807 ELSE r.last_sample END",
];
const ID: usize = 0;
const DEVICE: usize = 1;
const UID: usize = 2;
const OWNER: usize = 3;
const OWNER_UID: usize = 4;
const OWNER_KIND: usize = 5;
const NAMESPACE_OWNER: usize = 6;
const NAME: usize = 7;
const COMMAND: usize = 8;
const USER: usize = 9;
const CONTAINER: usize = 10;
const CONTAINER_NAME: usize = 11;
const JOB: usize = 12;
const INSTANCE: usize = 13;
const PID: usize = 14;
const FIRST_SAMPLE: usize = 15;
const LAST_SAMPLE: usize = 16;

/// The columns to read of each run: most of the time goes into reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunColumns {
    /// The columns that identify who used the device.
    User,
    /// All columns.
    All,
}

impl RunColumns {
    /// The columns to select, including those that the scope needs.
    fn columns(self, scope: &QueryScope<'_>) -> String {
        let many = match (self, scope.selects_processes) {
            (Self::User, false) => USER,
            (Self::User, true) => INSTANCE,
            (Self::All, _) => COLUMNS.len(),
        };
        COLUMNS.get(..many).unwrap_or(&COLUMNS).join(", ")
    }
}

impl RunRow<'_> {
    pub(super) fn id(&self) -> rusqlite::Result<i64> {
        self.0.get(ID)
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
    let mut rows = statement.query([first, last])?;
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
    let rows = statement.query_map([], |row| {
        let device = StoredDevice {
            uuid: row.get(1)?,
            gpu_index: row.get(2)?,
            name: row.get(3)?,
            pci: row.get(4)?,
        };
        Ok((row.get(0)?, device))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
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
    let names: Vec<DeviceName<'_>> = all
        .iter()
        .map(|(_, device)| DeviceName {
            index: device.gpu_index,
            id: &device.uuid,
            pci: device.pci.as_deref(),
            name: device.name.as_deref(),
        })
        .collect();
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
