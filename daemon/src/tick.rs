//! One poll: what the backends read, put beside the people it belongs to.

mod assemble;

mod broken;

mod device;

mod ended;

mod held;

mod indices;

use crate::backend::reader::{Latest, Reader};
use crate::faults::Faults;
use crate::holders::{Found, Holders};
use crate::host;
use crate::host::process::Processes;
use crate::host::users::Users;
use assemble::{Memory, People};
use ended::Past;
use gpukill_policy::memory::Shared;
use gpukill_proto::holders::HeldDevice;
use gpukill_proto::snapshot::{GpuEvent, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use held::Sight;
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
    memory: Memory,
    past: Past,
    held: Arc<Vec<HeldDevice>>,
    suspicion: Suspicion,
    /// The last snapshot; at first one of nothing.
    before: Arc<Snapshot>,
    faults: Faults,
    tick: u64,
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
}

/// How long a poll waits for names, command lines and containers' files that it
/// has just asked for.
/// Mostly they come within this, and else at the next poll.
const PATIENCE: Duration = Duration::from_millis(20);

impl Ticker {
    pub(crate) fn new(
        readers: Vec<Reader>,
        holders: Holders,
        procfs: PathBuf,
        processes: Processes,
        users: Users,
        before: Arc<Snapshot>,
    ) -> Self {
        Self {
            readers,
            holders,
            processes,
            users,
            memory: Memory::new(host::memory::total(&procfs)),
            procfs,
            past: Past::default(),
            held: Arc::default(),
            suspicion: Suspicion::default(),
            before,
            faults: Faults::default(),
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
        others: Vec<(String, String)>,
        held_is_wanted: bool,
    ) -> Ticked {
        let latest = self.read_backends(patience);
        let found = self.holders.found();
        let people = self.identify(&latest, &found, now);
        let is_gone = |key: &&ProcessKey| people.get(&key.pid).is_none_or(|it| it.key != **key);
        self.holders
            .forget(found.processes.keys().filter(is_gone).copied());
        let mut snapshot = self.memory.assemble(&latest, &people, &self.users, now);
        self.tick += 1;
        snapshot.tick = self.tick;
        snapshot.host.clone_from(&self.before.host);
        self.past.follow(&self.before, &snapshot, now);
        if self.suspicion.rises(&snapshot) {
            self.holders.look_now();
        }
        // Of many faults the last are cut: the daemon's own come first.
        let names = self.users.fault().map(|fault| ("names".to_owned(), fault));
        let own = others.into_iter().chain(names);
        let own = own.chain(self.processes.faults());
        let search = self.holders.fault();
        let own = own.chain(search.map(|fault| ("processes".to_owned(), fault)));
        let faults = own.chain(broken::faults(&latest, &snapshot)).collect();
        snapshot.faults = self.faults.update(faults, now);
        let sight = Sight {
            latest: &latest,
            snapshot: &snapshot,
            found: &found,
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
        let events = latest.into_iter().flat_map(|(_, latest)| latest.events);
        Ticked {
            events: events.collect(),
            sharing,
            held: Arc::clone(&self.held),
            snapshot: Arc::clone(&self.before),
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
        let pids: BTreeSet<u32> = assemble::pids(latest).chain(holding).collect();
        let mut people: People = self.processes.identify(&pids, now, &self.users);
        let deadline = Instant::now() + PATIENCE;
        self.processes.settle(&mut people, &self.users, deadline);
        people
    }
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
    fn rises(&mut self, snapshot: &Snapshot) -> bool {
        let remainders = snapshot.devices.iter();
        let now: u64 = remainders
            .filter_map(|device| device.memory_unattributed.known())
            .map(|bytes| bytes.0)
            .fold(0, u64::saturating_add);
        let is_early = self.looked_at.is_some_and(|at| at.elapsed() < Self::PAUSE);
        if now < self.then {
            self.then = now;
        }
        // A remainder is above the noise; what is added to one may be noise.
        let rises = now > self.then.saturating_add(self.then / 10);
        if !rises || is_early {
            return false;
        }
        self.then = now;
        self.looked_at = Some(Instant::now());
        true
    }
}
