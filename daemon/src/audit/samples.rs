//! Writes one sample, and deletes old ones.

use super::row::{MOST_ROWS, count, encode, id, kind_number};
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, Owner, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;

/// What was written of devices and processes, so that they are written again
/// only when they change.
#[derive(Default)]
pub(super) struct Written {
    devices: BTreeMap<DeviceId, (i64, DeviceRow)>,
    processes: BTreeMap<ProcessKey, (i64, ProcessRow)>,
}

/// So many rows are deleted in one go: under 12 ms as measured.
const DELETE_CHUNK: i64 = 5_000;

/// So many pages are given back in one go: 34 ms as measured.
const VACUUM_PAGES: u32 = 2_000;

/// And so many samples: their rows are mostly fewer than the chunk.
const DELETE_SAMPLES: i64 = 100;

#[derive(PartialEq, Eq)]
struct DeviceRow {
    gpu_index: u32,
    name: Option<String>,
    pci: Option<String>,
}

#[derive(PartialEq, Eq)]
struct ProcessRow {
    uid: Option<u32>,
    user: Option<String>,
    owner: Option<Owner>,
    namespace_owner: Option<u32>,
    name: Option<String>,
    executable: Option<String>,
    command: Option<String>,
    container: Option<String>,
}

impl Written {
    /// Writes one sample, whole or not at all.
    pub(super) fn write(
        &mut self,
        connection: &mut Connection,
        boot: &str,
        snapshot: &Snapshot,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        self.forget_what_ended(snapshot);
        let result = self
            .write_rows(&transaction, boot, snapshot)
            .and_then(|()| transaction.commit());
        if result.is_err() {
            // The ids of rows that were rolled back are not to be used again.
            *self = Self::default();
        }
        result
    }

    fn write_rows(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        snapshot: &Snapshot,
    ) -> rusqlite::Result<()> {
        transaction
            .prepare_cached("INSERT INTO sample (at) VALUES (?1)")?
            .execute([snapshot.taken_at.0])?;
        let sample = transaction.last_insert_rowid();
        let mut rows = 0..MOST_ROWS;
        for device in &snapshot.devices {
            let Some(row) = rows.next() else { break };
            let device_row = self.device(transaction, device)?;
            transaction
                .prepare_cached("INSERT INTO device_sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .execute(params![
                    id(sample, row),
                    device_row,
                    device.index,
                    encode(&device.memory_used, |bytes| count(bytes.0)),
                    encode(&device.vitals.utilization, |percent| i64::from(percent.0)),
                    encode(&device.vitals.temperature, |celsius| i64::from(celsius.0)),
                    encode(&device.vitals.power, |power| count(power.0)),
                ])?;
        }
        for process in &snapshot.processes {
            let Some(device) = snapshot
                .devices
                .iter()
                .find(|device| device.id == process.device)
            else {
                continue;
            };
            let Some(row) = rows.next() else { break };
            let device_row = self.device(transaction, device)?;
            let process_row = self.process(transaction, boot, process)?;
            transaction
                .prepare_cached("INSERT INTO process_sample VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![
                    id(sample, row),
                    device_row,
                    device.index,
                    process_row,
                    encode(&process.memory, |bytes| count(bytes.0)),
                    encode(&process.utilization, |percent| i64::from(percent.0)),
                ])?;
        }
        Ok(())
    }

    fn device(&mut self, transaction: &Transaction<'_>, device: &Device) -> rusqlite::Result<i64> {
        let now = DeviceRow {
            gpu_index: device.index,
            name: device.name.last_known().cloned(),
            pci: device.pci.last_known().cloned(),
        };
        if let Some((row, written)) = self.devices.get(&device.id)
            && *written == now
        {
            return Ok(*row);
        }
        let row = transaction
            .prepare_cached(
                "INSERT INTO device (uuid, gpu_index, name, pci) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (uuid) DO UPDATE SET gpu_index = ?2, name = ?3, pci = ?4 RETURNING id",
            )?
            .query_row(
                params![device.id.0, now.gpu_index, now.name, now.pci],
                |row| row.get(0),
            )?;
        self.devices.insert(device.id.clone(), (row, now));
        Ok(row)
    }

    fn process(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        process: &GpuProcess,
    ) -> rusqlite::Result<i64> {
        let now = ProcessRow {
            uid: process.uid.last_known().copied(),
            user: process.user.last_known().cloned(),
            owner: process.owner.last_known().cloned(),
            namespace_owner: process.namespace_owner.last_known().copied().flatten(),
            name: process.name.last_known().cloned(),
            executable: process.executable.last_known().cloned(),
            command: process.command.last_known().cloned(),
            container: process
                .place
                .container
                .last_known()
                .and_then(|container| container.as_ref())
                .map(|container| container.id.to_string()),
        };
        let key = process.key();
        if let Some((row, written)) = key.and_then(|key| self.processes.get(&key))
            && *written == now
        {
            return Ok(*row);
        }
        let start_ticks = key.map_or(-1, |key| count(key.start_ticks));
        let row = transaction
            .prepare_cached(
                // What belongs to a user is kept while they are the same.
                "INSERT INTO process (boot, pid, start_ticks, uid, user, name, executable, command,
                 container, owner, owner_uid, owner_kind, namespace_owner)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
                 ON CONFLICT (boot, pid, start_ticks) DO UPDATE SET
                 user = CASE WHEN coalesce(?4, uid) IS uid THEN coalesce(?5, user) ELSE ?5 END,
                 owner = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner ELSE ?10 END,
                 owner_uid = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner_uid ELSE ?11 END,
                 owner_kind = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner_kind ELSE ?12 END,
                 uid = coalesce(?4, uid), name = coalesce(?6, name),
                 executable = coalesce(?7, executable), command = coalesce(?8, command),
                 container = coalesce(?9, container),
                 namespace_owner = coalesce(?13, namespace_owner) RETURNING id",
            )?
            .query_row(
                params![
                    boot,
                    process.pid,
                    start_ticks,
                    now.uid,
                    now.user,
                    now.name,
                    now.executable,
                    now.command,
                    now.container,
                    now.owner.as_ref().map(|owner| &owner.name),
                    now.owner.as_ref().and_then(|owner| owner.uid),
                    now.owner.as_ref().map(|owner| kind_number(owner.kind)),
                    now.namespace_owner
                ],
                |row| row.get(0),
            )?;
        if let Some(key) = key {
            self.processes.insert(key, (row, now));
        }
        Ok(row)
    }

    fn forget_what_ended(&mut self, snapshot: &Snapshot) {
        let present: std::collections::BTreeSet<ProcessKey> = snapshot
            .processes
            .iter()
            .filter_map(GpuProcess::key)
            .collect();
        self.processes.retain(|key, _| present.contains(key));
    }
}

/// Deletes some of the samples taken before `oldest`; true when there may be
/// more to delete.
pub(super) fn delete_before(
    connection: &mut Connection,
    oldest: Timestamp,
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let mut left = DELETE_CHUNK;
    // Each by its own time: a clock that was wrong for a while gave old times
    // to samples that came after young ones.
    let old: Vec<i64> = transaction
        .prepare_cached("SELECT id FROM sample WHERE at < ?1 ORDER BY at LIMIT ?2")?
        .query_map([oldest.0, DELETE_SAMPLES], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for sample in &old {
        for table in ["device_sample", "process_sample"] {
            left -= delete_rows(&transaction, table, *sample, left)?;
        }
        if left <= 0 {
            break;
        }
        transaction
            .prepare_cached("DELETE FROM sample WHERE id = ?1")?
            .execute([sample])?;
    }
    transaction.commit()?;
    Ok(left <= 0 || i64::try_from(old.len()) == Ok(DELETE_SAMPLES))
}

/// Deletes processes and devices of which no sample is left, and gives the room
/// that nothing uses back to the disk.
pub(super) fn delete_unused(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM process WHERE id NOT IN (SELECT process FROM process_sample)",
        [],
    )?;
    connection.execute(
        "DELETE FROM device WHERE id NOT IN (SELECT device FROM device_sample)",
        [],
    )?;
    // Each step frees a page, and the pragma has no rows to show for it.
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Deletes at most so many rows of a sample, and counts them.
fn delete_rows(
    transaction: &Transaction<'_>,
    table: &str,
    sample: i64,
    at_most: i64,
) -> rusqlite::Result<i64> {
    let some = format!(
        "DELETE FROM {table} WHERE id IN
         (SELECT id FROM {table} WHERE id >= ?1 AND id < ?2 LIMIT ?3)"
    );
    let deleted =
        transaction
            .prepare_cached(&some)?
            .execute([id(sample, 0), id(sample + 1, 0), at_most])?;
    Ok(i64::try_from(deleted).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::database::{SAMPLES, open};
    use super::super::query::page;
    use super::*;
    use gpukill_proto::audit::{AuditQuery, AuditSubject};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::{OwnerKind, Vendor};

    fn owner(name: &str, uid: Option<u32>, kind: OwnerKind) -> Reading<Owner> {
        let name = name.to_owned();
        Reading::Value(Owner { name, uid, kind })
    }

    /// What is told of process 7 after these samples of it.
    fn told(samples: &[GpuProcess]) -> AuditSubject {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = open(directory.path(), &SAMPLES).unwrap();
        let why = Reading::Unsupported;
        let device = Device::unknown(DeviceId("GPU-0".into()), 0, Vendor::Nvidia, &why);
        for (second, process) in (1..).zip(samples) {
            let snapshot = Snapshot {
                host: String::new(),
                taken_at: Timestamp(second * 1000),
                tick: 1,
                devices: vec![device.clone()],
                processes: vec![process.clone()],
                backends: Vec::new(),
                faults: Vec::new(),
            };
            // Each as the first of a daemon that was started anew.
            let written = Written::default().write(&mut opened.connection, "boot", &snapshot);
            written.unwrap();
        }
        let query = AuditQuery {
            since: Timestamp(0),
            until: Timestamp(i64::MAX),
            user: None,
            process: Some(String::new()),
            gpu: None,
            before: None,
            limit: 1,
        };
        let records = page(&mut opened.connection, &query).unwrap().records;
        records.into_iter().next().unwrap().subject
    }

    #[test]
    fn whose_a_process_was_is_told_as_long_as_its_user_is_the_same() {
        let unknown = Reading::<()>::Failed("x".into());
        let nothing = GpuProcess {
            start_ticks: Reading::Value(9),
            name: Reading::Value("python".into()),
            ..GpuProcess::unknown(DeviceId("GPU-0".into()), 7, Timestamp(0), &unknown)
        };
        let known = GpuProcess {
            uid: Reading::Value(100_999),
            user: Reading::Value("sub".into()),
            owner: owner("alice", Some(1000), OwnerKind::Namespace),
            namespace_owner: Reading::Value(Some(1000)),
            ..nothing.clone()
        };
        let labelled = GpuProcess {
            owner: owner("bob", None, OwnerKind::Label),
            ..known.clone()
        };
        let other_user = GpuProcess {
            uid: Reading::Value(5),
            ..nothing.clone()
        };
        let whose =
            |uid, user: Option<&str>, owner: &GpuProcess, namespace_owner| AuditSubject::Process {
                pid: 7,
                uid,
                user: user.map(Into::into),
                owner: owner.owner.known().cloned(),
                namespace_owner,
                name: Some("python".into()),
                command: Reading::Unsupported,
                container: None,
            };
        let (alices, sub) = (Some(1000), Some("sub"));
        let cases = [
            (vec![&nothing], whose(None, None, &nothing, None)),
            (vec![&known], whose(Some(100_999), sub, &known, alices)),
            (
                vec![&known, &nothing],
                whose(Some(100_999), sub, &known, alices),
            ),
            (
                vec![&known, &labelled],
                whose(Some(100_999), sub, &labelled, alices),
            ),
            (
                vec![&known, &other_user],
                whose(Some(5), None, &nothing, alices),
            ),
        ];
        for (samples, expected) in cases {
            let samples: Vec<GpuProcess> = samples.into_iter().cloned().collect();
            assert_eq!(told(&samples), expected);
        }
    }
}
