//! Since when processes have used devices, and when they last did: what a daemon that was
//! started again has not seen itself.

use super::super::rolling::active_since_the_last_minute;
use super::super::row::count;
use super::{Deadline, Failure};
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// A process on a device, whatever part of it.
pub(crate) type DeviceProcess = (DeviceId, ProcessKey);

/// What the store knows of a process on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PastUse {
    pub(crate) first: Timestamp,
    pub(crate) active: Option<Timestamp>,
}

/// What is known of these, in this boot of the box; nothing of those that are new.
pub(in super::super) fn past_use(
    connection: &Connection,
    boot: &str,
    wanted: &[DeviceProcess],
    deadline: Deadline,
) -> Result<BTreeMap<DeviceProcess, PastUse>, Failure> {
    let active = active_since_the_last_minute(connection)?;
    let mut statement = connection.prepare_cached(
        "SELECT run.id, first_at, active_at FROM process JOIN run ON run.process = process.id
         WHERE boot = ?1 AND pid = ?2 AND start_ticks = ?3
         AND device = (SELECT id FROM device WHERE uuid = ?4)",
    )?;
    let mut known = BTreeMap::new();
    for (device, process) in wanted {
        deadline.check()?;
        let ticks = count(process.start_ticks);
        let mut runs = statement.query(params![boot, process.pid, ticks, device.0])?;
        let mut sum: Option<PastUse> = None;
        while let Some(row) = runs.next()? {
            let (id, first): (i64, i64) = (row.get(0)?, row.get(1)?);
            let in_minutes = row.get::<_, Option<i64>>(2)?.map(Timestamp);
            let found = PastUse {
                first: Timestamp(first),
                active: in_minutes.max(active.get(&id).copied()),
            };
            sum = Some(sum.map_or(found, |sum| PastUse {
                first: sum.first.min(found.first),
                active: sum.active.max(found.active),
            }));
        }
        known.extend(sum.map(|sum| ((device.clone(), *process), sum)));
    }
    Ok(known)
}
