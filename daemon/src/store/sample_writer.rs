//! Writes one sample: its usage, and the rows of its devices, processes and runs.

use super::blob::{StoredUsage, encode_sample};
use super::rollup::Rollup;
use super::rule_facts::RuleFactsCache;
use super::sample::{DepartedProcess, GroupNames, Sample};
use super::sql_values::{ids_json, owner_kind_number, saturating_i64};
use gpukill_policy::guard::facts::usable_memory;
use gpukill_policy::usage::{DeviceRun, Usage};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, InstanceId, Owner, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, Transaction, params};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// The rows written for devices, processes and runs, which are written again only when they change.
#[derive(Default)]
pub(super) struct SampleWriter {
    devices: BTreeMap<DeviceId, (i64, DeviceRow)>,
    processes: BTreeMap<ProcessKey, (i64, ProcessRow)>,
    runs: BTreeMap<DeviceRun, WrittenRun>,
    facts: RuleFactsCache,
    /// `None` until it is read from the file.
    rollup: Option<Rollup>,
    earlier_runs: EarlierRuns,
}

/// The runs of before this daemon of which it is unknown whether they go on.
#[derive(Clone, Copy, Default)]
struct EarlierRuns {
    /// The first sample of this daemon.
    first_sample: Option<i64>,
    /// The time that its samples cover, in milliseconds.
    seen_ms: u64,
    are_ended: bool,
}

/// How long a device may take until it is read for the first time; then its earlier runs have
/// ended. A driver needs up to a minute to wake all its devices, and a kill waits ten minutes for
/// the ends of the runs that it ended.
const MAX_FIRST_READ_MS: u64 = 120_000;

#[derive(Clone, Copy)]
struct WrittenRun {
    row: i64,
    /// The time of a sample, in place of the unknown time since when the process uses the device.
    stand_in_first: Option<Timestamp>,
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
    location: Option<String>,
}

impl SampleWriter {
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
            // The ids of rows that were rolled back must not be used again.
            *self = Self::default();
        }
        result
    }

    /// Clears the cache of written rows; the file is unchanged.
    pub(super) fn forget(&mut self) {
        *self = Self {
            earlier_runs: self.earlier_runs,
            ..Self::default()
        };
    }

    fn write_rows(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        sample: &Sample,
    ) -> rusqlite::Result<()> {
        let mut rolling = match self.rollup.take() {
            Some(rolling) => rolling,
            None => Rollup::load(transaction)?,
        };
        let id = rolling.last_sample_id(transaction)? + 1;
        let (stored, left) = self.resolve_rows(transaction, boot, sample, id)?;
        transaction
            .prepare_cached("INSERT INTO sample (id, at, usage) VALUES (?1, ?2, ?3)")?
            .execute(params![id, stored.from.0, encode_sample(&stored, &left)])?;
        rolling.add_sample(transaction, id, stored.from)?;
        for departed in &sample.departed {
            end_run(transaction, boot, departed, id)?;
        }
        self.end_unobserved_runs(transaction, boot, sample, id)?;
        self.rollup = Some(rolling);
        self.forget_departed(sample);
        Ok(())
    }

    /// Ends the runs that ended while the daemon was not running: those of earlier boots, and those
    /// of which this daemon has not observed their process although it read the device.
    fn end_unobserved_runs(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        sample: &Sample,
        id: i64,
    ) -> rusqlite::Result<()> {
        let earlier = &mut self.earlier_runs;
        if earlier.are_ended {
            return Ok(());
        }
        let first = *earlier.first_sample.get_or_insert(id);
        earlier.seen_ms = earlier.seen_ms.saturating_add(sample.usage.seen_ms);
        earlier.are_ended = earlier.seen_ms >= MAX_FIRST_READ_MS;
        let observed: Vec<i64> = self.runs.values().map(|run| run.row).collect();
        let devices = sample.snapshot.devices.iter();
        let read = devices.filter(|device| shows_processes(device));
        let read = read.filter_map(|device| Some(self.devices.get(&device.id)?.0));
        // They were in the sample before the first one, otherwise their end would have been
        // observed.
        transaction
            .prepare_cached(
                "UPDATE run SET ending = 'unobserved', last_sample = ?1,
                 ended_at = max(last_at,
                                coalesce((SELECT max(at) FROM sample WHERE id = ?1 - 1), 0))
                 WHERE ended_at IS NULL AND id NOT IN (SELECT value FROM json_each(?2))
                 AND (?3 OR device IN (SELECT value FROM json_each(?4))
                      OR (SELECT boot FROM process WHERE id = run.process) IS NOT ?5)",
            )?
            .execute(params![
                first,
                ids_json(&observed),
                earlier.are_ended,
                ids_json(&read.collect::<Vec<_>>()),
                boot,
            ])?;
        Ok(())
    }

    /// Finds the row ids of devices and runs, and writes the rows that are new or have changed.
    /// Also returns the runs that had left.
    fn resolve_rows(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        sample: &Sample,
        id: i64,
    ) -> rusqlite::Result<(StoredUsage, BTreeSet<i64>)> {
        let Usage {
            from,
            until,
            seen_ms,
            devices,
            runs,
        } = &sample.usage;
        let mut stored = StoredUsage {
            from: *from,
            until: *until,
            seen_ms: *seen_ms,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
        };
        let known = sample.snapshot.devices.iter();
        let known: BTreeMap<&DeviceId, &Device> = known.map(|it| (&it.id, it)).into_map();
        let mut device_rows = BTreeMap::new();
        for (device, usage) in devices {
            let row = match (known.get(device), self.devices.get(device)) {
                (Some(device), _) => self.device_row(transaction, device)?,
                // The device disappeared during the sample.
                (None, Some((row, _))) => *row,
                (None, None) => insert_unknown_device(transaction, device, usage.index)?,
            };
            stored.devices.insert(row, usage.clone());
            device_rows.insert(device, row);
        }
        let (people, facts) = (sample.processes(), sample.process_facts());
        let departed: BTreeSet<DeviceRun> = sample.departed_runs().into_set();
        let mut left = BTreeSet::new();
        for (run, usage) in runs {
            let Some(process) = people.get(run) else {
                continue;
            };
            let row = self.process_row(transaction, boot, process, &sample.groups)?;
            if let Some(facts) = process.key().and_then(|key| facts.get(&key)) {
                self.facts.write(transaction, row, id, facts)?;
            }
            let Some(device) = device_rows.get(&run.device) else {
                continue;
            };
            let first_seen = process.first_seen.known().copied();
            let run_row = self.run_row(
                transaction,
                run,
                (row, *device),
                (first_seen, (*from, *until)),
                id,
            )?;
            stored.runs.insert(run_row, usage.clone());
            if departed.contains(run) {
                left.insert(run_row);
            }
        }
        Ok((stored, left))
    }

    fn device_row(
        &mut self,
        transaction: &Transaction<'_>,
        device: &Device,
    ) -> rusqlite::Result<i64> {
        let now = DeviceRow {
            gpu_index: device.index,
            name: device.name.last_known().cloned(),
            pci: device.pci.last_known().cloned(),
            memory: usable_memory(device).map(|bytes| bytes.0),
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
                    now.memory.map(saturating_i64),
                    now.is_unified
                ],
                |row| row.get(0),
            )?;
        self.devices.insert(device.id.clone(), (row, now));
        Ok(row)
    }

    fn process_row(
        &mut self,
        transaction: &Transaction<'_>,
        boot: &str,
        process: &GpuProcess,
        groups: &GroupNames,
    ) -> rusqlite::Result<i64> {
        let now = ProcessRow::from_process(process, groups);
        let key = process.key();
        if let Some((row, written)) = key.and_then(|key| self.processes.get(&key))
            && *written == now
        {
            return Ok(*row);
        }
        let row = now.write(transaction, boot, process.pid, stored_start_ticks(process))?;
        if let Some(key) = key {
            self.processes.insert(key, (row, now));
        }
        Ok(row)
    }

    fn run_row(
        &mut self,
        transaction: &Transaction<'_>,
        run: &DeviceRun,
        (process, device): (i64, i64),
        (first_seen, (from, until)): (Option<Timestamp>, (Timestamp, Timestamp)),
        sample: i64,
    ) -> rusqlite::Result<i64> {
        if let Some(written) = self.runs.get_mut(run) {
            if let (Some(first_seen), Some(stand_in)) = (first_seen, written.stand_in_first) {
                // A process that had left the device and come back keeps its earlier time.
                transaction
                    .prepare_cached("UPDATE run SET first_at = ?2 WHERE id = ?1 AND first_at = ?3")?
                    .execute(params![written.row, first_seen.0, stand_in.0])?;
                written.stand_in_first = None;
            }
            return Ok(written.row);
        }
        let first = first_seen.unwrap_or(from);
        let row = transaction
            .prepare_cached(
                // The process may have left the device and come back.
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
                    format_instance(run.instance),
                    first.0,
                    until.0,
                    sample,
                ],
                |row| row.get(0),
            )?;
        let written = WrittenRun {
            row,
            stand_in_first: first_seen.is_none().then_some(from),
        };
        self.runs.insert(run.clone(), written);
        Ok(row)
    }

    fn forget_departed(&mut self, sample: &Sample) {
        let processes = || sample.snapshot.processes.iter();
        let keys: BTreeSet<ProcessKey> = processes().filter_map(GpuProcess::key).into_set();
        self.processes.retain_entries(|key, _| keys.contains(key));
        let rows: BTreeSet<i64> = self.processes.values().map(|(row, _)| *row).into_set();
        self.facts.retain(|row| rows.contains(&row));
        let runs: BTreeSet<DeviceRun> = processes().map(DeviceRun::from_process).into_set();
        self.runs.retain_entries(|run, _| runs.contains(run));
    }
}

impl ProcessRow {
    fn from_process(process: &GpuProcess, groups: &GroupNames) -> Self {
        let location = &process.location;
        let container = location.container.last_known().and_then(Option::as_ref);
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
            unit: location
                .unit
                .last_known()
                .and_then(Option::as_ref)
                .map(|unit| unit.name.clone()),
            job: process.job.last_known().map(ToString::to_string),
            location: serde_json::to_string(location).ok(),
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
                // The columns of a user are kept while the user is the same.
                "INSERT INTO process (boot, pid, start_ticks, uid, user, name, executable, command,
                 container, owner, owner_uid, owner_kind, namespace_owner, started_at, login_uid,
                 groups, container_name, image, unit, job, location)
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
                 unit = coalesce(?19, unit), job = coalesce(?20, job),
                 location = coalesce(?21, location)
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
                    self.owner.as_ref().map(|owner| owner_kind_number(owner.kind)),
                    self.namespace_owner,
                    self.started_at,
                    self.login_uid,
                    self.groups,
                    self.container_name,
                    self.image,
                    self.unit,
                    self.job,
                    self.location,
                ],
                |row| row.get(0),
            )
    }
}

fn insert_unknown_device(
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

/// Marks the run of a process that no longer uses its device.
fn end_run(
    transaction: &Transaction<'_>,
    boot: &str,
    departed: &DepartedProcess,
    sample: i64,
) -> rusqlite::Result<()> {
    let DepartedProcess {
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
            stored_start_ticks(process),
            process.device.0,
            format_instance(process.instance),
        ])?;
    Ok(())
}

/// The start time as it is stored. A pid without a process is -1. A process that has ended while
/// its driver still lists it has a row of its own, below -1: rules ignore negative rows.
fn stored_start_ticks(process: &GpuProcess) -> i64 {
    match (process.last_known_key(), process.seconds_since_end()) {
        (None, _) => -1,
        (Some(key), None) => saturating_i64(key.start_ticks),
        (Some(key), Some(_)) => -2 - saturating_i64(key.start_ticks).min(i64::MAX - 2),
    }
}

/// The start of a process that had ended while its driver still listed it, from its stored start;
/// `None` for other processes.
pub(super) fn start_ticks_if_ended(stored: i64) -> Option<u64> {
    u64::try_from((-2_i64).checked_sub(stored)?).ok()
}

pub(super) fn format_instance(instance: Option<InstanceId>) -> String {
    instance.map_or_else(String::new, |it| it.to_string())
}

/// Whether all processes on a device are known, or the device is gone with them.
fn shows_processes(device: &Device) -> bool {
    device.is_gone()
        || match device.process_count {
            // Without a list of the driver, the scans of file descriptors are complete.
            Reading::Value(_) | Reading::Unsupported => device.lost.is_none(),
            Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => false,
        }
}
