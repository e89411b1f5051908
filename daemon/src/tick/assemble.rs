//! Puts readings and identities together into a snapshot.

mod last_known;

mod listing;

mod recall;

mod rows;

use self::last_known::LastKnown;
use self::listing::{Listings, listed_before};
use super::device::{Remembered, device};
use super::gone::Gone;
use super::indices::Indices;
use crate::audit::DeviceProcess;
use crate::backend::reader::Latest;
use crate::backend::{DeviceReadings, Failure, LossCause, Readings};
use crate::faults::FoundFault;
use crate::holders::Found;
use crate::host::process::Identity;
use crate::host::users::Users;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    BackendReport, BackendState, DeviceId, GpuEvent, Loss, LossKind, ProcessKey, Snapshot,
};
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who the listed pids are now; a pid that nobody has is not in it.
pub(super) type People = BTreeMap<u32, Identity>;

/// What one poll remembers for the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When each process was seen on each device.
    seen: BTreeMap<(DeviceId, ProcessKey), Seen>,
    /// When each listed pid that is no process here was first seen.
    nobodies: BTreeMap<(DeviceId, u32), Timestamp>,
    /// Who each pid of a list was when the list was fresh: an old list must not
    /// name whoever has the pid since.
    listed: BTreeMap<DeviceId, BTreeMap<u32, ProcessKey>>,
    /// Which process had each listed pid first.
    listings: Listings,
    /// Who had each listed pid last.
    last_known: LastKnown,
    /// How each device is lost, and since when.
    lost_since: BTreeMap<DeviceId, (LossKind, Timestamp)>,
    /// How much memory the box has.
    host_memory: Option<Bytes>,
    indices: Indices,
    gone: Gone,
    /// When the first poll was.
    began: Option<Timestamp>,
    /// The store is asked what was seen before that.
    asks_store: bool,
    /// What the guard remembers of it, also where the store is broken.
    remembered: BTreeMap<DeviceProcess, Timestamp>,
    last_xid: BTreeMap<DeviceId, GpuEvent>,
    backends: BTreeMap<&'static str, (BackendState, Timestamp)>,
}

/// When a process was first seen on a device, and last seen to use it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Timestamp,
    active: Option<Timestamp>,
    /// Whether the store has been asked what was seen before.
    is_recalled: bool,
}

/// So long after the first poll nothing is said of when a process was first seen before
/// the store was asked; a store that has not answered by then is broken or very slow.
const RECALL_TIMEOUT: Duration = Duration::from_secs(10);

impl Memory {
    /// Of a box with so much memory, on which processes were first seen on their devices
    /// then by an earlier daemon.
    pub(super) fn new(
        host_memory: Option<Bytes>,
        indices: Indices,
        remembered: BTreeMap<DeviceProcess, Timestamp>,
    ) -> Self {
        Self {
            host_memory,
            indices,
            asks_store: true,
            remembered,
            ..Self::default()
        }
    }

    /// Takes what this poll knows beside the lists: the pids that no process has, and what
    /// processes have open.
    pub(super) fn inform(&mut self, absent: &BTreeSet<u32>, found: &Arc<Found>) {
        self.listings.inform(absent, found);
    }

    /// Whether a pid of the snapshot is another process's by now, so that the descriptors of
    /// all processes are to be searched.
    pub(super) fn wants_search(&mut self, snapshot: &Snapshot, at: Instant) -> bool {
        let mut rows = snapshot.processes.iter();
        let has_doubtful = rows.any(|row| row.start_ticks == listed_before());
        self.listings.wants_search(has_doubtful, at)
    }

    /// One snapshot out of what the backends have, and which devices went and came back.
    /// Its tick, host and faults are still to be filled in.
    pub(super) fn assemble(
        &mut self,
        latest: &[(&'static str, Latest)],
        people: &People,
        users: &Users,
        now: Timestamp,
    ) -> (Snapshot, Vec<GpuEvent>) {
        let mut snapshot = Snapshot {
            host: String::new(),
            taken_at: now,
            tick: 0,
            devices: Vec::new(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let began = *self.began.get_or_insert(now);
        if now.since(began) >= RECALL_TIMEOUT {
            self.remembered = BTreeMap::new();
        }
        let indices = self.indices(latest);
        for (name, latest) in latest {
            snapshot.backends.push(self.backend(name, latest, now));
            let Some((readings, taken_at)) = &latest.readings else {
                continue;
            };
            self.hear(&latest.events);
            let there = there_at(people, *taken_at);
            for read in &readings.devices {
                let is_old = !latest.is_fresh() || read.silent_since.is_some();
                let read_at = read.silent_since.unwrap_or(*taken_at);
                // Readings before a failure are old at once, those before a late answer after
                // a second.
                let has_failed = latest.failure.is_some() || read.silent_since.is_some();
                let seconds = now.since(read_at).as_secs().max(u64::from(has_failed));
                let age = is_old.then(|| u32::try_from(seconds).unwrap_or(u32::MAX));
                if age.is_none() {
                    self.listings.take(read, &there, people);
                    self.last_known.keep_listed(&read.id, &self.listings);
                }
                let rows = match read.silent_since {
                    Some(then) => self.processes(read, age, &there_at(people, then), users, now),
                    None => self.processes(read, age, &there, users, now),
                };
                let index = indices.get(&read.id).copied().unwrap_or(read.index);
                let remembered = self.remembered(read, now);
                snapshot
                    .devices
                    .push(device(read, index, &rows, age, remembered));
                snapshot.processes.extend(rows);
            }
        }
        let bus = self.indices.bus();
        let events = self.gone.follow(latest, bus, &mut snapshot.devices, now);
        snapshot.devices.sort_indirect_by_key(|device| device.index);
        self.forget_what_ended(latest, &snapshot);
        (snapshot, events)
    }

    /// The devices that are gone, as faults.
    pub(super) fn faults(&self) -> Vec<FoundFault> {
        self.gone.faults()
    }

    /// Drops the rows of these devices, where they are gone.
    pub(super) fn forget(&mut self, devices: &[DeviceId]) {
        self.gone.forget(devices);
    }

    /// The number of each device.
    fn indices(&mut self, latest: &[(&'static str, Latest)]) -> BTreeMap<DeviceId, u32> {
        let have_all = latest
            .iter()
            .all(|(_, latest)| latest.readings.is_some() || latest.failure.is_some());
        let devices = latest.iter().flat_map(|(name, latest)| {
            let readings = latest.readings.iter();
            readings.flat_map(|(readings, _)| readings.devices.iter().map(|it| (*name, it)))
        });
        self.indices.of(devices, have_all)
    }

    fn backend(&mut self, name: &'static str, latest: &Latest, now: Timestamp) -> BackendReport {
        let readings = latest.readings.as_ref().map(|(readings, _)| readings);
        let state = match (&latest.failure, readings) {
            (Some(Failure::Failed(code, why)), _) => BackendState::Failed(*code, why.clone()),
            (Some(Failure::Quiesced(until)), _) => BackendState::Quiesced(*until),
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

    /// What is known of a device from polls before.
    fn remembered(&mut self, read: &DeviceReadings, now: Timestamp) -> Remembered {
        let lost = read.lost.as_ref().map(|cause| {
            let LossCause { kind, why } = cause.clone();
            let known = self.lost_since.entry(read.id.clone());
            let known = known.or_insert((kind, now));
            // Each kind of loss is a state of its own, with its own beginning.
            if known.0 != kind {
                *known = (kind, now);
            }
            let since = known.1;
            let reason = why;
            Loss {
                since,
                reason,
                kind,
            }
        });
        if lost.is_none() {
            self.lost_since.remove(&read.id);
        }
        Remembered {
            host_memory: self.host_memory,
            lost,
            last_xid: self.last_xid.get(&read.id).cloned(),
        }
    }

    /// Keeps each device's last XID.
    fn hear(&mut self, events: &[GpuEvent]) {
        for event in events {
            if let (Some(id), Some(_)) = (&event.device, event.kind.xid()) {
                self.last_xid.insert(id.clone(), event.clone());
            }
        }
    }

    /// Only a list that came says who is gone; without one nobody is.
    fn forget_what_ended(&mut self, latest: &[(&'static str, Latest)], snapshot: &Snapshot) {
        let told: BTreeSet<&DeviceId> = latest
            .iter()
            .filter(|(_, latest)| latest.is_fresh())
            .filter_map(|(_, latest)| latest.readings.as_ref())
            .flat_map(|(readings, _)| &readings.devices)
            .filter(|device| device.silent_since.is_none() && device.processes.known().is_some())
            .map(|device| &device.id)
            .into_set();
        let here: BTreeSet<&DeviceId> = snapshot.devices.iter().map(|device| &device.id).into_set();
        let present: BTreeSet<(DeviceId, ProcessKey)> = snapshot
            .processes
            .iter()
            .filter_map(|row| Some((row.device.clone(), row.last_key()?)))
            .into_set();
        let may_be_there = |device: &DeviceId| here.contains(device) && !told.contains(device);
        self.seen
            .retain(|row, _| present.contains(row) || may_be_there(&row.0));
        let nobodies = snapshot.processes.iter();
        let nobodies = nobodies.filter(|row| row.last_key().is_none());
        let nobodies: BTreeSet<(DeviceId, u32)> =
            nobodies.map(|row| (row.device.clone(), row.pid)).into_set();
        self.nobodies
            .retain(|row, _| nobodies.contains(row) || may_be_there(&row.0));
        self.listed.retain(|device, _| here.contains(device));
        self.listings.keep_only(&here);
        self.last_known.keep_only(&here);
        self.lost_since.retain(|device, _| here.contains(device));
        self.last_xid.retain(|device, _| here.contains(device));
    }
}

/// Those who may have been there then.
fn there_at(people: &People, moment: Timestamp) -> People {
    let there = people.iter().filter(|(_, who)| who.was_there_at(moment));
    there.map(|(pid, who)| (*pid, who.clone())).collect()
}

/// A reading of a list this many seconds old; `None` where the list is fresh. Less than
/// a second leaves it a value: where polls come faster than that, an answer is often late
/// on a busy machine.
pub(super) fn aged<T: Clone>(reading: &Reading<T>, age: Option<u32>) -> Reading<T> {
    match age {
        Some(seconds @ 1..) => reading.clone().aged(seconds),
        Some(0) | None => reading.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{MemoryReadings, ProcessReadings, Utilization};
    use crate::host::users::System;
    use gpukill_proto::snapshot::{FaultCode, Use, Vendor};
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    pub(super) fn person(pid: u32, start_ticks: u64) -> (u32, Identity) {
        let identity = Identity::invented(ProcessKey { pid, start_ticks }, "python");
        (pid, identity)
    }

    /// One GPU of which 60 GiB are used, all of it by process 7.
    pub(super) fn latest(
        processes: Reading<Vec<ProcessReadings>>,
        is_fresh: bool,
    ) -> [(&'static str, Latest); 1] {
        let id = DeviceId("GPU-0".into());
        let device = DeviceReadings {
            memory: MemoryReadings {
                total: Reading::Value(Bytes(80 * GIB)),
                used: Reading::Value(Bytes(60 * GIB)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            },
            processes,
            ..DeviceReadings::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported)
        };
        let readings = Readings {
            devices: vec![device],
            ..Readings::nothing(BackendState::Ready)
        };
        let latest = Latest {
            readings: Some((Arc::new(readings), Timestamp(0))),
            failure: None,
            on_time: is_fresh,
            recent: false,
            slow: None,
            events: Vec::new(),
        };
        [("nvidia", latest)]
    }

    pub(super) fn listed() -> Reading<Vec<ProcessReadings>> {
        Reading::Value(vec![ProcessReadings {
            pid: 7,
            start_ticks: None,
            instance: None,
            used_for: Use::default(),
            memory: Reading::Value(Bytes(60 * GIB)),
            utilization: Utilization::unknown(&Reading::Unsupported),
        }])
    }

    #[test]
    fn readings_of_the_last_second_are_values_though_the_next_answer_is_late() {
        let (mut memory, users) = (Memory::default(), Users::new(System::here()));
        let alice: People = [person(7, 100)].into();
        let mut used = |latest: &[(&'static str, Latest)], now| {
            let shown = memory.assemble(latest, &alice, &users, Timestamp(now)).0;
            (
                shown.devices[0].memory_used.clone(),
                shown.processes[0].memory.clone(),
            )
        };
        let all = Bytes(60 * GIB);
        let (value, old) = (Reading::Value(all), Reading::Stale(all, 1));
        let late = latest(listed(), false);
        assert_eq!(used(&latest(listed(), true), 1).1, value);
        assert_eq!(used(&late, 999), (value.clone(), value));
        assert_eq!(used(&late, 1_000), (old.clone(), old.clone()));
        let [(name, last)] = latest(listed(), false);
        let failure = Some(Failure::Failed(FaultCode::SensorFailed, "it ended".into()));
        let failed = [(name, Latest { failure, ..last })];
        assert_eq!(used(&failed, 2), (old.clone(), old));
    }

    #[test]
    fn an_old_list_never_names_whoever_has_the_pid_now() {
        let (mut memory, users) = (Memory::default(), Users::new(System::here()));
        let alice: People = [person(7, 100)].into();
        let fresh = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(1))
            .0;
        assert_eq!(fresh.processes.len(), 1);
        let old = memory
            .assemble(&latest(listed(), false), &alice, &users, Timestamp(2))
            .0;
        assert_eq!(old.processes.len(), 1);
        for others in [[person(7, 900)].into(), People::new()] {
            let old = memory
                .assemble(&latest(listed(), false), &others, &users, Timestamp(3))
                .0;
            assert_eq!(old.processes, []);
            // What it held was explained when it was read, and still is.
            assert_eq!(
                old.devices[0].memory_unattributed.last_known(),
                Some(&Bytes(0))
            );
        }
    }

    /// The same, of a card that has not answered since the first second.
    fn silent(processes: Reading<Vec<ProcessReadings>>) -> [(&'static str, Latest); 1] {
        let [(name, latest)] = latest(processes, true);
        let mut readings = latest.readings.clone().unwrap().0.as_ref().clone();
        readings.devices[0].silent_since = Some(Timestamp(1_000));
        let readings = Some((Arc::new(readings), Timestamp(9_000)));
        [(name, Latest { readings, ..latest })]
    }

    #[test]
    fn what_a_silent_card_told_is_as_old_as_its_last_answer_though_others_answered() {
        let (mut memory, users) = (Memory::default(), Users::new(System::here()));
        let alice: People = [person(7, 100)].into();
        let fresh = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(1_000))
            .0;
        let old = memory
            .assemble(&silent(listed()), &alice, &users, Timestamp(9_000))
            .0;
        let used = Bytes(60 * GIB);
        let rows = |snapshot: &Snapshot| -> Vec<_> {
            let rows = snapshot.processes.iter();
            rows.map(|row| (row.pid, row.first_seen.clone(), row.memory.clone()))
                .collect()
        };
        let first = Reading::Value(Timestamp(1_000));
        assert_eq!(rows(&fresh), [(7, first.clone(), Reading::Value(used))]);
        assert_eq!(rows(&old), [(7, first.clone(), Reading::Stale(used, 8))]);
        let device = &old.devices[0];
        assert_eq!(
            (device.memory_used.clone(), device.process_count.clone()),
            (Reading::Stale(used, 8), Reading::Stale(1, 8))
        );
        // Whoever has the pid since is not named, and who had it is not forgotten.
        let others: People = [person(7, 900)].into();
        let taken = memory
            .assemble(&silent(listed()), &others, &users, Timestamp(10_000))
            .0;
        assert_eq!(taken.processes, []);
        let back = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(11_000))
            .0;
        assert_eq!(rows(&back), [(7, first, Reading::Value(used))]);
    }

    #[test]
    fn a_pid_that_is_no_process_here_is_as_old_as_its_stay_in_the_list() {
        let (mut memory, users) = (Memory::default(), Users::new(System::here()));
        let mut first_seen = |list, people: &People, now| {
            let snapshot = memory
                .assemble(&latest(list, true), people, &users, Timestamp(now))
                .0;
            snapshot
                .processes
                .first()
                .and_then(|row| row.first_seen.known().copied())
        };
        let nobody = People::new();
        assert_eq!(first_seen(listed(), &nobody, 1), Some(Timestamp(1)));
        assert_eq!(first_seen(listed(), &nobody, 2), Some(Timestamp(1)));
        assert_eq!(first_seen(Reading::Failed("999".into()), &nobody, 3), None);
        assert_eq!(first_seen(listed(), &nobody, 4), Some(Timestamp(1)));
        // Somebody has it, and after that nobody again.
        let alice: People = [person(7, 100)].into();
        assert_eq!(first_seen(listed(), &alice, 5), Some(Timestamp(5)));
        assert_eq!(first_seen(listed(), &nobody, 6), Some(Timestamp(6)));
        assert_eq!(first_seen(Reading::Value(Vec::new()), &nobody, 7), None);
        assert_eq!(first_seen(listed(), &nobody, 8), Some(Timestamp(8)));
    }

    #[test]
    fn whoever_has_the_pid_of_a_process_that_a_backend_saw_is_not_it() {
        let seen = |start_ticks| {
            let listed = listed().map(|mut all| {
                all[0].start_ticks = start_ticks;
                all
            });
            let (mut memory, users) = (Memory::default(), Users::new(System::here()));
            let now: People = [person(7, 900)].into();
            let snapshot = memory
                .assemble(&latest(listed, true), &now, &users, Timestamp(1))
                .0;
            let rows = snapshot.processes.into_iter();
            rows.map(|row| (row.pid, row.start_ticks)).collect()
        };
        let itself = vec![(7, Reading::Value(900))];
        let cases: [(_, Vec<_>); 3] = [
            (Some(900), itself.clone()),
            (Some(100), vec![]),
            (None, itself),
        ];
        for (start_ticks, expected) in cases {
            let found: Vec<(u32, Reading<u64>)> = seen(start_ticks);
            assert_eq!(found, expected, "{start_ticks:?}");
        }
    }

    #[test]
    fn a_list_that_fails_once_does_not_restart_the_time_on_the_gpu() {
        let (mut memory, users) = (Memory::default(), Users::new(System::here()));
        let people: People = [person(7, 100)].into();
        let mut first_seen = |list, now| {
            let snapshot = memory
                .assemble(&latest(list, true), &people, &users, Timestamp(now))
                .0;
            snapshot
                .processes
                .first()
                .and_then(|row| row.first_seen.known().copied())
        };
        assert_eq!(first_seen(listed(), 1), Some(Timestamp(1)));
        assert_eq!(first_seen(Reading::Failed("999".into()), 2), None);
        assert_eq!(first_seen(listed(), 3), Some(Timestamp(1)));
        // A list that came without it says that it is gone.
        assert_eq!(first_seen(Reading::Value(Vec::new()), 4), None);
        assert_eq!(first_seen(listed(), 5), Some(Timestamp(5)));
    }
}
