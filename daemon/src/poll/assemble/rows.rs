//! The process rows of a device: its driver's list joined with process metadata.

use super::listing::listed_before_reuse;
use super::{PollState, ProcessesByPid, UseTimes, aged};
use crate::backend::{DeviceReadings, ProcessReadings};
use crate::host::process::ProcessMetadata;
use crate::host::users::Users;
use gpukill_policy::guard::sample::held_since;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::PROCESS_ENDED;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

impl PollState {
    /// The rows of a device from a list of this age.
    pub(super) fn process_rows(
        &mut self,
        read: &DeviceReadings,
        age: Option<u32>,
        processes: &ProcessesByPid,
        users: &Users,
        now: Timestamp,
    ) -> Vec<GpuProcess> {
        let Reading::Value(listed) = &read.processes else {
            return Vec::new();
        };
        // The PIDs that other processes have by now.
        let others: BTreeSet<u32> = listed
            .iter()
            .filter_map(|process| Some(processes.get(&process.pid)?.key))
            .filter(|key| self.listed_pids.belongs_to_another(&read.id, *key))
            .map(|key| key.pid)
            .into_set();
        let identity = |pid: u32| processes.get(&pid).filter(|_| !others.contains(&pid));
        if age.is_none() {
            let keys = listed
                .iter()
                .filter_map(|process| Some((process.pid, identity(process.pid)?.key)));
            self.listed.insert(read.id.clone(), keys.into_map());
        }
        // Only an old list is compared with earlier processes.
        let was = age.and_then(|_| self.listed.get(&read.id).cloned());
        let was = was.unwrap_or_default();
        let mut rows: Vec<GpuProcess> = listed
            .iter()
            // An old list may name processes that have ended and PIDs that other processes have
            // now.
            .filter(|process| {
                let has_it = processes.get(&process.pid).map(|identity| identity.key);
                let now = identity(process.pid).map(|identity| identity.key);
                let is_other = |start| has_it.is_some_and(|key| key.start_ticks != start);
                // The backend reported a start time: a process with another start time is a
                // different one.
                !process.start_ticks.is_some_and(is_other)
                    && (age.is_none() || now == was.get(&process.pid).copied())
            })
            .map(|process| {
                let on = (&read.id, process.pid);
                let process_of_row = match identity(process.pid) {
                    Some(identity) => {
                        if age.is_none() {
                            self.last_processes.remember(&read.id, identity);
                        }
                        RowProcess::Process(identity.clone())
                    }
                    None if others.contains(&process.pid) => {
                        RowProcess::Unknown(listed_before_reuse())
                    }
                    None => match self
                        .last_processes
                        .ended_process(on, &self.listed_pids, now)
                    {
                        Some((identity, at)) => RowProcess::Ended(identity, at),
                        None => RowProcess::Unknown(no_such_process()),
                    },
                };
                self.process_row(&read.id, process, process_of_row, age, users, now)
            })
            .collect();
        rows.sort_indirect_by_key(|row| (row.pid, row.instance));
        rows
    }

    fn process_row(
        &mut self,
        device: &DeviceId,
        read: &ProcessReadings,
        process_of_row: RowProcess,
        age: Option<u32>,
        users: &Users,
        now: Timestamp,
    ) -> GpuProcess {
        let used = &read.utilization;
        let why = match &process_of_row {
            RowProcess::Process(_) => no_such_process(),
            RowProcess::Ended(..) => Reading::Failed(PROCESS_ENDED.into()),
            RowProcess::Unknown(why) => why.clone(),
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
        let (identity, ended_at) = match process_of_row {
            RowProcess::Process(identity) => (Some(identity), None),
            RowProcess::Ended(identity, at) => (Some(identity), Some(at)),
            RowProcess::Unknown(_) => (None, None),
        };
        if let Some(identity) = identity {
            let on = (device.clone(), identity.key);
            let before = ended_at.and_then(|_| self.use_times.get(&on).copied());
            let use_times = before.unwrap_or_else(|| self.record_use(on, read, now));
            identity.fill_row(&mut row, users);
            if let Some(at) = ended_at {
                mark_ended(&mut row, identity.key, now.since(at));
            }
            let started_at = row.started_at.last_known().copied();
            let is_known = use_times.is_queried || !self.may_predate_daemon(started_at, now);
            row.first_seen = match is_known {
                true => Reading::Value(held_since(use_times.first, started_at, now)),
                false => not_yet_queried(),
            };
            row.last_active = match &used.sm {
                Reading::Value(_) if is_known => Reading::Value(use_times.last_active),
                Reading::Value(_) => not_yet_queried(),
                unknown => unknown.as_unknown(),
            };
        } else {
            let first = self.unknown_pids.entry((device.clone(), read.pid));
            row.first_seen = Reading::Value(*first.or_insert(now));
        }
        row
    }

    /// Records that a process is on a device, and whether it is active.
    fn record_use(
        &mut self,
        on: (DeviceId, ProcessKey),
        read: &ProcessReadings,
        now: Timestamp,
    ) -> UseTimes {
        let first = self
            .guard_first_seen
            .get(&on)
            .copied()
            .unwrap_or(now)
            .min(now);
        let use_times = self.use_times.entry(on).or_insert(UseTimes {
            first,
            last_active: None,
            is_queried: false,
        });
        let used = &read.utilization;
        let shares = [&used.sm, &used.memory, &used.encoder, &used.decoder];
        let is_active = shares
            .into_iter()
            .any(|share| share.known().is_some_and(|share| share.0 > 0));
        if is_active {
            use_times.last_active = Some(used.sampled_at.unwrap_or(now));
        }
        *use_times
    }
}

/// The process of a listed PID.
enum RowProcess {
    Process(ProcessMetadata),
    Ended(ProcessMetadata, Timestamp),
    /// Unknown, for this reason.
    Unknown(Reading<()>),
}

/// Marks the row of a process that has ended. None of its readings is current.
fn mark_ended(row: &mut GpuProcess, key: ProcessKey, ago: Duration) {
    let seconds = u32::try_from(ago.as_secs()).unwrap_or(u32::MAX);
    row.start_ticks = Reading::Stale(key.start_ticks, seconds);
    row.host_memory = Reading::Failed(PROCESS_ENDED.into());
    row.cpu = Reading::Failed(PROCESS_ENDED.into());
}

/// The store has not yet reported whether an earlier daemon observed the process.
fn not_yet_queried<T>() -> Reading<T> {
    Reading::Failed("the store has not been queried yet".into())
}

/// The driver lists a PID that this host does not have: the process has just ended, or it is in
/// another PID namespace.
fn no_such_process<T>() -> Reading<T> {
    Reading::Failed("no such process on this host".into())
}
