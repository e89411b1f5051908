//! The history as rules see it, oldest first: each sample, and where samples are no longer kept,
//! each minute or hour.

use super::range::{IdRange, RollupLevel, find_ranges};
use super::{Deadline, QueryError};
use crate::local_time::to_civil_time;
use crate::store::blob::{DecodedUsage, decode_in_order};
use crate::store::rule_facts;
use crate::store::sql_values::parse_instance;
use chrono::TimeZone;
use gpukill_policy::guard::facts::ProcessFacts;
use gpukill_policy::guard::sample::{DeviceSample, GuardSample, RunSample, held_since};
use gpukill_policy::usage::DeviceUsage;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::RunKey;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Passes each sample, minute or hour that began in this time span to `visit`, with whether it is a
/// sample. Stops early when `visit` breaks.
pub(crate) fn guard_samples(
    connection: &Connection,
    (since, until): (Timestamp, Timestamp),
    zone: &impl TimeZone,
    deadline: Deadline,
    visit: &mut dyn FnMut(GuardSample, bool) -> ControlFlow<()>,
) -> Result<(), QueryError> {
    // One transaction: rows that are deleted meanwhile would otherwise be missing.
    let connection = &*connection.unchecked_transaction()?;
    let mut known = SampleReader::new(connection);
    let mut oldest_first = find_ranges(connection, since, until)?;
    oldest_first.reverse();
    for IdRange { level, first, end } in oldest_first {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT id, at, usage FROM {}
             WHERE id >= ?1 AND id < ?2 AND +at >= ?3 AND +at < ?4 ORDER BY id",
            level.table()
        ))?;
        let mut found = statement.query(params![first, end, since.0, until.0])?;
        while let Some(row) = found.next()? {
            deadline.check()?;
            let (id, at): (i64, i64) = (row.get(0)?, row.get(1)?);
            let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
            // A corrupt row is logged where the rollup reads it, and skipped here.
            if let Ok(stored) = decode_in_order(blob, Timestamp(at)) {
                let sample = known.guard_sample((level, id), stored, zone)?;
                if visit(sample, level == RollupLevel::Samples).is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The rows read so far, with their meaning.
struct SampleReader<'a> {
    connection: &'a Connection,
    devices: BTreeMap<i64, ReplayDevice>,
    runs: BTreeMap<i64, Option<ReplayRun>>,
    /// The facts of each process and the sample from which they hold, in order.
    facts: BTreeMap<i64, Vec<(i64, Arc<ProcessFacts>)>>,
}

struct ReplayDevice {
    id: DeviceId,
    name: Option<String>,
    pci: Option<String>,
    memory: Option<Bytes>,
    is_unified: bool,
}

struct ReplayRun {
    process: i64,
    key: Arc<RunKey>,
    first_seen: Timestamp,
    /// As the kernel last reported it.
    started_at: Option<Timestamp>,
    /// The sample in which the run left the device.
    left_in: Option<i64>,
}

impl<'a> SampleReader<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
            facts: BTreeMap::new(),
        }
    }

    fn guard_sample(
        &mut self,
        (level, id): (RollupLevel, i64),
        stored: DecodedUsage,
        zone: &impl TimeZone,
    ) -> Result<GuardSample, QueryError> {
        let mut devices = BTreeMap::new();
        for (row, usage) in stored.devices {
            if let Some((id, sample)) = self.device(row, usage)? {
                devices.insert(id, sample);
            }
        }
        let mut runs = Vec::with_capacity(stored.runs.len());
        let mut left = Vec::new();
        for (row, usage) in stored.runs {
            let Some(run) = self.run(row)? else {
                continue;
            };
            let first_seen = held_since(run.first_seen, run.started_at, stored.until);
            let process = run.process;
            let key = Arc::clone(&run.key);
            // Only a sample names the runs that had left. A run of a minute or an hour is present
            // at its end if the run's last sample is later.
            let is_present = match level {
                RollupLevel::Samples => !stored.left.contains(&row),
                RollupLevel::Minutes | RollupLevel::Hours => {
                    run.left_in.is_none_or(|left| left > id)
                }
            };
            let facts = self.facts_at(process, id)?;
            if !is_present {
                left.push((row, process));
            }
            let sample = RunSample {
                facts,
                first_seen,
                usage,
                is_present,
            };
            runs.push((key, sample));
        }
        // A run that has left does not return, or is read again.
        for (row, process) in left {
            self.runs.remove(&row);
            self.facts.remove(&process);
        }
        Ok(GuardSample {
            from: stored.from,
            until: stored.until,
            observed_ms: stored.seen_ms,
            local_time: to_civil_time(zone, stored.from),
            devices,
            runs: runs.into_iter().into_map(),
        })
    }

    fn device(
        &mut self,
        row: i64,
        usage: DeviceUsage,
    ) -> Result<Option<(DeviceId, DeviceSample)>, QueryError> {
        if !self.devices.contains_key(&row) {
            let select = "SELECT uuid, name, pci, memory, is_unified FROM device WHERE id = ?1";
            let found = self
                .connection
                .prepare_cached(select)?
                .query_row([row], |row| {
                    let memory: Option<i64> = row.get(3)?;
                    Ok(ReplayDevice {
                        id: DeviceId(row.get(0)?),
                        name: row.get(1)?,
                        pci: row.get(2)?,
                        memory: memory.map(|bytes| Bytes(bytes.unsigned_abs())),
                        is_unified: row.get(4)?,
                    })
                });
            let Some(found) = found.optional()? else {
                return Ok(None);
            };
            self.devices.insert(row, found);
        }
        Ok(self.devices.get(&row).map(|device| {
            let sample = DeviceSample {
                index: usage.index,
                name: device.name.clone(),
                pci: device.pci.clone(),
                memory: device.memory,
                is_unified: device.is_unified,
                usage,
            };
            (device.id.clone(), sample)
        }))
    }

    /// `None` for a pid that belonged to no process.
    fn run(&mut self, row: i64) -> Result<Option<&ReplayRun>, QueryError> {
        if !self.runs.contains_key(&row) {
            let read = self.read_run(row)?;
            self.runs.insert(row, read);
        }
        Ok(self.runs.get(&row).and_then(Option::as_ref))
    }

    fn read_run(&self, row: i64) -> Result<Option<ReplayRun>, QueryError> {
        let select = "SELECT run.process, pid, start_ticks, uuid, instance, first_at,
            CASE WHEN ended_at IS NOT NULL THEN last_sample END, started_at
            FROM run JOIN process ON process.id = run.process JOIN device ON device.id = run.device
            WHERE run.id = ?1";
        let mut statement = self.connection.prepare_cached(select)?;
        let found = statement.query_row([row], |row| {
            let (start_ticks, part): (i64, String) = (row.get(2)?, row.get(4)?);
            let run = ReplayRun {
                process: row.get(0)?,
                key: Arc::new(RunKey {
                    pid: row.get(1)?,
                    start_ticks: start_ticks.unsigned_abs(),
                    device: DeviceId(row.get(3)?),
                    instance: parse_instance(&part),
                }),
                first_seen: Timestamp(row.get(5)?),
                left_in: row.get(6)?,
                started_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            };
            Ok((start_ticks >= 0).then_some(run))
        });
        Ok(found.optional()?.flatten())
    }

    /// The facts of a process at the time of this row.
    fn facts_at(&mut self, process: i64, id: i64) -> Result<Arc<ProcessFacts>, QueryError> {
        if !self.facts.contains_key(&process) {
            let read = self.read_facts(process)?;
            self.facts.insert(process, read);
        }
        let all = self.facts.get(&process).map_or(&[][..], Vec::as_slice);
        let later = all.partition_point(|(since, _)| *since <= id);
        let then = all.get(later.saturating_sub(1)).or(all.first());
        Ok(then.map_or_else(Arc::default, |(_, facts)| Arc::clone(facts)))
    }

    fn read_facts(&self, process: i64) -> Result<Vec<(i64, Arc<ProcessFacts>)>, QueryError> {
        let select = "SELECT sample, facts FROM rule_facts WHERE process = ?1 ORDER BY sample";
        let mut statement = self.connection.prepare_cached(select)?;
        let rows = statement.query_map([process], |row| {
            let blob: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, blob))
        })?;
        let mut facts = Vec::new();
        for row in rows {
            let (since, blob) = row?;
            facts.push((since, Arc::new(rule_facts::decode(&blob))));
        }
        Ok(facts)
    }
}
