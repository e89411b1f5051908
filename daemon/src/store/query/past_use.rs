//! The first and last use of devices by processes, for a restarted daemon that has not observed
//! them itself.

use super::super::rollup::active_since_last_minute;
use super::super::sql_values::saturating_i64;
use super::{Deadline, QueryError};
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// A process on a device or any instance of it.
pub(crate) type DeviceProcess = (DeviceId, ProcessKey);

/// The stored use of a device by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PastUse {
    pub(crate) first_seen: Timestamp,
    pub(crate) last_active: Option<Timestamp>,
}

/// The past use of these processes in this boot of the host; new processes have no entry.
pub(in super::super) fn past_use(
    connection: &Connection,
    boot: &str,
    wanted: &[DeviceProcess],
    deadline: Deadline,
) -> Result<BTreeMap<DeviceProcess, PastUse>, QueryError> {
    let active = active_since_last_minute(connection)?;
    let mut statement = connection.prepare_cached(
        "SELECT run.id, first_at, active_at FROM process JOIN run ON run.process = process.id
         WHERE boot = ?1 AND pid = ?2 AND start_ticks = ?3
         AND device = (SELECT id FROM device WHERE uuid = ?4)",
    )?;
    let mut known = BTreeMap::new();
    for (device, process) in wanted {
        deadline.check()?;
        let ticks = saturating_i64(process.start_ticks);
        let mut runs = statement.query(params![boot, process.pid, ticks, device.0])?;
        let mut sum: Option<PastUse> = None;
        while let Some(row) = runs.next()? {
            let (id, first): (i64, i64) = (row.get(0)?, row.get(1)?);
            let in_minutes = row.get::<_, Option<i64>>(2)?.map(Timestamp);
            let found = PastUse {
                first_seen: Timestamp(first),
                last_active: in_minutes.max(active.get(&id).copied()),
            };
            sum = Some(sum.map_or(found, |sum| PastUse {
                first_seen: sum.first_seen.min(found.first_seen),
                last_active: sum.last_active.max(found.last_active),
            }));
        }
        known.extend(sum.map(|sum| ((device.clone(), *process), sum)));
    }
    Ok(known)
}
