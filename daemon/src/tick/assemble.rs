//! Puts readings and identities together into a snapshot, and finds what is
//! broken in it.

use crate::backend::reader::Latest;
use crate::backend::{DeviceReadings, ProcessReadings, Readings};
use crate::host::process::Identity;
use crate::host::users::Users;
use gpukill_policy::memory::unattributed;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    BackendReport, BackendState, Device, DeviceId, GpuProcess, Loss, ProcessKey, Snapshot,
};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Who the listed pids are now; a pid that nobody has is not in it.
pub(super) type People = BTreeMap<u32, Identity>;

/// What one poll remembers for the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When each process was first seen on each device.
    first_seen: BTreeMap<(DeviceId, ProcessKey), Timestamp>,
    /// Who each pid of a list was when the list was fresh: an old list must not
    /// name whoever has the pid since.
    listed: BTreeMap<DeviceId, BTreeMap<u32, ProcessKey>>,
    lost_since: BTreeMap<DeviceId, Timestamp>,
    backends: BTreeMap<&'static str, (BackendState, Timestamp)>,
}

impl Memory {
    /// One snapshot out of what the backends have. Its tick, host and faults are
    /// still to be filled in.
    pub(super) fn assemble(
        &mut self,
        latest: &[(&'static str, Latest)],
        people: &People,
        users: &Users,
        now: Timestamp,
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            host: String::new(),
            taken_at: now,
            tick: 0,
            devices: Vec::new(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        for (name, latest) in latest {
            snapshot.backends.push(self.backend(name, latest, now));
            let Some((readings, taken_at)) = &latest.readings else {
                continue;
            };
            let age = (!latest.is_fresh())
                .then(|| u32::try_from(now.since(*taken_at).as_secs()).unwrap_or(u32::MAX));
            for read in &readings.devices {
                let rows = self.processes(read, age, people, users, now);
                let device = self.device(read, &rows, age, now);
                snapshot.devices.push(device);
                snapshot.processes.extend(rows);
            }
        }
        snapshot.devices.sort_by_key(|device| device.index);
        self.forget_what_ended(latest, &snapshot);
        snapshot
    }

    fn backend(&mut self, name: &'static str, latest: &Latest, now: Timestamp) -> BackendReport {
        let readings = latest.readings.as_ref().map(|(readings, _)| readings);
        let state = match (&latest.failure, readings) {
            (Some(failure), _) => BackendState::Failed(failure.clone()),
            (None, Some(readings)) => readings.state.clone(),
            (None, None) => BackendState::Starting,
        };
        let known = self
            .backends
            .get(name)
            .filter(|(before, _)| *before == state);
        let since = known.map_or(now, |(_, since)| *since);
        self.backends.insert(name, (state.clone(), since));
        let text = |pick: fn(&Readings) -> &Reading<String>| {
            readings.map_or(Reading::Unsupported, |readings| pick(readings).clone())
        };
        BackendReport {
            name: name.to_owned(),
            state,
            since,
            devices: readings.map_or(0, |readings| {
                u32::try_from(readings.devices.len()).unwrap_or(u32::MAX)
            }),
            driver: text(|readings| &readings.driver),
            cuda: text(|readings| &readings.cuda),
            poll_cost_us: readings.map_or(0, |readings| readings.cost_us),
        }
    }

    fn device(
        &mut self,
        read: &DeviceReadings,
        rows: &[GpuProcess],
        age: Option<u32>,
        now: Timestamp,
    ) -> Device {
        let unattributed = match &read.processes {
            // The list as it was taken, with those that have ended since: the
            // device's used memory is as old.
            Reading::Value(listed) => {
                let explained = listed.iter().map(|process| &process.memory);
                unattributed(&read.memory.used, &read.memory.total, explained)
            }
            Reading::Unsupported => Reading::Unsupported,
            Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
                Reading::Failed("the list of processes failed".into())
            }
        };
        let lost = read.lost.as_ref().map(|reason| {
            let since = *self.lost_since.entry(read.id.clone()).or_insert(now);
            Loss {
                since,
                reason: reason.clone(),
            }
        });
        if lost.is_none() {
            self.lost_since.remove(&read.id);
        }
        Device {
            id: read.id.clone(),
            index: read.index,
            vendor: read.vendor,
            name: read.name.clone(),
            pci: read.pci.clone(),
            memory_total: aged(&read.memory.total, age),
            memory_used: aged(&read.memory.used, age),
            memory_reserved: aged(&read.memory.reserved, age),
            memory_unattributed: aged(&unattributed, age),
            memory_unified: read.memory.unified,
            utilization: aged(&read.utilization, age),
            temperature: aged(&read.temperature, age),
            power: aged(&read.power, age),
            power_limit: aged(&read.power_limit, age),
            ecc_volatile: aged(&read.ecc_volatile, age),
            process_count: aged(&count(&read.processes, rows), age),
            lost,
        }
    }

    fn processes(
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
        if age.is_none() {
            let keys = listed
                .iter()
                .filter_map(|process| Some((process.pid, people.get(&process.pid)?.key)));
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
                let now = people.get(&process.pid).map(|identity| identity.key);
                age.is_none() || (now.is_some() && now == was.get(&process.pid).copied())
            })
            .map(|process| {
                let identity = people.get(&process.pid).cloned();
                self.row(&read.id, process, identity, age, users, now)
            })
            .collect();
        rows.sort_by_key(|row| row.pid);
        rows
    }

    fn row(
        &mut self,
        device: &DeviceId,
        read: &ProcessReadings,
        identity: Option<Identity>,
        age: Option<u32>,
        users: &Users,
        now: Timestamp,
    ) -> GpuProcess {
        let mut row = GpuProcess {
            device: device.clone(),
            pid: read.pid,
            start_ticks: nobody(),
            started_at: nobody(),
            first_seen: now,
            used_for: read.used_for,
            memory: aged(&read.memory, age),
            utilization: aged(&read.utilization, age),
            uid: nobody(),
            user: nobody(),
            name: nobody(),
            executable: nobody(),
            command: nobody(),
            container: nobody(),
        };
        if let Some(identity) = identity {
            row.start_ticks = Reading::Value(identity.key.start_ticks);
            row.started_at = identity.started_at;
            row.first_seen = *self
                .first_seen
                .entry((device.clone(), identity.key))
                .or_insert(now);
            row.user = match &identity.uid {
                Reading::Value(uid) => users.name(*uid),
                unknown => unknown.clone().map(|_| String::new()),
            };
            row.uid = identity.uid;
            row.name = Reading::Value(identity.name);
            row.executable = identity.executable;
            row.command = identity.command;
            row.container = identity.container;
        }
        row
    }

    /// Only a list that came says who is gone; without one nobody is.
    fn forget_what_ended(&mut self, latest: &[(&'static str, Latest)], snapshot: &Snapshot) {
        let told: BTreeSet<&DeviceId> = latest
            .iter()
            .filter(|(_, latest)| latest.is_fresh())
            .filter_map(|(_, latest)| latest.readings.as_ref())
            .flat_map(|(readings, _)| &readings.devices)
            .filter(|device| device.processes.known().is_some())
            .map(|device| &device.id)
            .collect();
        let here: BTreeSet<&DeviceId> = snapshot.devices.iter().map(|device| &device.id).collect();
        let present: BTreeSet<(DeviceId, ProcessKey)> = snapshot
            .processes
            .iter()
            .filter_map(|row| Some((row.device.clone(), row.key()?)))
            .collect();
        self.first_seen.retain(|row, _| {
            present.contains(row) || (here.contains(&row.0) && !told.contains(&row.0))
        });
        self.listed.retain(|device, _| here.contains(device));
    }
}

/// A list that could not be had is not an empty one.
fn count(list: &Reading<Vec<ProcessReadings>>, rows: &[GpuProcess]) -> Reading<u32> {
    let rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    list.clone().map(|_| rows)
}

/// The driver names a pid that this box does not have: it has just ended, or it
/// is of another PID namespace.
fn nobody<T>() -> Reading<T> {
    Reading::Failed("no such process here".into())
}

fn aged<T: Clone>(reading: &Reading<T>, age: Option<u32>) -> Reading<T> {
    match age {
        Some(seconds) => reading.clone().aged(seconds),
        None => reading.clone(),
    }
}

/// A backend that the configuration wants and this version does not have.
pub(super) fn not_built(name: &str, now: Timestamp) -> BackendReport {
    BackendReport {
        name: name.to_owned(),
        state: BackendState::NotBuilt,
        since: now,
        devices: 0,
        driver: Reading::Unsupported,
        cuda: Reading::Unsupported,
        poll_cost_us: 0,
    }
}

/// Every pid that a backend names.
pub(super) fn pids(latest: &[(&'static str, Latest)]) -> impl Iterator<Item = u32> {
    let readings = latest
        .iter()
        .filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter_map(|device| device.processes.known())
        .flatten()
        .map(|process| process.pid)
}

/// What is broken in a snapshot: backends, devices, and single readings.
pub(super) fn faults(
    latest: &[(&'static str, Latest)],
    snapshot: &Snapshot,
) -> impl Iterator<Item = (String, String)> {
    let backends = snapshot
        .backends
        .iter()
        .filter_map(|backend| match &backend.state {
            BackendState::Failed(why) => Some((backend.name.clone(), why.clone())),
            BackendState::Ready
            | BackendState::Starting
            | BackendState::Absent(_)
            | BackendState::NotBuilt => None,
        });
    let late = latest
        .iter()
        .filter(|(_, latest)| !latest.is_fresh() && latest.failure.is_none());
    let late = late.map(|(name, latest)| {
        let what = match latest.readings {
            Some(_) => "does not answer in time: readings are old",
            None => "has not answered yet: the driver may be waking its devices",
        };
        ((*name).to_owned(), what.to_owned())
    });
    let beyond = latest
        .iter()
        .filter_map(|(name, latest)| Some((name, latest.readings.as_ref()?)));
    let beyond = beyond.flat_map(|(name, (readings, _))| {
        readings
            .faults
            .iter()
            .map(move |fault| ((*name).to_owned(), fault.clone()))
    });
    let lists = latest
        .iter()
        .filter_map(|(_, latest)| latest.readings.as_ref());
    let lists = lists
        .flat_map(|(readings, _)| &readings.devices)
        .filter(|device| device.lost.is_none());
    let lists = lists.filter_map(|device| match &device.processes {
        Reading::Failed(why) => {
            Some((format!("GPU {}", device.index), format!("processes: {why}")))
        }
        Reading::Value(_) | Reading::Unsupported | Reading::Stale(..) | Reading::Withheld => None,
    });
    let devices = snapshot.devices.iter().flat_map(of_device);
    backends
        .chain(late)
        .chain(beyond)
        .chain(lists)
        .chain(devices)
        .collect::<Vec<_>>()
        .into_iter()
}

fn of_device(device: &Device) -> Vec<(String, String)> {
    let part = format!("GPU {}", device.index);
    if let Some(loss) = &device.lost {
        return vec![(
            part,
            format!("lost ({}): needs a reset or a reboot", loss.reason),
        )];
    }
    let failures = [
        ("name", device.name.failure()),
        ("PCI address", device.pci.failure()),
        ("memory", device.memory_used.failure()),
        ("utilization", device.utilization.failure()),
        ("temperature", device.temperature.failure()),
        ("power", device.power.failure()),
        ("power limit", device.power_limit.failure()),
        ("ECC errors", device.ecc_volatile.failure()),
    ];
    let failed = failures
        .into_iter()
        .filter_map(|(what, why)| Some(format!("{what}: {}", why?)));
    failed.map(|what| (part.clone(), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MemoryReadings;
    use crate::host::users::System;
    use gpukill_proto::snapshot::{Use, Vendor};
    use gpukill_proto::units::{Bytes, Percent};
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    fn person(pid: u32, start_ticks: u64) -> (u32, Identity) {
        let identity = Identity {
            key: ProcessKey { pid, start_ticks },
            started_at: Reading::Unsupported,
            uid: Reading::Unsupported,
            name: "python".into(),
            executable: Reading::Unsupported,
            command: Reading::Unsupported,
            container: Reading::Value(None),
        };
        (pid, identity)
    }

    /// One GPU of which 60 GiB are used, all of it by process 7.
    fn latest(
        processes: Reading<Vec<ProcessReadings>>,
        is_fresh: bool,
    ) -> [(&'static str, Latest); 1] {
        let device = DeviceReadings {
            id: DeviceId("GPU-0".into()),
            index: 0,
            vendor: Vendor::Nvidia,
            name: Reading::Value("H100".into()),
            pci: Reading::Unsupported,
            memory: MemoryReadings {
                total: Reading::Value(Bytes(80 * GIB)),
                used: Reading::Value(Bytes(60 * GIB)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            },
            utilization: Reading::Value(Percent(97)),
            temperature: Reading::Unsupported,
            power: Reading::Unsupported,
            power_limit: Reading::Unsupported,
            ecc_volatile: Reading::Unsupported,
            lost: None,
            processes,
        };
        let readings = Readings {
            state: BackendState::Ready,
            driver: Reading::Unsupported,
            cuda: Reading::Unsupported,
            devices: vec![device],
            lost: Vec::new(),
            faults: Vec::new(),
            cost_us: 0,
        };
        let latest = Latest {
            readings: Some((Arc::new(readings), Timestamp(0))),
            failure: None,
            on_time: is_fresh,
            recent: false,
        };
        [("nvidia", latest)]
    }

    fn listed() -> Reading<Vec<ProcessReadings>> {
        Reading::Value(vec![ProcessReadings {
            pid: 7,
            used_for: Use::default(),
            memory: Reading::Value(Bytes(60 * GIB)),
            utilization: Reading::Value(Percent(97)),
        }])
    }

    #[test]
    fn an_old_list_never_names_whoever_has_the_pid_now() {
        let (mut memory, users) = (Memory::default(), Users::start(System).unwrap());
        let alice: People = [person(7, 100)].into();
        let fresh = memory.assemble(&latest(listed(), true), &alice, &users, Timestamp(1));
        assert_eq!(fresh.processes.len(), 1);
        let old = memory.assemble(&latest(listed(), false), &alice, &users, Timestamp(2));
        assert_eq!(old.processes.len(), 1);
        for others in [[person(7, 900)].into(), People::new()] {
            let old = memory.assemble(&latest(listed(), false), &others, &users, Timestamp(3));
            assert_eq!(old.processes, []);
            // What it held was explained when it was read, and still is.
            assert_eq!(
                old.devices[0].memory_unattributed.last_known(),
                Some(&Bytes(0))
            );
        }
    }

    #[test]
    fn a_list_that_fails_once_does_not_restart_the_time_on_the_gpu() {
        let (mut memory, users) = (Memory::default(), Users::start(System).unwrap());
        let people: People = [person(7, 100)].into();
        let mut first_seen = |list, now| {
            let snapshot = memory.assemble(&latest(list, true), &people, &users, Timestamp(now));
            snapshot.processes.first().map(|row| row.first_seen)
        };
        assert_eq!(first_seen(listed(), 1), Some(Timestamp(1)));
        assert_eq!(first_seen(Reading::Failed("999".into()), 2), None);
        assert_eq!(first_seen(listed(), 3), Some(Timestamp(1)));
        // A list that came without it says that it is gone.
        assert_eq!(first_seen(Reading::Value(Vec::new()), 4), None);
        assert_eq!(first_seen(listed(), 5), Some(Timestamp(5)));
    }
}
