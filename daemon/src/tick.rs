//! One poll: what the backends read, put beside the people it belongs to.

mod assemble;

use crate::backend::reader::{Latest, Reader};
use crate::faults::Faults;
use crate::host::process::Processes;
use crate::host::users::Users;
use assemble::Memory;
use gpukill_proto::snapshot::Snapshot;
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
}

/// How long a poll waits for names it has just asked for: a local name service
/// answers within this, and a distant one is shown at the next poll.
const NAME_PATIENCE: Duration = Duration::from_millis(20);

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
        }
    }

    /// Polls once. `patience` is how long it waits for a slow backend before it
    /// goes on with that one's last readings.
    pub(crate) fn tick(
        &mut self,
        patience: Duration,
        now: Timestamp,
        others: Vec<(String, String)>,
    ) -> Snapshot {
        let latest = self.read_backends(patience);
        self.resolve_names(&latest, now);
        let mut snapshot = self
            .memory
            .assemble(&latest, &mut self.processes, &self.users, now);
        self.tick += 1;
        snapshot.tick = self.tick;
        snapshot.host.clone_from(&self.host);
        snapshot.backends.extend(
            self.not_built
                .iter()
                .map(|name| assemble::not_built(name, now)),
        );
        let faults = assemble::faults(&latest, &snapshot).chain(others);
        let faults = faults.chain(self.users.fault().map(|fault| ("names".to_owned(), fault)));
        snapshot.faults = self.faults.update(faults.collect(), now);
        snapshot
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

    /// Asks for the names of all owners together, so that a poll waits for them
    /// once and not one by one.
    fn resolve_names(&mut self, latest: &[(&'static str, Latest)], now: Timestamp) {
        let pids: BTreeSet<u32> = assemble::pids(latest).collect();
        self.processes.keep_only(&pids);
        for pid in pids {
            if let Ok(identity) = self.processes.identify(pid, now)
                && let Some(uid) = identity.uid.known()
            {
                self.users.name(*uid);
            }
        }
        self.users.settle(Instant::now() + NAME_PATIENCE);
    }
}
