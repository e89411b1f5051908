//! One poll: what the backends read, put beside the people it belongs to.

mod assemble;

mod broken;

mod device;

mod ended;

mod fleeting;

mod gone;

mod held;

mod history;

mod indices;

mod memberships;

mod slots;

use crate::audit::{Accounts, Groups};
use crate::backend::Roots;
use crate::backend::reader::{Latest, Reader};
use crate::faults::{Alerts, Faults, FoundFault};
use crate::holders::{Found, Holders};
use crate::host;
use crate::host::connections::Connections;
use crate::host::identity::Identity;
use crate::host::process::Processes;
use crate::host::users::Users;
use assemble::{Memory, People};
use ended::Past;
use gpukill_policy::alert::Thresholds;
use gpukill_policy::memory::Shared;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::HeldDevice;
use gpukill_proto::snapshot::{DeviceId, FaultCode, GpuEvent, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use held::Sight;
pub(crate) use history::History;
use indices::Indices;
use memberships::Memberships;
use slots::Bus;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts that a poll needs, and what it remembers from one to the next.
pub(crate) struct Ticker {
    readers: Vec<Reader>,
    holders: Holders,
    procfs: PathBuf,
    processes: Processes,
    users: Users,
    connections: Arc<Connections>,
    memberships: Memberships,
    memory: Memory,
    history: History,
    past: Past,
    held: Arc<Vec<HeldDevice>>,
    suspicion: Suspicion,
    /// The last snapshot; at first one of nothing.
    before: Arc<Snapshot>,
    faults: Faults,
    alerts: Alerts,
    tick: u64,
}

/// What a poll learns about processes and their users from.
pub(crate) struct Sources {
    pub(crate) holders: Holders,
    pub(crate) processes: Processes,
    pub(crate) users: Users,
    pub(crate) connections: Arc<Connections>,
}

/// What one poll saw.
pub(crate) struct Ticked {
    pub(crate) snapshot: Arc<Snapshot>,
    /// What processes share of all devices.
    pub(crate) sharing: Arc<Shared>,
    /// Who holds each device, as it was when somebody last asked.
    pub(crate) held: Arc<Vec<HeldDevice>>,
    /// What happened to devices since the poll before, the oldest first.
    pub(crate) events: Vec<GpuEvent>,
    /// The names of the groups of those who own processes here.
    pub(crate) groups: Arc<Groups>,
    /// What jobs of Slurm are charged to, as their processes say.
    pub(crate) accounts: Arc<Accounts>,
    /// How long the slowest answer of a backend takes that answers slowly.
    pub(crate) slowest: Option<Duration>,
    /// Whether a backend did not answer in time.
    pub(crate) is_late: bool,
}

/// How long a poll waits for names, command lines and containers' files that it
/// has just asked for, and then for sockets.
/// Mostly they come within this, and else at the next poll.
const PATIENCE: Duration = Duration::from_millis(20);

impl Ticker {
    pub(crate) fn new(
        readers: Vec<Reader>,
        roots: Roots,
        sources: Sources,
        mut history: History,
        before: Arc<Snapshot>,
    ) -> Self {
        let Roots { sysfs, procfs, .. } = roots;
        let Sources {
            holders,
            processes,
            users,
            connections,
        } = sources;
        let names: Vec<&str> = readers.iter().map(Reader::name).collect();
        let indices = Indices::on(Bus::new(&sysfs, &names));
        let remembered = std::mem::take(&mut history.remembered);
        Self {
            readers,
            holders,
            processes,
            users,
            connections,
            memberships: Memberships::default(),
            memory: Memory::new(host::memory::total(&procfs), indices, remembered),
            history,
            procfs,
            past: Past::default(),
            held: Arc::default(),
            suspicion: Suspicion::default(),
            before,
            faults: Faults::default(),
            alerts: Alerts::default(),
            tick: 0,
        }
    }

    /// Polls once. `patience` is how long it waits for a slow backend before it
    /// goes on with that one's last readings. `held_is_wanted`: somebody asks who
    /// holds the devices.
    pub(crate) fn tick(
        &mut self,
        patience: Duration,
        now: Timestamp,
        others: Vec<FoundFault>,
        thresholds: &Thresholds,
        held_is_wanted: bool,
    ) -> Ticked {
        let latest = self.read_backends(patience);
        let found = self.holders.found();
        let people = self.identify(&latest, &found, now);
        let is_gone = |key: &&ProcessKey| people.get(&key.pid).is_none_or(|it| it.key != **key);
        self.holders
            .forget(found.processes.keys().filter(is_gone).copied());
        if let Some((asked, known)) = self.history.answer() {
            self.memory.recall(&asked, &known);
        }
        self.memory.inform(self.processes.absent(), &found);
        let (mut snapshot, went) = self.memory.assemble(&latest, &people, &self.users, now);
        self.history.ask(self.memory.not_recalled());
        self.tick += 1;
        snapshot.tick = self.tick;
        snapshot.host.clone_from(&self.before.host);
        self.count_connections(&mut snapshot, &people);
        self.past.follow(&self.before, &snapshot, now);
        let at = Instant::now();
        let wants_search = self.memory.wants_search(&snapshot, at);
        if self.suspicion.rises(&snapshot, at) || wants_search {
            self.holders.look_now();
        }
        // Of many faults the last are cut: the daemon's own come first.
        let names = self.users.fault().map(|fault| fault.found_in("names"));
        let own = others.into_iter().chain(names);
        let own = own.chain(self.processes.faults());
        let search = self.holders.fault();
        let own = own.chain(search.map(|fault| fault.found_in("processes")));
        let fleeting = fleeting::fleeting(&latest, &found, &self.users);
        let devices = snapshot.devices.iter();
        let own = own.chain(devices.filter_map(|device| {
            let what = fleeting.get(&device.id)?.clone();
            let part = format!("GPU {}", device.index);
            Some(FoundFault::new(part, FaultCode::ShortLivedHolders, what))
        }));
        let gone = self.memory.faults();
        let faults = own.chain(broken::faults(&latest, &snapshot)).chain(gone);
        let faults = faults.collect();
        snapshot.faults = self.faults.update(faults, now);
        broken::share_beginnings(&mut snapshot);
        let alerts = self.alerts.update(thresholds, &snapshot);
        snapshot.faults.extend(alerts);
        let sight = Sight {
            latest: &latest,
            snapshot: &snapshot,
            found: &found,
            fleeting: &fleeting,
            people: &people,
            users: &self.users,
            procfs: &self.procfs,
        };
        if held_is_wanted {
            let held = sight.held(&self.past.ended, &self.past.busy_alone);
            self.held = Arc::new(held);
        }
        self.before = Arc::new(snapshot);
        let sharing = Arc::new(sharing(&latest));
        let accounts = people.values().filter_map(account);
        let accounts = Arc::new(accounts.collect());
        let slowest = latest.iter().filter_map(|(_, latest)| latest.slow).max();
        let is_late = latest.iter().any(|(_, latest)| latest.is_late());
        let events = latest.into_iter().flat_map(|(_, latest)| latest.events);
        Ticked {
            events: events.chain(went).collect(),
            sharing,
            groups: self.memberships.of(&self.before, &self.users),
            accounts,
            slowest,
            is_late,
            held: Arc::clone(&self.held),
            snapshot: Arc::clone(&self.before),
        }
    }

    /// Drops the rows of these devices, where they are gone.
    pub(crate) fn forget(&mut self, devices: &[DeviceId]) {
        self.memory.forget(devices);
    }

    /// Fills in how others use each process's job over TCP, by the last look at it.
    fn count_connections(&self, snapshot: &mut Snapshot, people: &People) {
        let keys = snapshot.processes.iter().filter_map(GpuProcess::key);
        let known = keys.filter_map(|key| {
            let identity = people.get(&key.pid).filter(|it| it.key == key)?;
            Some((key, identity.affiliation(&self.users)))
        });
        self.connections.want(known.collect());
        self.connections.settle(Instant::now() + PATIENCE);
        for process in &mut snapshot.processes {
            if let Some(key) = process.key() {
                let network = self.connections.network_use(key);
                process.network_role = network.role;
                process.connections = network.clients;
            }
        }
    }

    /// All at once, each on its own thread.
    fn read_backends(&self, patience: Duration) -> Vec<(&'static str, Latest)> {
        let deadline = Instant::now() + patience;
        for reader in &self.readers {
            reader.ask();
        }
        self.readers
            .iter()
            .map(|reader| (reader.name(), reader.latest(deadline)))
            .collect()
    }

    /// Who the listed pids are, and those who hold a device. What may hang is asked for all together first, so
    /// that a poll waits for it once.
    fn identify(
        &mut self,
        latest: &[(&'static str, Latest)],
        found: &Found,
        now: Timestamp,
    ) -> People {
        let holding = found.processes.keys().map(|key| key.pid);
        let pids: BTreeSet<u32> = assemble::pids(latest).chain(holding).into_set();
        let mut people: People = self.processes.identify(&pids, now, &self.users);
        let deadline = Instant::now() + PATIENCE;
        self.processes.settle(&mut people, &self.users, deadline);
        people
    }
}

fn account(person: &Identity) -> Option<(ProcessKey, String)> {
    Some((person.key, person.account()?.clone()))
}

/// What processes share of all devices.
fn sharing(latest: &[(&'static str, Latest)]) -> Shared {
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let shared = devices.flat_map(|device| {
        let shared = device.sharing.iter();
        shared.map(|(key, sharing)| ((device.id.clone(), *key), *sharing))
    });
    shared.collect()
}

/// When unexplained memory is reason enough to look at every process.
#[derive(Debug, Default)]
struct Suspicion {
    /// What was unexplained of all devices at the last look.
    then: u64,
    looked_at: Option<Instant>,
}

impl Suspicion {
    /// Looking at everybody costs seconds of a processor: not more often.
    const PAUSE: Duration = Duration::from_secs(30);

    /// Whether more is unexplained than when everybody was last looked at.
    fn rises(&mut self, snapshot: &Snapshot, at: Instant) -> bool {
        let remainders = snapshot.devices.iter();
        let now: u64 = remainders
            .filter_map(|device| device.memory_unattributed.known())
            .map(|bytes| bytes.0)
            .fold(0, u64::saturating_add);
        let since_the_last = |last| at.saturating_duration_since(last);
        let is_early = self
            .looked_at
            .is_some_and(|last| since_the_last(last) < Self::PAUSE);
        if now < self.then {
            self.then = now;
        }
        // A remainder is above the noise; what is added to one may be noise.
        let rises = now > self.then.saturating_add(self.then / 10);
        if !rises || is_early {
            return false;
        }
        self.then = now;
        self.looked_at = Some(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::{Device, DeviceId, Vendor};
    use gpukill_proto::units::Bytes;

    /// Two devices of which so much is unexplained.
    fn unexplained(remainders: [Reading<Bytes>; 2]) -> Snapshot {
        let device = |memory_unattributed| Device {
            memory_unattributed,
            ..Device::unknown(
                DeviceId("GPU-0".into()),
                0,
                Vendor::Nvidia,
                &Reading::Unsupported,
            )
        };
        Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            tick: 1,
            devices: remainders.map(device).into(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn everybody_is_looked_at_when_more_is_unexplained_and_not_too_often() {
        let begin = Instant::now();
        let mut suspicion = Suspicion::default();
        let mut rises = |seconds: u64, gigabytes: u64| {
            let rest = Reading::Value(Bytes(gigabytes * 1_000_000_000));
            let snapshot = unexplained([rest, Reading::Value(Bytes(0))]);
            suspicion.rises(&snapshot, begin + Duration::from_secs(seconds))
        };
        let polls = [
            (0, 0, false),
            (2, 10, true),
            (4, 10, false),
            // It grows, and everybody has just been looked at.
            (31, 20, false),
            (32, 20, true),
            // A tenth more may be noise.
            (100, 22, false),
            (102, 23, true),
            // What was given back and taken again is another's.
            (200, 5, false),
            (202, 10, true),
        ];
        for (second, gigabytes, expected) in polls {
            assert_eq!(rises(second, gigabytes), expected, "at {second} s");
        }
    }

    #[test]
    fn what_is_unexplained_of_all_devices_counts_and_what_is_not_known_does_not() {
        let mut suspicion = Suspicion::default();
        let begin = Instant::now();
        let old = Reading::Stale(Bytes(9_000_000_000), 4);
        let failed = Reading::Failed("999".into());
        assert!(!suspicion.rises(&unexplained([old, failed]), begin));
        let part = || Reading::Value(Bytes(5_000_000_000));
        let most = Reading::Value(Bytes(u64::MAX));
        assert!(suspicion.rises(&unexplained([part(), part()]), begin));
        let later = begin + Suspicion::PAUSE;
        assert!(!suspicion.rises(&unexplained([part(), part()]), later));
        assert!(suspicion.rises(&unexplained([part(), most]), later));
    }
}
