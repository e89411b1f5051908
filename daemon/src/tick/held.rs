//! Who holds each device, listed by its driver or not: put together when
//! somebody asks for it.

use crate::backend::reader::Latest;
use crate::backend::{DeviceReadings, Node};
use crate::holders::{DeviceNumber, Found, Open};
use crate::host::condition::Condition;
use crate::host::identity::Identity;
use crate::host::users::Users;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{EndedHolder, HeldDevice, Holder, ProcessState};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, ProcessKey, Snapshot, Use};
use gpukill_proto::text::HAS_ENDED;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What one poll knows of devices and people.
pub(super) struct Sight<'a> {
    pub(super) latest: &'a [(&'static str, Latest)],
    pub(super) snapshot: &'a Snapshot,
    pub(super) found: &'a Found,
    /// What is told of devices that are held for moments.
    pub(super) fleeting: &'a BTreeMap<DeviceId, String>,
    pub(super) people: &'a BTreeMap<u32, Identity>,
    pub(super) users: &'a Users,
    pub(super) procfs: &'a Path,
}

impl Sight<'_> {
    /// Every device of the snapshot, with whoever holds it.
    pub(super) fn held(
        &self,
        ended: &BTreeMap<DeviceId, Vec<EndedHolder>>,
        busy_alone: &BTreeMap<DeviceId, Timestamp>,
    ) -> Vec<HeldDevice> {
        let readings = self.latest.iter();
        let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
        let nodes: BTreeMap<&DeviceId, &DeviceReadings> = readings
            .flat_map(|(readings, _)| &readings.devices)
            .map(|device| (&device.id, device))
            .into_map();
        let names = names(nodes.values().flat_map(|read| &read.nodes));
        // Whoever has a device of their own open has the shared files open too.
        let own: BTreeSet<DeviceNumber> = nodes
            .values()
            .flat_map(|read| &read.nodes)
            .filter(|node| !node.shared)
            .map(|node| node.number)
            .into_set();
        let devices = self.snapshot.devices.iter();
        devices
            .map(|device| HeldDevice {
                id: device.id.clone(),
                index: device.index,
                name: device.name.clone(),
                memory_total: device.memory_total.clone(),
                memory_used: device.memory_used.clone(),
                memory_unattributed: device.memory_unattributed.clone(),
                utilization: device.vitals.utilization.clone(),
                busy_alone_since: busy_alone.get(&device.id).copied(),
                holders: self.holders(device, nodes.get(&device.id).copied(), &names, &own),
                ended: self.over(ended.get(&device.id).map_or(&[], Vec::as_slice)),
                unseen: self.unseen(&device.id),
            })
            .collect()
    }

    /// Why others may hold it.
    fn unseen(&self, device: &DeviceId) -> Option<String> {
        let fleeting = || self.fleeting.get(device).cloned();
        self.found.unseen.clone().or_else(fleeting)
    }

    fn holders(
        &self,
        device: &Device,
        read: Option<&DeviceReadings>,
        names: &BTreeMap<DeviceNumber, &str>,
        own: &BTreeSet<DeviceNumber>,
    ) -> Vec<Holder> {
        let nodes = read.map_or(&[][..], |read| &read.nodes);
        let here: BTreeMap<DeviceNumber, bool> = nodes
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
        let mut watchers = Few(WATCHERS);
        let mut holders: BTreeMap<u32, Holder> = BTreeMap::new();
        for (key, open) in &self.found.processes {
            let holds_this = open.iter().any(|it| here.get(&it.number) == Some(&false));
            let holds_any = open.iter().any(|it| own.contains(&it.number));
            let shares = open.iter().any(|it| here.contains_key(&it.number));
            let row = rows.get(&key.pid).and_then(|rows| rows[0].key());
            let is_listed = row == Some(*key);
            if !holds_this && !is_listed && (holds_any || !shares || !watchers.take()) {
                continue;
            }
            let holder = Holder {
                holds: held_names(open, &here, names),
                holds_this_device: holds_this,
                ..self.holder(*key)
            };
            // It has ended since it was found; its pid may be another's.
            if is_listed || holder.state.failure().is_none() {
                holders.insert(key.pid, holder);
            }
        }
        for (pid, rows) in rows {
            let key = rows.iter().find_map(|row| row.key());
            let found = holders.remove(&pid);
            let same = |holder: &Holder| {
                holder.start_ticks.known() == key.map(|it| it.start_ticks).as_ref()
            };
            let mut holder = found.filter(same).unwrap_or_else(|| match key {
                Some(key) => self.holder(key),
                None => nobody_now(rows[0]),
            });
            list(&mut holder, &rows);
            holders.insert(pid, holder);
        }
        for sharer in read.map_or(&[][..], |read| &read.sharers) {
            if let Some(holder) = holders.get_mut(&sharer.key.pid)
                && holder.start_ticks.known() == Some(&sharer.key.start_ticks)
            {
                holder.shares_with = Some(sharer.with);
            }
        }
        for passed in read.map_or(&[][..], |read| &read.passed) {
            if let Some(holder) = holders.get_mut(&passed.key.pid)
                && holder.start_ticks.known() == Some(&passed.key.start_ticks)
            {
                holder.passed_from = Some(passed.first);
            }
        }
        if let Some(why) = self.unlisted(device) {
            let unlisted = holders.values_mut().filter(|holder| !holder.listed);
            unlisted.for_each(|holder| holder.memory = Reading::Failed(why.clone()));
        }
        holders.into_values().collect()
    }

    /// Why it is not known whom its driver lists now; `None` where that is, or
    /// where it lists nobody ever.
    fn unlisted(&self, device: &Device) -> Option<String> {
        match &device.process_count {
            // Whoever was found could be looked at.
            Reading::Failed(why) if self.found.unseen.as_ref() == Some(why) => None,
            Reading::Failed(why) => Some(why.clone()),
            Reading::Stale(_, seconds) => Some(format!("the list of processes is {seconds} s old")),
            Reading::Value(_) | Reading::Unsupported | Reading::Withheld => None,
        }
    }

    /// Of those that have left a device, whoever has ended: one that only let go
    /// of it may go on, and so may its children.
    fn over(&self, left: &[EndedHolder]) -> Vec<EndedHolder> {
        let left = left.iter();
        left.filter(|it| !self.goes_on(it.key)).cloned().collect()
    }

    fn goes_on(&self, key: ProcessKey) -> bool {
        match Condition::read(self.procfs, key).state.known() {
            // Its first thread may have ended alone: others have files open then.
            Some(ProcessState::Zombie) => self.found.processes.contains_key(&key),
            Some(_) => true,
            None => false,
        }
    }

    /// Who the process is, and what it does now.
    fn holder(&self, key: ProcessKey) -> Holder {
        let condition = Condition::read(self.procfs, key);
        let mut holder = Holder {
            start_ticks: Reading::Value(key.start_ticks),
            state: condition.state,
            parent: condition.parent,
            parent_name: condition.parent_name,
            group: condition.group,
            group_leader_is_here: condition.group_leader_is_here,
            ..nobody(key.pid, &Reading::Failed("no such process here".into()))
        };
        let same = |identity: &&Identity| identity.key == key;
        if let Some(identity) = self.people.get(&key.pid).filter(same) {
            // What fills a row fills this too.
            let none = DeviceId(String::new());
            let why = Reading::Unsupported;
            let mut row = GpuProcess::unknown(none, key.pid, Timestamp::default(), &why);
            identity.describe(&mut row, self.users);
            holder.uid = row.uid;
            holder.user = row.user;
            holder.owner = row.owner;
            holder.namespace_owner = row.namespace_owner;
            holder.name = row.name;
            holder.command = row.command;
            holder.inner_pid = row.inner_pid;
            holder.container = row.place.container;
        }
        holder
    }
}

/// So many are told of those who have only files open that all devices share:
/// they hold no memory.
const WATCHERS: usize = 64;

/// A number of things that may be taken.
struct Few(usize);

impl Few {
    fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Puts what the driver says of it beside the process.
fn list(holder: &mut Holder, rows: &[&GpuProcess]) {
    holder.listed = true;
    holder.used_for = rows.iter().fold(Use::default(), |all, row| Use {
        compute: all.compute || row.used_for.compute,
        graphics: all.graphics || row.used_for.graphics,
        mps: all.mps || row.used_for.mps,
    });
    let sum = |one: Bytes, other: Bytes| Reading::Value(Bytes(one.0.saturating_add(other.0)));
    let parts = rows.iter().map(|row| row.memory.clone());
    let together = parts.reduce(|one, other| one.both(other, sum));
    holder.memory = together.unwrap_or(Reading::Unsupported);
}

/// A holder of which nothing is known but the pid, for this reason.
fn nobody(pid: u32, why: &Reading<()>) -> Holder {
    Holder {
        pid,
        start_ticks: why.because(),
        uid: why.because(),
        user: why.because(),
        owner: why.because(),
        namespace_owner: why.because(),
        name: why.because(),
        command: why.because(),
        state: why.because(),
        parent: why.because(),
        parent_name: why.because(),
        group: why.because(),
        group_leader_is_here: why.because(),
        inner_pid: why.because(),
        container: why.because(),
        holds: Vec::new(),
        holds_this_device: false,
        listed: false,
        shares_with: None,
        passed_from: None,
        used_for: Use::default(),
        memory: Reading::Unsupported,
    }
}

/// What is known of a listed pid that no process has now.
fn nobody_now(row: &GpuProcess) -> Holder {
    if row.ended_ago().is_none() {
        return nobody(row.pid, &row.start_ticks.because());
    }
    Holder {
        start_ticks: row.start_ticks.clone(),
        uid: row.uid.clone(),
        user: row.user.clone(),
        owner: row.owner.clone(),
        namespace_owner: row.namespace_owner.clone(),
        name: row.name.clone(),
        command: row.command.clone(),
        inner_pid: row.inner_pid.clone(),
        container: row.place.container.clone(),
        ..nobody(row.pid, &Reading::Failed(HAS_ENDED.into()))
    }
}

fn names<'a>(nodes: impl Iterator<Item = &'a Node>) -> BTreeMap<DeviceNumber, &'a str> {
    nodes
        .map(|node| (node.number, node.name.as_str()))
        .into_map()
}

/// What it has open of this device first, then what all share; of other devices
/// nothing.
fn held_names(
    open: &[Open],
    here: &BTreeMap<DeviceNumber, bool>,
    names: &BTreeMap<DeviceNumber, &str>,
) -> Vec<String> {
    let mut held: Vec<(bool, &str)> = open
        .iter()
        .filter_map(|it| Some((*here.get(&it.number)?, *names.get(&it.number)?)))
        .collect();
    held.sort_unstable();
    held.dedup();
    held.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
