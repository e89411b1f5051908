//! The past as rules see it, from the oldest to the newest: what was stored of each
//! sample, and where samples are not kept any more, of each minute and hour.

use super::range::{Level, Rows, rows};
use super::{Deadline, Failure};
use crate::audit::abouts;
use crate::audit::packed::{Unpacked, read};
use crate::audit::row::instance_of;
use crate::civil::civil;
use chrono::TimeZone;
use gpukill_policy::guard::about::About;
use gpukill_policy::guard::bucket::{Bucket, Judged, JudgedDevice, held_since};
use gpukill_policy::usage::DeviceUsage;
use gpukill_proto::guard::JudgedRun;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Tells of each stretch that began in this time, and whether it is a sample. Ends
/// early where `tell` says that it has enough.
///
/// # Errors
/// When the store fails, or it takes too long.
pub(crate) fn buckets(
    connection: &Connection,
    (since, until): (Timestamp, Timestamp),
    zone: &impl TimeZone,
    deadline: Deadline,
    tell: &mut dyn FnMut(Bucket, bool) -> ControlFlow<()>,
) -> Result<(), Failure> {
    // As it stands now: what is deleted meanwhile would be missing.
    let connection = &*connection.unchecked_transaction()?;
    let mut known = Known::new(connection);
    let mut oldest_first = rows(connection, since, until)?;
    oldest_first.reverse();
    for Rows { level, first, end } in oldest_first {
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
            // One that is broken is told of where it was found, and left out here.
            if let Ok(stored) = read(blob, Timestamp(at)) {
                let bucket = known.bucket((level, id), stored, zone)?;
                if tell(bucket, level == Level::Samples).is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// What rows of the store mean, as far as they were asked for.
struct Known<'a> {
    connection: &'a Connection,
    devices: BTreeMap<i64, Device>,
    runs: BTreeMap<i64, Option<Run>>,
    /// Of each process what was known from which sample on, in their order.
    abouts: BTreeMap<i64, Vec<(i64, Arc<About>)>>,
}

struct Device {
    id: DeviceId,
    name: Option<String>,
    pci: Option<String>,
    memory: Option<Bytes>,
    is_unified: bool,
}

struct Run {
    process: i64,
    judged: Arc<JudgedRun>,
    first_seen: Timestamp,
    /// As the kernel told last.
    started_at: Option<Timestamp>,
    /// In which sample it left the device.
    left_in: Option<i64>,
}

impl<'a> Known<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
            abouts: BTreeMap::new(),
        }
    }

    fn bucket(
        &mut self,
        (level, id): (Level, i64),
        stored: Unpacked,
        zone: &impl TimeZone,
    ) -> Result<Bucket, Failure> {
        let mut devices = BTreeMap::new();
        for (row, usage) in stored.devices {
            if let Some((id, told)) = self.device(row, usage)? {
                devices.insert(id, told);
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
            let judged = Arc::clone(&run.judged);
            // Only a sample names the runs that had left: those of a minute or an hour are
            // known by their last sample.
            let is_present = match level {
                Level::Samples => !stored.left.contains(&row),
                Level::Minutes | Level::Hours => run.left_in.is_none_or(|left| left > id),
            };
            let about = self.about(process, id)?;
            if !is_present {
                left.push((row, process));
            }
            let told = Judged {
                about,
                first_seen,
                usage,
                is_present,
            };
            runs.push((judged, told));
        }
        // Who has left comes no more, or is read again.
        for (row, process) in left {
            self.runs.remove(&row);
            self.abouts.remove(&process);
        }
        Ok(Bucket {
            from: stored.from,
            until: stored.until,
            seen_ms: stored.seen_ms,
            civil: civil(zone, stored.from),
            devices,
            runs: runs.into_iter().collect(),
        })
    }

    fn device(
        &mut self,
        row: i64,
        usage: DeviceUsage,
    ) -> Result<Option<(DeviceId, JudgedDevice)>, Failure> {
        if !self.devices.contains_key(&row) {
            let select = "SELECT uuid, name, pci, memory, is_unified FROM device WHERE id = ?1";
            let found = self
                .connection
                .prepare_cached(select)?
                .query_row([row], |row| {
                    let memory: Option<i64> = row.get(3)?;
                    Ok(Device {
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
            let told = JudgedDevice {
                index: usage.index,
                name: device.name.clone(),
                pci: device.pci.clone(),
                memory: device.memory,
                is_unified: device.is_unified,
                usage,
            };
            (device.id.clone(), told)
        }))
    }

    /// `None` of a pid that no process had.
    fn run(&mut self, row: i64) -> Result<Option<&Run>, Failure> {
        if !self.runs.contains_key(&row) {
            let read = self.read_run(row)?;
            self.runs.insert(row, read);
        }
        Ok(self.runs.get(&row).and_then(Option::as_ref))
    }

    fn read_run(&self, row: i64) -> Result<Option<Run>, Failure> {
        let select = "SELECT run.process, pid, start_ticks, uuid, instance, first_at,
            CASE WHEN ended_at IS NOT NULL THEN last_sample END, started_at
            FROM run JOIN process ON process.id = run.process JOIN device ON device.id = run.device
            WHERE run.id = ?1";
        let mut statement = self.connection.prepare_cached(select)?;
        let found = statement.query_row([row], |row| {
            let (start_ticks, part): (i64, String) = (row.get(2)?, row.get(4)?);
            let run = Run {
                process: row.get(0)?,
                judged: Arc::new(JudgedRun {
                    pid: row.get(1)?,
                    start_ticks: start_ticks.unsigned_abs(),
                    device: DeviceId(row.get(3)?),
                    instance: instance_of(&part),
                }),
                first_seen: Timestamp(row.get(5)?),
                left_in: row.get(6)?,
                started_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            };
            Ok((start_ticks >= 0).then_some(run))
        });
        Ok(found.optional()?.flatten())
    }

    /// What was known of a process when this row was written.
    fn about(&mut self, process: i64, id: i64) -> Result<Arc<About>, Failure> {
        if !self.abouts.contains_key(&process) {
            let read = self.read_abouts(process)?;
            self.abouts.insert(process, read);
        }
        let all = self.abouts.get(&process).map_or(&[][..], Vec::as_slice);
        let later = all.partition_point(|(since, _)| *since <= id);
        let then = all.get(later.saturating_sub(1)).or(all.first());
        Ok(then.map_or_else(Arc::default, |(_, about)| Arc::clone(about)))
    }

    fn read_abouts(&self, process: i64) -> Result<Vec<(i64, Arc<About>)>, Failure> {
        let select = "SELECT sample, about FROM about WHERE process = ?1 ORDER BY sample";
        let mut statement = self.connection.prepare_cached(select)?;
        let rows = statement.query_map([process], |row| {
            let blob: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, blob))
        })?;
        let mut told = Vec::new();
        for row in rows {
            let (since, blob) = row?;
            told.push((since, Arc::new(abouts::unpack(&blob))));
        }
        Ok(told)
    }
}
