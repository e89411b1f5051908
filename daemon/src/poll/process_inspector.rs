//! Inspects one process at once: its device files now, with the devices of the last poll. It
//! neither starts a scan of all processes nor waits for one.

use super::assemble::ProcessesByPid;
use super::device_holders::{HolderContext, fill_from_row};
use crate::backend::BackendReadings;
use crate::fd_scan::{FdScanHandle, FileHolders};
use crate::host::process::ProcessReader;
use crate::host::users::Users;
use crate::procfs::stat::Stat;
use crate::state::PublishedPoll;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{DeviceHolders, Holder};
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The readings of the last poll. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LastReadings(Arc<Mutex<Vec<Arc<BackendReadings>>>>);

impl LastReadings {
    pub(super) fn replace(&self, readings: Vec<Arc<BackendReadings>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = readings;
    }

    fn get(&self) -> Vec<Arc<BackendReadings>> {
        let readings = self.0.lock();
        readings.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads one process outside of the polls.
pub(crate) struct ProcessInspector {
    fd_scan: FdScanHandle,
    processes: Mutex<ProcessReader>,
    users: Users,
    procfs: PathBuf,
    last_readings: LastReadings,
}

/// One process with the devices that it uses or has open.
#[derive(Debug)]
pub(crate) struct InspectedProcess {
    pub(crate) identity: LiveIdentity,
    /// All devices. The holders are this process as of now, and other processes as of the last
    /// poll, if that collected them.
    pub(crate) devices: Vec<DeviceHolders>,
    /// When its open files were read: stale if they cannot be read now and were read for the last
    /// collection of holders; failed if they may hold more devices than are known.
    pub(crate) files_read_at: Reading<Timestamp>,
    /// The other processes that have its clients open (DRM), for each device.
    pub(crate) sharing: Vec<(DeviceId, BTreeSet<u32>)>,
}

/// The process that has a PID now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveIdentity {
    pid: u32,
    /// `None` if no process has the PID, or it cannot be read.
    start_ticks: Option<u64>,
}

impl LiveIdentity {
    pub(crate) fn read(procfs: &Path, pid: u32) -> Self {
        let stat = Stat::read(&procfs.join(pid.to_string())).ok();
        Self {
            pid,
            start_ticks: stat.map(|stat| stat.start_ticks),
        }
    }

    /// Whether a row of the last poll may be about this process, and not about an earlier one
    /// with the same PID.
    pub(crate) fn includes(self, row: &GpuProcess) -> bool {
        let other = row.key().zip(self.start_ticks);
        row.pid == self.pid && other.is_none_or(|(key, start)| key.start_ticks == start)
    }

    /// Whether a known holder is certainly this process.
    fn is(self, holder: &Holder) -> bool {
        let start = self.start_ticks.as_ref();
        holder.pid == self.pid && start.is_some() && holder.start_ticks.known() == start
    }
}

impl ProcessInspector {
    pub(crate) fn new(
        fd_scan: FdScanHandle,
        processes: ProcessReader,
        users: Users,
        procfs: PathBuf,
        last_readings: LastReadings,
    ) -> Self {
        Self {
            fd_scan,
            processes: Mutex::new(processes),
            users,
            procfs,
            last_readings,
        }
    }

    /// Inspects the process that has this PID now. Reads that may hang are waited for until
    /// `deadline`.
    pub(crate) fn inspect(
        &self,
        published: &PublishedPoll,
        (pid, caller): (u32, LimitGroup),
        now: Timestamp,
        deadline: Instant,
    ) -> InspectedProcess {
        let found = self.fd_scan.read_process(pid, caller, deadline);
        let readings = self.last_readings.get();
        let identity = LiveIdentity::read(&self.procfs, pid);
        let listed = published.snapshot.processes.iter();
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: published.snapshot.taken_at,
            polls: published.snapshot.polls,
            processes: listed
                .filter(|row| identity.includes(row))
                .cloned()
                .collect(),
            devices: published.snapshot.devices.clone(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let context = HolderContext {
            readings: &readings,
            snapshot: &snapshot,
            file_holders: &found,
            short_lived: &BTreeMap::new(),
            processes: &self.identify_unlisted(&found, &snapshot, now, deadline),
            users: &self.users,
            procfs: &self.procfs,
        };
        let mut devices = context.device_holders(&BTreeMap::new(), &BTreeMap::new());
        let mut files_read_at = match &found.incomplete_reason {
            None => Reading::Value(now),
            Some(why) => Reading::Failed(why.clone()),
        };
        for device in &mut devices {
            fill_listed(device, &snapshot);
            if add_published(device, published, identity, now, &found) {
                files_read_at = stale_since(published.holders_at, now);
            }
        }
        InspectedProcess {
            identity,
            devices,
            files_read_at,
            sharing: sharing_processes(&readings, pid),
        }
    }

    /// The metadata of a process that has devices open and that no driver lists: the rows of the
    /// snapshot have it of the others.
    fn identify_unlisted(
        &self,
        found: &FileHolders,
        snapshot: &Snapshot,
        now: Timestamp,
        deadline: Instant,
    ) -> ProcessesByPid {
        let is_listed = |key: &&ProcessKey| {
            let mut rows = snapshot.processes.iter();
            rows.any(|row| row.key() == Some(**key))
        };
        let unlisted = found.processes.keys().filter(|key| !is_listed(key));
        let pids: BTreeSet<u32> = unlisted.map(|key| key.pid).into_set();
        if pids.is_empty() {
            return ProcessesByPid::new();
        }
        let processes = self.processes.lock();
        let mut processes = processes.unwrap_or_else(PoisonError::into_inner);
        let mut identified = processes.identify(&pids, now, &self.users);
        processes.settle(&mut identified, &self.users, deadline);
        identified
    }
}

/// Adds the published holders of a device. Returns whether the inspected process is one of
/// them because its files cannot be read now.
fn add_published(
    device: &mut DeviceHolders,
    published: &PublishedPoll,
    identity: LiveIdentity,
    now: Timestamp,
    found: &FileHolders,
) -> bool {
    let mut known = published.holders.iter();
    let Some(known) = known.find(|known| known.id == device.id) else {
        device.incomplete_reason = Some(describe_last_scan(None, now));
        return false;
    };
    device.ended.clone_from(&known.ended);
    let is_unread = found.incomplete_reason.is_some() && found.processes.is_empty();
    let mut before = known.holders.iter();
    let before = before.find(|it| is_unread && !it.holds.is_empty() && identity.is(it));
    if let Some(before) = before {
        match device.holders.first_mut() {
            Some(own) => {
                own.holds.clone_from(&before.holds);
                own.holds_this_device = before.holds_this_device;
            }
            None => device.holders.push(before.clone()),
        }
    }
    if published.holders_at == Some(published.snapshot.taken_at) {
        let others = known
            .holders
            .iter()
            .filter(|holder| holder.pid != identity.pid);
        let mut holders: Vec<Holder> = others.cloned().collect();
        for own in device.holders.drain(..) {
            let position = holders.partition_point(|other| other.pid < own.pid);
            holders.insert(position, own);
        }
        device.holders = holders;
        device
            .incomplete_reason
            .clone_from(&known.incomplete_reason);
    } else {
        device.incomplete_reason = Some(describe_last_scan(published.holders_at, now));
    }
    before.is_some()
}

/// Takes the facts about the listed process from its row.
fn fill_listed(device: &mut DeviceHolders, snapshot: &Snapshot) {
    for holder in device.holders.iter_mut().filter(|holder| holder.listed) {
        let start = holder.start_ticks.known().copied();
        let mut rows = snapshot.processes.iter();
        let row = rows.find(|row| row.key().map(|key| key.start_ticks) == start);
        if let Some(row) = row.filter(|_| start.is_some()) {
            fill_from_row(holder, row);
        }
    }
}

fn stale_since(at: Option<Timestamp>, now: Timestamp) -> Reading<Timestamp> {
    let at = at.unwrap_or_default();
    let seconds = u32::try_from(now.since(at).as_secs()).unwrap_or(u32::MAX);
    Reading::Stale(at, seconds)
}

/// Why other processes may have a device open that holders were last collected of at this time.
fn describe_last_scan(at: Option<Timestamp>, now: Timestamp) -> String {
    match at {
        Some(at) => format!(
            "the files of other processes were checked {} ago",
            format_duration(now.since(at))
        ),
        None => "the files of other processes have not been checked yet".to_owned(),
    }
}

/// The other processes that have the same clients open as this process, for each device with any.
fn sharing_processes(
    readings: &[Arc<BackendReadings>],
    pid: u32,
) -> Vec<(DeviceId, BTreeSet<u32>)> {
    let devices = readings.iter().flat_map(|readings| &readings.devices);
    let sharing = devices.filter_map(|device| {
        let mut clients = device.shared_clients.iter();
        let own = clients.find(|client| client.key.pid == pid);
        // The process that the memory is counted for.
        let counted = own.map_or(pid, |client| client.owner_pid);
        let clients = device.shared_clients.iter();
        let all = clients.filter(|client| client.owner_pid == counted);
        let all = all.map(|client| client.key.pid).chain([counted]);
        let others: BTreeSet<u32> = all.filter(|other| *other != pid).into_set();
        (!others.is_empty()).then(|| (device.id.clone(), others))
    });
    sharing.collect()
}

#[cfg(test)]
mod tests;
