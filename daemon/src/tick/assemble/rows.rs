//! The rows of a device: its driver's list, put beside the processes that it names.

use super::listing::listed_before;
use super::{Memory, People, Seen, aged};
use crate::backend::{DeviceReadings, ProcessReadings};
use crate::host::process::Identity;
use crate::host::users::Users;
use gpukill_policy::guard::bucket::held_since;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, GpuProcess, ProcessKey};
use gpukill_proto::text::HAS_ENDED;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

impl Memory {
    /// The rows of a device, by a list of this age.
    pub(super) fn processes(
        &mut self,
        read: &DeviceReadings,
        age: Option<u32>,
        people: &People,
        users: &Users,
        now: Timestamp,
    ) -> Vec<GpuProcess> {
        let Reading::Value(listed) = &read.processes else {
            return Vec::new();
        };
        // The pids that other processes have by now.
        let others: BTreeSet<u32> = listed
            .iter()
            .filter_map(|process| Some(people.get(&process.pid)?.key))
            .filter(|key| self.listings.is_of_another(&read.id, *key))
            .map(|key| key.pid)
            .into_set();
        let identity = |pid: u32| people.get(&pid).filter(|_| !others.contains(&pid));
        if age.is_none() {
            let keys = listed
                .iter()
                .filter_map(|process| Some((process.pid, identity(process.pid)?.key)));
            self.listed.insert(read.id.clone(), keys.collect());
        }
        // Only an old list is held against it.
        let was = age.and_then(|_| self.listed.get(&read.id).cloned());
        let was = was.unwrap_or_default();
        let mut rows: Vec<GpuProcess> = listed
            .iter()
            // An old list may name processes that have ended since, and pids
            // that others have now.
            .filter(|process| {
                let has_it = people.get(&process.pid).map(|identity| identity.key);
                let now = identity(process.pid).map(|identity| identity.key);
                let is_other = |start| has_it.is_some_and(|key| key.start_ticks != start);
                // The backend saw the process itself: whoever has the pid now
                // is another one.
                !process.start_ticks.is_some_and(is_other)
                    && (age.is_none() || now == was.get(&process.pid).copied())
            })
            .map(|process| {
                let on = (&read.id, process.pid);
                let who = match identity(process.pid) {
                    Some(identity) => {
                        if age.is_none() {
                            self.last_known.remember(&read.id, identity);
                        }
                        Who::Process(identity.clone())
                    }
                    None if others.contains(&process.pid) => Who::Unknown(listed_before()),
                    None => match self.last_known.ended(on, &self.listings, now) {
                        Some((identity, at)) => Who::Ended(identity, at),
                        None => Who::Unknown(nobody()),
                    },
                };
                self.row(&read.id, process, who, age, users, now)
            })
            .collect();
        rows.sort_indirect_by_key(|row| (row.pid, row.instance));
        rows
    }

    fn row(
        &mut self,
        device: &DeviceId,
        read: &ProcessReadings,
        who: Who,
        age: Option<u32>,
        users: &Users,
        now: Timestamp,
    ) -> GpuProcess {
        let used = &read.utilization;
        let why = match &who {
            Who::Process(_) => nobody(),
            Who::Ended(..) => Reading::Failed(HAS_ENDED.into()),
            Who::Unknown(why) => why.clone(),
        };
        let mut row = GpuProcess {
            instance: read.instance,
            used_for: read.used_for,
            memory: aged(&read.memory, age),
            utilization: aged(&used.sm, age),
            memory_utilization: aged(&used.memory, age),
            encoder: aged(&used.encoder, age),
            decoder: aged(&used.decoder, age),
            ..GpuProcess::unknown(device.clone(), read.pid, now, &why)
        };
        let (identity, ended_at) = match who {
            Who::Process(identity) => (Some(identity), None),
            Who::Ended(identity, at) => (Some(identity), Some(at)),
            Who::Unknown(_) => (None, None),
        };
        if let Some(identity) = identity {
            let on = (device.clone(), identity.key);
            let before = ended_at.and_then(|_| self.seen.get(&on).copied());
            let seen = before.unwrap_or_else(|| self.see(on, read, now));
            identity.describe(&mut row, users);
            if let Some(at) = ended_at {
                end(&mut row, identity.key, now.since(at));
            }
            let started_at = row.started_at.last_known().copied();
            let is_known = seen.is_recalled || !self.may_have_been_seen_before(started_at, now);
            row.first_seen = match is_known {
                true => Reading::Value(held_since(seen.first, started_at, now)),
                false => not_recalled(),
            };
            row.last_active = match &used.sm {
                Reading::Value(_) if is_known => Reading::Value(seen.active),
                Reading::Value(_) => not_recalled(),
                unknown => unknown.because(),
            };
        } else {
            let first = self.nobodies.entry((device.clone(), read.pid));
            row.first_seen = Reading::Value(*first.or_insert(now));
        }
        row
    }

    /// Remembers that a process is on a device, and whether it uses it.
    fn see(&mut self, on: (DeviceId, ProcessKey), read: &ProcessReadings, now: Timestamp) -> Seen {
        let first = self.remembered.get(&on).copied().unwrap_or(now).min(now);
        let seen = self.seen.entry(on).or_insert(Seen {
            first,
            active: None,
            is_recalled: false,
        });
        let used = &read.utilization;
        let shares = [&used.sm, &used.memory, &used.encoder, &used.decoder];
        let is_active = shares
            .into_iter()
            .any(|share| share.known().is_some_and(|share| share.0 > 0));
        if is_active {
            seen.active = Some(used.at.unwrap_or(now));
        }
        *seen
    }
}

/// Who a listed pid is.
enum Who {
    Process(Identity),
    /// The process that it was has ended.
    Ended(Identity, Timestamp),
    /// Nobody knows, for this reason.
    Unknown(Reading<()>),
}

/// Marks a row as one of a process that ended so long ago. Nothing that it did is now.
fn end(row: &mut GpuProcess, key: ProcessKey, ago: Duration) {
    let seconds = u32::try_from(ago.as_secs()).unwrap_or(u32::MAX);
    row.start_ticks = Reading::Stale(key.start_ticks, seconds);
    row.host_memory = Reading::Failed(HAS_ENDED.into());
    row.cpu = Reading::Failed(HAS_ENDED.into());
}

/// Whether an earlier daemon saw the process is not known yet.
fn not_recalled<T>() -> Reading<T> {
    Reading::Failed("the store has not been asked yet".into())
}

/// The driver names a pid that this box does not have: it has just ended, or it
/// is of another PID namespace.
fn nobody<T>() -> Reading<T> {
    Reading::Failed("no such process here".into())
}
