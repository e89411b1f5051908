//! One page of the past, bounded in rows, bytes and time.

use super::row::{self, MOST_ROWS, SAMPLE_OF_ID, decode, id, kind_of};
use gpukill_policy::select::{DeviceName, NoSuchDevice, devices, is_user, pattern};
use gpukill_proto::audit::{AuditPage, AuditQuery, AuditRecord, AuditSubject};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{DeviceId, Owner};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use rusqlite::{Connection, Row, ToSql};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most records of one page.
const MOST_RECORDS: u32 = 1_000;

/// The most bytes of one page, as they travel: well below a frame.
const MOST_BYTES: u64 = 256 << 10;

/// The longest one page may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 10_000;

/// One page of the records that `query` asks for, newest first.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(super) fn page(connection: &mut Connection, query: &AuditQuery) -> Result<AuditPage, Refusal> {
    let deadline = Instant::now() + PATIENCE;
    let watch = connection.progress_handler(STEPS, Some(move || Instant::now() > deadline));
    let result = watch
        .map_err(Failure::Store)
        .and_then(|()| read(connection, query));
    // Without this the deadline would hold for the next question too.
    let _ = connection.progress_handler(0, None::<fn() -> bool>);
    result.map_err(|failure| match failure {
        Failure::Asked(refusal) => refusal,
        Failure::Store(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
        {
            Refusal::TooSlow("reading the history".into())
        }
        Failure::Store(error) => Refusal::Unavailable(format!("the store cannot be read: {error}")),
    })
}

enum Failure {
    Asked(Refusal),
    Store(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

fn read(connection: &Connection, query: &AuditQuery) -> Result<AuditPage, Failure> {
    let nothing = AuditPage {
        records: Vec::new(),
        next: None,
    };
    if query.limit == 0 {
        // An empty page could not say where the next one begins.
        let what = "a limit of 0 asks for nothing".into();
        return Err(Failure::Asked(Refusal::Invalid(what)));
    }
    let all = all_devices(connection)?;
    let wanted = wanted_devices(&all, query)?;
    let processes = wanted_processes(connection, query)?;
    let Some((first, end)) = range(connection, query)? else {
        return Ok(nothing);
    };
    let mut statement = connection.prepare_cached(&select(processes.is_some()))?;
    let limit = query.limit.min(MOST_RECORDS);
    let (wanted, one_more) = (json(&wanted), limit + 1);
    let mut parameters: Vec<(&str, &dyn ToSql)> = vec![
        (":since", &query.since.0),
        (":until", &query.until.0),
        (":first", &first),
        (":end", &end),
        (":devices", &wanted),
        (":limit", &one_more),
    ];
    let processes = processes.map(|wanted| json(&wanted));
    if let Some(processes) = &processes {
        parameters.push((":processes", processes));
    }
    let mut rows = statement.query(parameters.as_slice())?;
    let mut page = nothing;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let record = record(row, &all)?;
        bytes += bincode::serialized_size(&record).unwrap_or(MOST_BYTES);
        let full = page.records.len() >= limit as usize || bytes > MOST_BYTES;
        if full && !page.records.is_empty() {
            page.next = page.records.last().map(|last| last.id);
            break;
        }
        page.records.push(record);
    }
    Ok(page)
}

struct StoredDevice {
    uuid: String,
    gpu_index: u32,
    name: Option<String>,
    pci: Option<String>,
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
    query: &AuditQuery,
) -> Result<Vec<i64>, Failure> {
    let ids: Vec<i64> = all.keys().copied().collect();
    let Some(typed) = &query.gpu else {
        return Ok(ids);
    };
    let names: Vec<DeviceName<'_>> = all
        .values()
        .map(|device| DeviceName {
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
        .filter_map(|position| ids.get(position).copied())
        .collect())
}

/// The processes that the query names; `None` when it names none, and records
/// of devices are wanted too.
fn wanted_processes(
    connection: &Connection,
    query: &AuditQuery,
) -> Result<Option<Vec<i64>>, Failure> {
    if query.user.is_none() && query.process.is_none() {
        return Ok(None);
    }
    let invalid = |what| Failure::Asked(Refusal::Invalid(what));
    let name = query
        .process
        .as_deref()
        .map(pattern)
        .transpose()
        .map_err(invalid)?;
    let mut statement =
        connection.prepare_cached("SELECT id, uid, user, name, owner_uid, owner FROM process")?;
    let mut rows = statement.query([])?;
    let mut wanted = Vec::new();
    while let Some(row) = rows.next()? {
        let (uid, user, process): (Option<u32>, Option<String>, Option<String>) =
            (row.get(1)?, row.get(2)?, row.get(3)?);
        let (owner_uid, owner): (Option<u32>, Option<String>) = (row.get(4)?, row.get(5)?);
        let of_user = query.user.as_deref().is_none_or(|typed| {
            is_user(typed, uid, user.as_deref()) || is_user(typed, owner_uid, owner.as_deref())
        });
        let of_name = name
            .as_ref()
            .is_none_or(|name| process.is_some_and(|process| name.is_match(&process)));
        if of_user && of_name {
            wanted.push(row.get(0)?);
        }
    }
    Ok(Some(wanted))
}

/// The first id and the one behind the last, of the time that is asked for.
fn range(connection: &Connection, query: &AuditQuery) -> Result<Option<(i64, i64)>, Failure> {
    let mut statement = connection
        .prepare_cached("SELECT min(id), max(id) FROM sample WHERE at >= ?1 AND at < ?2")?;
    let (first, last): (Option<i64>, Option<i64>) = statement
        .query_row([query.since.0, query.until.0], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(None);
    };
    let end = id(last, MOST_ROWS - 1) + 1;
    let before = query.before.map_or(end, row::count);
    Ok(Some((id(first, 0), end.min(before))))
}

/// A clock that went back can put a sample of another time between the first
/// and the last of the range, so the time itself is asked for too.
fn select(only_processes: bool) -> String {
    let within = |rows: &str| {
        format!(
            "JOIN sample s ON s.id = {rows}.{SAMPLE_OF_ID}
             WHERE {rows}.id >= :first AND {rows}.id < :end AND s.at >= :since AND s.at < :until
             AND {rows}.device IN (SELECT value FROM json_each(:devices))"
        )
    };
    let processes = format!(
        "SELECT p.id AS id, s.at AS at, p.device AS device, p.gpu_index AS gpu_index, p.memory AS memory,
                p.utilization AS utilization, NULL AS temperature, NULL AS power, r.pid AS pid, r.uid AS uid,
                r.user AS user, r.name AS name, r.command AS command, r.container AS container,
                r.owner AS owner, r.owner_uid AS owner_uid, r.owner_kind AS owner_kind,
                r.namespace_owner AS namespace_owner
         FROM process_sample p JOIN process r ON r.id = p.process {}",
        within("p")
    );
    if only_processes {
        return format!(
            "{processes} AND p.process IN (SELECT value FROM json_each(:processes)) ORDER BY 1 DESC LIMIT :limit"
        );
    }
    format!(
        "{processes} UNION ALL
         SELECT d.id, s.at, d.device, d.gpu_index, d.memory, d.utilization, d.temperature, d.power,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
         FROM device_sample d {} ORDER BY 1 DESC LIMIT :limit",
        within("d")
    )
}

fn json(ids: &[i64]) -> String {
    let numbers: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}

fn record(row: &Row<'_>, devices: &BTreeMap<i64, StoredDevice>) -> rusqlite::Result<AuditRecord> {
    let device = devices.get(&row.get("device")?);
    let pid: Option<u32> = row.get("pid")?;
    let subject = match pid {
        None => AuditSubject::Device {
            temperature: decode(row.get("temperature")?, |n| {
                i32::try_from(n).ok().map(Celsius)
            }),
            power: decode(row.get("power")?, |n| u64::try_from(n).ok().map(Milliwatts)),
        },
        Some(pid) => {
            let command: Option<String> = row.get("command")?;
            AuditSubject::Process {
                pid,
                uid: row.get("uid")?,
                user: row.get("user")?,
                owner: owner(row)?,
                namespace_owner: row.get("namespace_owner")?,
                name: row.get("name")?,
                command: command.map_or(Reading::Unsupported, Reading::Value),
                container: row.get("container")?,
            }
        }
    };
    let id: i64 = row.get("id")?;
    Ok(AuditRecord {
        id: u64::try_from(id).unwrap_or(0),
        at: Timestamp(row.get("at")?),
        device: DeviceId(device.map_or_else(String::new, |device| device.uuid.clone())),
        gpu_index: row.get("gpu_index")?,
        gpu_name: device.and_then(|device| device.name.clone()),
        memory: decode(row.get("memory")?, |n| u64::try_from(n).ok().map(Bytes)),
        utilization: decode(row.get("utilization")?, |n| {
            u32::try_from(n).ok().map(Percent)
        }),
        subject,
    })
}

fn owner(row: &Row<'_>) -> rusqlite::Result<Option<Owner>> {
    let (name, kind): (Option<String>, Option<i64>) = (row.get("owner")?, row.get("owner_kind")?);
    let uid = row.get("owner_uid")?;
    Ok(name
        .zip(kind.and_then(kind_of))
        .map(|(name, kind)| Owner { name, uid, kind }))
}
