//! Which devices and runs a question is about.

mod named;

pub(super) use named::each_named_run;

use super::super::row::kind_of;
use super::Failure;
use gpukill_policy::select::{DeviceName, NoSuchDevice, devices, is_user, pattern};
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::Owner;
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Which devices and processes a question is about.
pub(super) struct Scope<'a> {
    /// Those devices, of all.
    pub(super) devices: BTreeSet<i64>,
    pub(super) all_devices: BTreeMap<i64, StoredDevice>,
    /// Whether processes are narrowed down, so that devices as a whole are not
    /// asked for.
    pub(super) is_of_processes: bool,
    pub(super) filter: &'a AuditFilter,
    /// Whether a name is meant.
    is_named: Option<IsNamed>,
}

type IsNamed = Box<dyn Fn(&str) -> bool>;

/// A device as it was last seen.
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

/// A process as it was last seen.
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

impl<'a> Scope<'a> {
    /// What `filter` asks for, whenever it was.
    pub(super) fn of(connection: &Connection, filter: &'a AuditFilter) -> Result<Self, Failure> {
        let invalid = |what| Failure::Asked(Refusal::Invalid(what));
        let name = filter.process.as_deref().map(pattern).transpose();
        let name = name.map_err(invalid)?;
        let all_devices = all_devices(connection)?;
        Ok(Self {
            devices: wanted_devices(&all_devices, filter)?,
            all_devices,
            is_of_processes: filter.user.is_some()
                || filter.process.is_some()
                || filter.container.is_some()
                || filter.job.is_some(),
            filter,
            is_named: name.map(|it| Box::new(move |name: &str| it.is_match(name)) as _),
        })
    }

    /// Whether everything is asked for.
    pub(super) fn is_all(&self) -> bool {
        !self.is_of_processes && self.devices.len() == self.all_devices.len()
    }

    /// Whether a run is on a device that is asked for, and its process the user's,
    /// in the container and of the job.
    pub(super) fn has(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        if !self.devices.contains(&run.device()?) {
            return Ok(false);
        }
        Ok(self.is_of_name(run.name())
            && self.is_users(run)?
            && self.is_in_container(run)
            && self.is_of_job(run))
    }

    fn is_of_name(&self, name: Option<&str>) -> bool {
        let is_named = self.is_named.as_ref();
        is_named.is_none_or(|is_named| name.is_some_and(is_named))
    }

    fn is_users(&self, run: &RunRow<'_>) -> rusqlite::Result<bool> {
        let Some(typed) = self.filter.user.as_deref() else {
            return Ok(true);
        };
        let owner = run.text(OWNER);
        Ok(is_user(typed, run.uid()?, run.text(USER))
            || owner.is_some() && is_user(typed, run.0.get(OWNER_UID)?, owner))
    }

    fn is_in_container(&self, run: &RunRow<'_>) -> bool {
        self.filter.container.as_deref().is_none_or(|typed| {
            let id = run.text(CONTAINER);
            run.text(CONTAINER_NAME) == Some(typed) || id.is_some_and(|id| is_container(typed, id))
        })
    }

    fn is_of_job(&self, run: &RunRow<'_>) -> bool {
        let job = self.filter.job.as_deref();
        job.is_none_or(|typed| run.text(JOB) == Some(typed))
    }
}

/// A run and its process, as they are read.
pub(super) struct RunRow<'a>(pub(super) &'a Row<'a>);

/// What can be read, in the order of the numbers below: first what tells who used
/// a device, then what else people ask by, then the rest.
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

/// How much of each run is read: most of the time goes into this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Who used the device.
    Who,
    /// All there is.
    All,
}

impl Extent {
    /// The columns to select, so that a scope can be told too.
    fn columns(self, scope: &Scope<'_>) -> String {
        let many = match (self, scope.is_of_processes) {
            (Self::Who, false) => USER,
            (Self::Who, true) => INSTANCE,
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
        let owner = self.text(OWNER).zip(kind.and_then(kind_of));
        Ok(owner.map(|(name, kind)| Owner {
            name: name.to_owned(),
            uid,
            kind,
        }))
    }

    /// `None` too where it is no text, which nothing of ours writes.
    fn text(&self, column: usize) -> Option<&str> {
        let value = self.0.get_ref(column).ok()?;
        value.as_str_or_null().ok().flatten()
    }

    /// The first and the last sample that may tell of it.
    pub(super) fn samples(&self) -> rusqlite::Result<(i64, i64)> {
        Ok((self.0.get(FIRST_SAMPLE)?, self.0.get(LAST_SAMPLE)?))
    }

    pub(super) fn stored(&self) -> rusqlite::Result<StoredRun> {
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

/// Tells of each run from one id to another, by their ids, that is in the scope.
pub(super) fn each_run(
    connection: &Connection,
    scope: &Scope<'_>,
    extent: Extent,
    (first, last): (i64, i64),
    mut tell: impl FnMut(&RunRow<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // In this order: both tables are then read from one end to the other.
    let columns = extent.columns(scope);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process
         WHERE r.id >= ?1 AND r.id <= ?2 ORDER BY r.id"
    ))?;
    let mut rows = statement.query([first, last])?;
    while let Some(row) = rows.next()? {
        let run = RunRow(row);
        if scope.has(&run)? {
            tell(&run)?;
        }
    }
    Ok(())
}

fn all_devices(connection: &Connection) -> Result<BTreeMap<i64, StoredDevice>, Failure> {
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

fn wanted_devices(
    all: &BTreeMap<i64, StoredDevice>,
    filter: &AuditFilter,
) -> Result<BTreeSet<i64>, Failure> {
    let Some(typed) = &filter.gpu else {
        return Ok(all.keys().copied().collect());
    };
    // In the order in which people know them.
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
    let chosen = devices(typed, &names).map_err(|error| {
        let what = error.to_string();
        Failure::Asked(match error {
            NoSuchDevice::Unknown { .. } => Refusal::NoMatch(what),
            NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. } => {
                Refusal::Invalid(what)
            }
        })
    })?;
    Ok(chosen
        .into_iter()
        .filter_map(|position| all.get(position).map(|(id, _)| *id))
        .collect())
}

/// Whether a container is meant: by its id with its runtime, `docker/0123…`, or
/// by at least four letters of the id's beginning.
fn is_container(typed: &str, id: &str) -> bool {
    const LEAST: usize = 4;
    let bare = id.split_once('/').map_or(id, |(_, bare)| bare);
    typed == id || (typed.len() >= LEAST && bare.starts_with(typed))
}
