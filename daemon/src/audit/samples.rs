//! Writes one sample, and deletes old ones.

use super::row::{MOST_ROWS, count, encode, id};
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, ProcessKey, Snapshot};
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
                "INSERT INTO process (boot, pid, start_ticks, uid, user, name, executable, command, container)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (boot, pid, start_ticks) DO UPDATE SET
                 user = CASE WHEN coalesce(?4, uid) IS uid THEN coalesce(?5, user) ELSE ?5 END,
                 uid = coalesce(?4, uid), name = coalesce(?6, name),
                 executable = coalesce(?7, executable), command = coalesce(?8, command),
                 container = coalesce(?9, container) RETURNING id",
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
                    now.container
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
