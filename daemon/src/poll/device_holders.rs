//! The holders of each device, listed by the driver or not. They are collected when a client asks
//! for them.

use crate::backend::{BackendReadings, DeviceNode, DeviceReadings};
use crate::fd_scan::{DeviceNumber, FileHolders, OpenDescriptor};
use crate::host::process_metadata::ProcessMetadata;
use crate::host::process_state::ProcessStateInfo;
use crate::host::users::Users;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::holders::{DeviceHolders, EndedHolder, Holder, ProcessState};
use gpukill_proto::model::{Device, DeviceId, GpuProcess, GpuUse, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::PROCESS_ENDED;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The facts of one poll that holders are collected from.
pub(super) struct HolderContext<'a> {
    pub(super) readings: &'a [Arc<BackendReadings>],
    pub(super) snapshot: &'a Snapshot,
    pub(super) file_holders: &'a FileHolders,
    pub(super) short_lived: &'a BTreeMap<DeviceId, String>,
    pub(super) processes: &'a BTreeMap<u32, ProcessMetadata>,
    pub(super) users: &'a Users,
    pub(super) procfs: &'a Path,
}

impl HolderContext<'_> {
    pub(super) fn device_holders(
        &self,
        ended: &BTreeMap<DeviceId, Vec<EndedHolder>>,
        busy_without_holder: &BTreeMap<DeviceId, Timestamp>,
    ) -> Vec<DeviceHolders> {
        let readings = self.readings.iter();
        let nodes: BTreeMap<&DeviceId, &DeviceReadings> = readings
            .flat_map(|readings| &readings.devices)
            .map(|device| (&device.id, device))
            .into_map();
        let names = node_names(nodes.values().flat_map(|read| &read.nodes));
        // A process that has a device's own file open has the shared files open, too.
        let own: BTreeSet<DeviceNumber> = nodes
            .values()
            .flat_map(|read| &read.nodes)
            .filter(|node| !node.shared)
            .map(|node| node.number)
            .into_set();
        let devices = self.snapshot.devices.iter();
        devices
            .map(|device| DeviceHolders {
                id: device.id.clone(),
                index: device.index,
                name: device.name.clone(),
                memory_total: device.memory_total.clone(),
                memory_used: device.memory_used.clone(),
                memory_unattributed: device.memory_unattributed.clone(),
                utilization: device.vitals.utilization.clone(),
                busy_without_holder_since: busy_without_holder.get(&device.id).copied(),
                holders: self.collect_holders(device, nodes.get(&device.id).copied(), &names, &own),
                ended: self.ended_holders(ended.get(&device.id).map_or(&[], Vec::as_slice)),
                incomplete_reason: self.incomplete_reason(&device.id),
            })
            .collect()
    }

    /// Why the list of holders may be incomplete.
    fn incomplete_reason(&self, device: &DeviceId) -> Option<String> {
        let short_lived = || self.short_lived.get(device).cloned();
        self.file_holders
            .incomplete_reason
            .clone()
            .or_else(short_lived)
    }

    fn collect_holders(
        &self,
        device: &Device,
        read: Option<&DeviceReadings>,
        names: &BTreeMap<DeviceNumber, &str>,
        own: &BTreeSet<DeviceNumber>,
    ) -> Vec<Holder> {
        let nodes = read.map_or(&[][..], |read| &read.nodes);
        let own_nodes: BTreeMap<DeviceNumber, bool> = nodes
            .iter()
            .map(|node| (node.number, node.shared))
            .into_map();
        let rows = self.snapshot.processes.iter();
        let rows: BTreeMap<u32, Vec<&GpuProcess>> = rows
            .filter(|row| row.device == device.id)
            .fold(BTreeMap::new(), |mut all, row| {
                all.entry(row.pid).or_default().push(row);
                all
            });
        let mut watchers = Quota(MAX_SHARED_FILE_HOLDERS);
        let mut holders: BTreeMap<u32, Holder> = BTreeMap::new();
        for (key, open) in &self.file_holders.processes {
            let holds_this = open
                .iter()
                .any(|it| own_nodes.get(&it.number) == Some(&false));
            let holds_any = open.iter().any(|it| own.contains(&it.number));
            let shares = open.iter().any(|it| own_nodes.contains_key(&it.number));
            let row = rows.get(&key.pid).and_then(|rows| rows[0].key());
            let is_listed = row == Some(*key);
            if !holds_this && !is_listed && (holds_any || !shares || !watchers.take()) {
                continue;
            }
            let holder = Holder {
                holds: held_file_names(open, &own_nodes, names),
                holds_this_device: holds_this,
                ..self.describe_holder(*key)
            };
            // It has ended since the scan; its PID may belong to another process.
            if is_listed || holder.state.failure().is_none() {
                holders.insert(key.pid, holder);
            }
        }
        for (pid, rows) in rows {
            let key = rows.iter().find_map(|row| row.key());
            let holder = holders.remove(&pid);
            let same = |holder: &Holder| {
                holder.start_ticks.known() == key.map(|it| it.start_ticks).as_ref()
            };
            let mut holder = holder.filter(same).unwrap_or_else(|| match key {
                Some(key) => self.describe_holder(key),
                None => holder_without_process(rows[0]),
            });
            add_listing(&mut holder, &rows);
            holders.insert(pid, holder);
        }
        for shared_client in read.map_or(&[][..], |read| &read.shared_clients) {
            if let Some(holder) = holders.get_mut(&shared_client.key.pid)
                && holder.start_ticks.known() == Some(&shared_client.key.start_ticks)
            {
                holder.shares_with = Some(shared_client.owner_pid);
            }
        }
        for passed in read.map_or(&[][..], |read| &read.passed_clients) {
            if let Some(holder) = holders.get_mut(&passed.key.pid)
                && holder.start_ticks.known() == Some(&passed.key.start_ticks)
            {
                holder.passed_from = Some(passed.first);
            }
        }
        if let Some(why) = self.unlisted_reason(device) {
            let unlisted = holders.values_mut().filter(|holder| !holder.listed);
            unlisted.for_each(|holder| holder.memory = Reading::Failed(why.clone()));
        }
        holders.into_values().collect()
    }

    /// Why it is unknown which processes the driver lists now; `None` where it is known, or where
    /// the driver has no such list.
    fn unlisted_reason(&self, device: &Device) -> Option<String> {
        match &device.process_count {
            // A process that was found could be scanned.
            Reading::Failed(why) if self.file_holders.incomplete_reason.as_ref() == Some(why) => {
                None
            }
            Reading::Failed(why) => Some(why.clone()),
            Reading::Stale(_, seconds) => Some(format!("the list of processes is {seconds} s old")),
            Reading::Value(_) | Reading::Unsupported | Reading::Withheld => None,
        }
    }

    /// The holders that have ended. A process that only released the device may still run, and so
    /// may its children.
    fn ended_holders(&self, left: &[EndedHolder]) -> Vec<EndedHolder> {
        let left = left.iter();
        left.filter(|it| !self.is_running(it.key))
            .cloned()
            .collect()
    }

    fn is_running(&self, key: ProcessKey) -> bool {
        match ProcessStateInfo::read(self.procfs, key).state.known() {
            // Its first thread may have ended alone; other threads still have files open.
            Some(ProcessState::Zombie) => self.file_holders.processes.contains_key(&key),
            Some(_) => true,
            None => false,
        }
    }

    /// A holder from the metadata and the state of its process.
    fn describe_holder(&self, key: ProcessKey) -> Holder {
        let condition = ProcessStateInfo::read(self.procfs, key);
        let mut holder = Holder {
            start_ticks: Reading::Value(key.start_ticks),
            state: condition.state,
            parent: condition.parent,
            parent_name: condition.parent_name,
            group: condition.group,
            group_leader_is_here: condition.group_leader_is_here,
            ..unknown_holder(
                key.pid,
                &Reading::Failed("no such process on this host".into()),
            )
        };
        let same = |identity: &&ProcessMetadata| identity.key == key;
        if let Some(identity) = self.processes.get(&key.pid).filter(same) {
            // Uses the same code as for a snapshot row.
            let none = DeviceId(String::new());
            let why = Reading::Unsupported;
            let mut row = GpuProcess::unknown(none, key.pid, Timestamp::default(), &why);
            identity.fill_row(&mut row, self.users);
            fill_from_row(&mut holder, &row);
        }
        holder
    }
}

/// Takes the facts about the process from a snapshot row of it.
pub(super) fn fill_from_row(holder: &mut Holder, row: &GpuProcess) {
    holder.uid.clone_from(&row.uid);
    holder.user.clone_from(&row.user);
    holder.owner.clone_from(&row.owner);
    holder.namespace_owner.clone_from(&row.namespace_owner);
    holder.name.clone_from(&row.name);
    holder.command.clone_from(&row.command);
    holder.inner_pid.clone_from(&row.inner_pid);
    holder.container.clone_from(&row.location.container);
}

/// How many holders are reported that have only shared device files open: they hold no memory.
const MAX_SHARED_FILE_HOLDERS: usize = 64;

struct Quota(usize);

impl Quota {
    fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Adds the driver's data to a holder.
fn add_listing(holder: &mut Holder, rows: &[&GpuProcess]) {
    holder.listed = true;
    holder.used_for = rows.iter().fold(GpuUse::default(), |all, row| GpuUse {
        compute: all.compute || row.used_for.compute,
        graphics: all.graphics || row.used_for.graphics,
        mps: all.mps || row.used_for.mps,
    });
    let sum = |one: Bytes, other: Bytes| Reading::Value(Bytes(one.0.saturating_add(other.0)));
    let parts = rows.iter().map(|row| row.memory.clone());
    let together = parts.reduce(|one, other| one.combine(other, sum));
    holder.memory = together.unwrap_or(Reading::Unsupported);
}

/// A holder with only its PID known, for this reason.
fn unknown_holder(pid: u32, why: &Reading<()>) -> Holder {
    Holder {
        pid,
        start_ticks: why.as_unknown(),
        uid: why.as_unknown(),
        user: why.as_unknown(),
        owner: why.as_unknown(),
        namespace_owner: why.as_unknown(),
        name: why.as_unknown(),
        command: why.as_unknown(),
        state: why.as_unknown(),
        parent: why.as_unknown(),
        parent_name: why.as_unknown(),
        group: why.as_unknown(),
        group_leader_is_here: why.as_unknown(),
        inner_pid: why.as_unknown(),
        container: why.as_unknown(),
        holds: Vec::new(),
        holds_this_device: false,
        listed: false,
        shares_with: None,
        passed_from: None,
        used_for: GpuUse::default(),
        memory: Reading::Unsupported,
    }
}

/// The holder of a listed PID that no process has now.
fn holder_without_process(row: &GpuProcess) -> Holder {
    if row.seconds_since_end().is_none() {
        return unknown_holder(row.pid, &row.start_ticks.as_unknown());
    }
    let mut holder = unknown_holder(row.pid, &Reading::Failed(PROCESS_ENDED.into()));
    holder.start_ticks.clone_from(&row.start_ticks);
    fill_from_row(&mut holder, row);
    holder
}

fn node_names<'a>(nodes: impl Iterator<Item = &'a DeviceNode>) -> BTreeMap<DeviceNumber, &'a str> {
    nodes
        .map(|node| (node.number, node.name.as_str()))
        .into_map()
}

/// The names of its open files: files of this device first, then shared files; no files of other
/// devices.
fn held_file_names(
    open: &[OpenDescriptor],
    own_nodes: &BTreeMap<DeviceNumber, bool>,
    names: &BTreeMap<DeviceNumber, &str>,
) -> Vec<String> {
    let mut held: Vec<(bool, &str)> = open
        .iter()
        .filter_map(|it| Some((*own_nodes.get(&it.number)?, *names.get(&it.number)?)))
        .collect();
    held.sort_indirect();
    held.dedup();
    held.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
