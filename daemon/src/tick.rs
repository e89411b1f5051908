//! One poll: what the backends read, put beside the people it belongs to.

mod assemble;

mod broken;

mod device;

use crate::backend::reader::{Latest, Reader};
use crate::faults::Faults;
use crate::host::process::Processes;
use crate::host::users::Users;
use assemble::{Memory, People};
use gpukill_proto::snapshot::{GpuEvent, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The parts that a poll needs, and what it remembers from one to the next.
pub(crate) struct Ticker {
    readers: Vec<Reader>,
    /// Backends of the configuration that this version cannot read.
    not_built: Vec<String>,
    processes: Processes,
    users: Users,
    host: String,
    memory: Memory,
    faults: Faults,
    tick: u64,
    started: Option<Timestamp>,
}

/// What one poll saw.
pub(crate) struct Ticked {
    pub(crate) snapshot: Snapshot,
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
        not_built: Vec<String>,
        processes: Processes,
        users: Users,
        host: String,
    ) -> Self {
        let (memory, faults) = (Memory::default(), Faults::default());
        Self {
            readers,
            not_built,
            processes,
            users,
            host,
            memory,
            faults,
            tick: 0,
            started: None,
        }
    }

    /// Polls once. `patience` is how long it waits for a slow backend before it
    /// goes on with that one's last readings.
    pub(crate) fn tick(
        &mut self,
        patience: Duration,
        now: Timestamp,
        others: Vec<(String, String)>,
    ) -> Ticked {
        let latest = self.read_backends(patience);
        let people = self.identify(&latest, now);
        let mut snapshot = self.memory.assemble(&latest, &people, &self.users, now);
        let started = *self.started.get_or_insert(now);
        self.tick += 1;
        snapshot.tick = self.tick;
        snapshot.host.clone_from(&self.host);
        snapshot.backends.extend(
            self.not_built
                .iter()
                .map(|name| assemble::not_built(name, started)),
        );
        // Of many faults the last are cut: the daemon's own come first.
        let names = self.users.fault().map(|fault| ("names".to_owned(), fault));
        let own = others.into_iter().chain(names);
        let own = own.chain(self.processes.faults());
        let faults = own.chain(broken::faults(&latest, &snapshot)).collect();
        snapshot.faults = self.faults.update(faults, now);
        let events = latest.into_iter().flat_map(|(_, latest)| latest.events);
        Ticked {
            events: events.collect(),
            snapshot,
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

    /// Who the listed pids are. What may hang is asked for all together first, so
    /// that a poll waits for it once.
    fn identify(&mut self, latest: &[(&'static str, Latest)], now: Timestamp) -> People {
        let pids: BTreeSet<u32> = assemble::pids(latest).collect();
        let mut people: People = self.processes.identify(&pids, now, &self.users);
        let deadline = Instant::now() + PATIENCE;
        self.processes.settle(&mut people, &self.users, deadline);
        people
    }
}
