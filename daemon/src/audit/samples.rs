//! Writes one sample: the devices, processes and runs in it, and what was used.

use super::abouts::Abouts;
use super::packed::{Stored, pack_sample};
use super::rolling::Rolling;
use super::row::{count, kind_number};
use super::sample::{Departed, Groups, Sample};
use gpukill_policy::guard::about::memory;
use gpukill_policy::usage::{Run, Usage};
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, InstanceId, Owner, ProcessKey};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, Transaction, params};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// What was written of devices, processes and runs, so that they are written
/// again only when they change.
#[derive(Default)]
pub(super) struct Written {
    devices: BTreeMap<DeviceId, (i64, DeviceRow)>,
    processes: BTreeMap<ProcessKey, (i64, ProcessRow)>,
    runs: BTreeMap<Run, i64>,
    abouts: Abouts,
    /// `None` until it is read from the file.
    rolling: Option<Rolling>,
    /// Whether runs of which no end was seen are marked.
    are_old_runs_ended: bool,
}

#[derive(PartialEq, Eq)]
struct DeviceRow {
    gpu_index: u32,
    name: Option<String>,
    pci: Option<String>,
    memory: Option<u64>,
    is_unified: bool,
}

#[derive(PartialEq, Eq)]
struct ProcessRow {
    started_at: Option<i64>,
    uid: Option<u32>,
    user: Option<String>,
    login_uid: Option<u32>,
    owner: Option<Owner>,
    groups: Option<String>,
    namespace_owner: Option<u32>,
    name: Option<String>,
    executable: Option<String>,
    command: Option<String>,
    container: Option<String>,
    container_name: Option<String>,
    image: Option<String>,
    unit: Option<String>,
    job: Option<String>,
    place: Option<String>,
}

impl Written {
    /// Writes one sample, whole or not at all.
    pub(super) fn write(
        &mut self,
        connection: &mut Connection,
        boot: &str,
        sample: &Sample,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        let result = self
            .write_rows(&transaction, boot, sample)
            .and_then(|()| transaction.commit());
        if result.is_err() {
            // The ids of rows that were rolled back are not to be used again.
            *self = Self::default();
        }
        result
    }

    /// Forgets what is written; nothing of it is lost.
    pub(super) fn forget(&mut self) {
        *self = Self {
            are_old_runs_ended: self.are_old_runs_ended,
            ..Self::default()
        };
    }

    fn write_rows(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        sample: &Sample,
    ) -> rusqlite::Result<()> {
        let mut rolling = match self.rolling.take() {
            Some(rolling) => rolling,
            None => Rolling::restore(transaction)?,
        };
        let id = rolling.last_sample(transaction)? + 1;
        let (stored, left) = self.name_rows(transaction, boot, sample, id)?;
        transaction
            .prepare_cached("INSERT INTO sample (id, at, usage) VALUES (?1, ?2, ?3)")?
            .execute(params![id, stored.from.0, pack_sample(&stored, &left)])?;
        rolling.add(transaction, id, stored.from)?;
        for departed in &sample.departed {
            depart(transaction, boot, departed, id)?;
        }
        if !self.are_old_runs_ended {
            end_old_runs(transaction, self.runs.values().copied(), id)?;
            self.are_old_runs_ended = true;
        }
        self.rolling = Some(rolling);
        self.forget_what_departed(sample);
        Ok(())
    }

    /// Gives each device and process the number of its row, writing those that
    /// are new or have changed. With them, the runs that have left.
    fn name_rows(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        sample: &Sample,
        id: i64,
    ) -> rusqlite::Result<(Stored, BTreeSet<i64>)> {
        let Usage {
            from,
            until,
            seen_ms,
            devices,
            runs,
        } = &sample.usage;
        let mut stored = Stored {
            from: *from,
            until: *until,
            seen_ms: *seen_ms,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
        };
        let known = sample.snapshot.devices.iter();
        let known: BTreeMap<&DeviceId, &Device> = known.map(|it| (&it.id, it)).collect();
        let mut device_rows = BTreeMap::new();
        for (device, usage) in devices {
            let row = match (known.get(device), self.devices.get(device)) {
                (Some(device), _) => self.device(transaction, device)?,
                // It went away within the sample.
                (None, Some((row, _))) => *row,
                (None, None) => unknown_device(transaction, device, usage.index)?,
            };
            stored.devices.insert(row, usage.clone());
            device_rows.insert(device, row);
        }
        let (people, abouts) = (sample.processes(), sample.abouts());
        let departed: BTreeSet<Run> = sample.left().collect();
        let mut left = BTreeSet::new();
        for (run, usage) in runs {
            let Some(process) = people.get(run) else {
                continue;
            };
            let row = self.process(transaction, boot, process, &sample.groups)?;
            if let Some(about) = process.key().and_then(|key| abouts.get(&key)) {
                self.abouts.write(transaction, row, id, about)?;
            }
            let Some(device) = device_rows.get(&run.device) else {
                continue;
            };
            let first = *process.first_seen.known().unwrap_or(from);
            let run_row = self.run(transaction, run, (row, *device), (first, *until), id)?;
            stored.runs.insert(run_row, usage.clone());
            if departed.contains(run) {
                left.insert(run_row);
            }
        }
        Ok((stored, left))
    }

    fn device(&mut self, transaction: &Transaction<'_>, device: &Device) -> rusqlite::Result<i64> {
        let now = DeviceRow {
            gpu_index: device.index,
            name: device.name.last_known().cloned(),
            pci: device.pci.last_known().cloned(),
            memory: memory(device).map(|bytes| bytes.0),
            is_unified: device.memory_unified,
        };
        if let Some((row, written)) = self.devices.get(&device.id)
            && *written == now
        {
            return Ok(*row);
        }
        let row = transaction
            .prepare_cached(
                "INSERT INTO device (uuid, gpu_index, name, pci, memory, is_unified)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (uuid) DO UPDATE SET gpu_index = ?2,
                 name = coalesce(?3, name), pci = coalesce(?4, pci),
                 memory = coalesce(?5, memory), is_unified = ?6 RETURNING id",
            )?
            .query_row(
                params![
                    device.id.0,
                    now.gpu_index,
                    now.name,
                    now.pci,
                    now.memory.map(count),
                    now.is_unified
                ],
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
        groups: &Groups,
    ) -> rusqlite::Result<i64> {
        let now = ProcessRow::of(process, groups);
        let key = process.key();
        if let Some((row, written)) = key.and_then(|key| self.processes.get(&key))
            && *written == now
        {
            return Ok(*row);
        }
        let row = now.write(transaction, boot, process.pid, start_ticks(process))?;
        if let Some(key) = key {
            self.processes.insert(key, (row, now));
        }
        Ok(row)
    }

    fn run(
        &mut self,
        transaction: &Transaction<'_>,
        run: &Run,
        (process, device): (i64, i64),
        (first, until): (Timestamp, Timestamp),
        sample: i64,
    ) -> rusqlite::Result<i64> {
        if let Some(row) = self.runs.get(run) {
            return Ok(*row);
        }
        let row = transaction
            .prepare_cached(
                // It may have left the device and come back.
                "INSERT INTO run
                 (process, device, instance, first_at, last_at, first_sample, last_sample)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
                 ON CONFLICT (process, device, instance) DO UPDATE SET ended_at = NULL, ending = NULL,
                 first_at = min(first_at, excluded.first_at)
                 RETURNING id",
            )?
            .query_row(
                params![
                    process,
                    device,
                    instance(run.instance),
                    first.0,
                    until.0,
                    sample,
                ],
                |row| row.get(0),
            )?;
        self.runs.insert(run.clone(), row);
        Ok(row)
    }

    fn forget_what_departed(&mut self, sample: &Sample) {
        let processes = || sample.snapshot.processes.iter();
        let keys: BTreeSet<ProcessKey> = processes().filter_map(GpuProcess::key).collect();
        self.processes.retain(|key, _| keys.contains(key));
        let rows: BTreeSet<i64> = self.processes.values().map(|(row, _)| *row).collect();
        self.abouts.keep(|row| rows.contains(&row));
        let runs: BTreeSet<Run> = processes().map(Run::of).collect();
        self.runs.retain(|run, _| runs.contains(run));
    }
}

impl ProcessRow {
    fn of(process: &GpuProcess, groups: &Groups) -> Self {
        let place = &process.place;
        let container = place.container.last_known().and_then(Option::as_ref);
        let owner = process.owner.last_known().cloned();
        let uid = owner.as_ref().and_then(|owner| owner.uid);
        let groups = uid.and_then(|uid| groups.get(&uid));
        Self {
            started_at: process.started_at.last_known().map(|at| at.0),
            uid: process.uid.last_known().copied(),
            user: process.user.last_known().cloned(),
            login_uid: process.login_uid.last_known().copied().flatten(),
            owner,
            groups: groups.and_then(|names| serde_json::to_string(names).ok()),
            namespace_owner: process.namespace_owner.last_known().copied().flatten(),
            name: process.name.last_known().cloned(),
            executable: process.executable.last_known().cloned(),
            command: process.command.last_known().cloned(),
            container: container.map(|container| container.id.to_string()),
            container_name: container.and_then(|it| it.name.last_known().cloned()),
            image: container.and_then(|it| it.image.last_known().cloned()),
            unit: place
                .unit
                .last_known()
                .and_then(Option::as_ref)
                .map(|unit| unit.name.clone()),
            job: process.job.last_known().map(ToString::to_string),
            place: serde_json::to_string(place).ok(),
        }
    }

    fn write(
        &self,
        transaction: &Transaction<'_>,
        boot: &str,
        pid: u32,
        start_ticks: i64,
    ) -> rusqlite::Result<i64> {
        transaction
            .prepare_cached(
                // What belongs to a user is kept while they are the same.
                "INSERT INTO process (boot, pid, start_ticks, uid, user, name, executable, command,
                 container, owner, owner_uid, owner_kind, namespace_owner, started_at, login_uid,
                 groups, container_name, image, unit, job, place)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
                 ?17, ?18, ?19, ?20, ?21)
                 ON CONFLICT (boot, pid, start_ticks) DO UPDATE SET
                 user = CASE WHEN coalesce(?4, uid) IS uid THEN coalesce(?5, user) ELSE ?5 END,
                 owner = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner ELSE ?10 END,
                 owner_uid = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner_uid ELSE ?11 END,
                 owner_kind = CASE WHEN ?10 IS NULL AND coalesce(?4, uid) IS uid THEN owner_kind ELSE ?12 END,
                 groups = CASE WHEN ?16 IS NULL AND coalesce(?4, uid) IS uid THEN groups ELSE ?16 END,
                 uid = coalesce(?4, uid), name = coalesce(?6, name),
                 executable = coalesce(?7, executable), command = coalesce(?8, command),
                 container = coalesce(?9, container),
                 namespace_owner = coalesce(?13, namespace_owner),
                 started_at = coalesce(?14, started_at), login_uid = coalesce(?15, login_uid),
                 container_name = coalesce(?17, container_name), image = coalesce(?18, image),
                 unit = coalesce(?19, unit), job = coalesce(?20, job), place = coalesce(?21, place)
                 RETURNING id",
            )?
            .query_row(
                params![
                    boot,
                    pid,
                    start_ticks,
                    self.uid,
                    self.user,
                    self.name,
                    self.executable,
                    self.command,
                    self.container,
                    self.owner.as_ref().map(|owner| &owner.name),
                    self.owner.as_ref().and_then(|owner| owner.uid),
                    self.owner.as_ref().map(|owner| kind_number(owner.kind)),
                    self.namespace_owner,
                    self.started_at,
                    self.login_uid,
                    self.groups,
                    self.container_name,
                    self.image,
                    self.unit,
                    self.job,
                    self.place,
                ],
                |row| row.get(0),
            )
    }
}

fn unknown_device(
    transaction: &Transaction<'_>,
    device: &DeviceId,
    index: u32,
) -> rusqlite::Result<i64> {
    transaction
        .prepare_cached(
            "INSERT INTO device (uuid, gpu_index) VALUES (?1, ?2)
             ON CONFLICT (uuid) DO UPDATE SET gpu_index = ?2 RETURNING id",
        )?
        .query_row(params![device.0, index], |row| row.get(0))
}

/// Marks the run of a process that does not use its device any more.
fn depart(
    transaction: &Transaction<'_>,
    boot: &str,
    departed: &Departed,
    sample: i64,
) -> rusqlite::Result<()> {
    let Departed {
        process,
        departure,
        last_seen,
    } = departed;
    transaction
        .prepare_cached(
            "UPDATE run SET ended_at = ?1, last_at = ?1, last_sample = ?2, ending = ?3
             WHERE process = (SELECT id FROM process
                              WHERE boot = ?4 AND pid = ?5 AND start_ticks = ?6)
             AND device = (SELECT id FROM device WHERE uuid = ?7) AND instance = ?8
             AND ended_at IS NULL",
        )?
        .execute(params![
            last_seen.0,
            sample,
            departure.name(),
            boot,
            process.pid,
            start_ticks(process),
            process.device.0,
            instance(process.instance),
        ])?;
    Ok(())
}

/// As it is stored. There may be no such process, and one that has ended while its driver
/// lists it is another row: rules are judged by no row below zero.
fn start_ticks(process: &GpuProcess) -> i64 {
    match (process.last_key(), process.ended_ago()) {
        (None, _) => -1,
        (Some(key), None) => count(key.start_ticks),
        (Some(key), Some(_)) => -2 - count(key.start_ticks).min(i64::MAX - 2),
    }
}

/// How a part of a device is stored.
pub(super) fn instance(instance: Option<InstanceId>) -> String {
    instance.map_or_else(String::new, |it| it.to_string())
}

/// Runs whose end nobody saw: the daemon was not there. They were in the sample
/// before, or their end would have been seen.
fn end_old_runs(
    transaction: &Transaction<'_>,
    present: impl Iterator<Item = i64>,
    sample: i64,
) -> rusqlite::Result<()> {
    let present: Vec<i64> = present.collect();
    transaction.execute(
        "UPDATE run SET ending = 'unseen', last_sample = ?2,
         ended_at = max(last_at, coalesce((SELECT max(at) FROM sample WHERE id = ?2 - 1), 0))
         WHERE ended_at IS NULL AND id NOT IN (SELECT value FROM json_each(?1))",
        params![super::row::json(&present), sample],
    )?;
    Ok(())
}
