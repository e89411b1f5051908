//! Reads the users of a card: the clients behind the descriptors that are open on it, each once,
//! and their activity since the last poll.
//!
//! Reading wakes a suspended card (xe), so a suspended card is not read.

mod bounds;
mod clients_file;
mod counter;
mod origin;
mod scan;
mod shares;

use super::card::DrmCard;
use super::engines::{self, EngineWork};
use crate::backend::{PassedClient, SharedClient, Utilization};
use crate::fd_scan::{DeviceNumber, FileHolders};
use bounds::{IncompleteProcesses, NOT_READ_YET};
use counter::CounterHistory;
use gpukill_policy::memory::Sharing;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::model::{GpuUse, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use origin::{ClientOrigins, ClientOwner};
use scan::{ClientScan, ClientScanState, HeldMemory, ProcessDescriptor, ScannedClient};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use origin::{PersonLookup, ProcessAccount};

/// Descriptors that are read for one process, over several polls. A display server has some
/// hundred; a process that opens more must not hide the others.
const DESCRIPTORS_MAX: usize = 8_192;

/// The failure of a process that has more descriptors, where no client was among those that were
/// read.
const TOO_MANY_DESCRIPTORS: &str = "it has the card open too often to read all descriptors";

/// The clients of one card, with their counters at the last poll.
pub(crate) struct ClientReader {
    root: PathBuf,
    scan_state: ClientScanState,
    origins: ClientOrigins,
    has_own_memory: bool,
    /// The driver has reported a client before. A descriptor without a report is then no client,
    /// but one that was closed while it was read.
    driver_reports: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardUsage {
    /// Sorted by key.
    pub(crate) processes: Vec<ProcessUsage>,
    /// The utilization of the busiest engine, video engines excluded.
    pub(crate) utilization: Reading<Percent>,
    pub(crate) encoder: Reading<Percent>,
    pub(crate) decoder: Reading<Percent>,
    /// Whether the driver reports memory of the card's own. A card without it shares the host's.
    pub(crate) has_own_memory: bool,
    /// Processes that have a client of another process open too.
    pub(crate) shared_clients: Vec<SharedClient>,
    /// The processes that hold clients of unknown owner. Such clients count for no process.
    pub(crate) passed_clients: Vec<PassedClient>,
    /// A fault of reading one process that does not affect the others.
    pub(crate) fault: Option<String>,
    /// Why there may be other clients; `None` when every descriptor was read.
    pub(crate) incomplete_reason: Option<String>,
}

/// The use that one process makes of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessUsage {
    pub(crate) key: ProcessKey,
    /// Card memory that the process holds; host memory if the card has none of its own. Shared
    /// memory is included, and memory shared by two of its clients is included twice.
    pub(crate) memory: Reading<Bytes>,
    /// How much of it other processes may hold too.
    pub(crate) sharing: Sharing,
    /// Host memory that the process holds through the card.
    pub(crate) host_memory: Reading<Bytes>,
    /// How much of it other processes may hold too.
    pub(crate) host_sharing: Sharing,
    pub(crate) utilization: Utilization,
    pub(crate) used_for: GpuUse,
}

impl ClientReader {
    /// Reads descriptors below `root` (`/proc`, except in tests), and the kernel's own records of
    /// clients below `sysfs`.
    pub(crate) fn new(root: PathBuf, sysfs: PathBuf, persons: Arc<dyn PersonLookup>) -> Self {
        Self {
            origins: ClientOrigins::new(root.clone(), sysfs, persons),
            root,
            scan_state: ClientScanState::default(),
            has_own_memory: false,
            driver_reports: false,
        }
    }

    /// Reads the current clients of the processes that have the card open.
    pub(crate) fn read(&mut self, card: &DrmCard, file_holders: &FileHolders) -> CardUsage {
        self.read_with_clock(card, file_holders, &Instant::now)
    }

    fn read_with_clock(
        &mut self,
        card: &DrmCard,
        file_holders: &FileHolders,
        now: &dyn Fn() -> Instant,
    ) -> CardUsage {
        let (descriptors, overfull) = open_descriptors(card, file_holders);
        self.origins
            .inspect_holders(descriptors.iter().map(|(key, _)| key));
        let before = std::mem::take(&mut self.scan_state);
        let person = |key: &ProcessKey| self.origins.person(key);
        let scan = ClientScan::new(&self.root, card, now, &person, before);
        let (state, mut partly, read_error) = scan.scan_all(&descriptors);
        partly.over_limit.extend(overfull);
        self.scan_state = state;
        let clients = &self.scan_state.clients;
        let held = clients.iter().map(|(id, client)| (*id, &client.holders));
        self.origins.update(card, &held.into_map());
        self.has_own_memory |= clients.values().any(|client| client.has_own);
        self.driver_reports |= !clients.is_empty();
        let incomplete = file_holders.incomplete_reason.clone().or(read_error);
        // The activity of a process's unread descriptors is unknown, and so is the total; that the
        // process uses the card is known.
        let is_part = partly.has_any().then_some(TOO_MANY_DESCRIPTORS);

        let histories: Vec<&CounterHistory> =
            clients.values().map(|client| &client.history).collect();
        let silent = self.unreported_processes();
        let share = |work| {
            if silent.is_empty() {
                card_share(card, &histories, work, incomplete.as_deref().or(is_part))
            } else {
                Reading::Unsupported
            }
        };
        CardUsage {
            utilization: share(EngineWork::Main),
            encoder: share(EngineWork::Encode),
            decoder: share(EngineWork::Decode),
            processes: [self.processes(card, &partly), silent].concat(),
            has_own_memory: self.has_own_memory,
            shared_clients: self.shared_clients(),
            passed_clients: self.passed_clients(),
            fault: partly.fault(&card.name),
            incomplete_reason: incomplete,
        }
    }

    /// Assigns each client to the one process that owns it. The values that were read of a process
    /// are a lower bound.
    fn processes(&self, card: &DrmCard, partly: &IncompleteProcesses) -> Vec<ProcessUsage> {
        let mut clients: BTreeMap<ProcessKey, Vec<&ScannedClient>> = BTreeMap::new();
        for (client, owner) in self.owned_clients() {
            if let ClientOwner::Process(owner) = owner {
                clients.entry(owner).or_default().push(client);
            }
        }
        for key in partly.over_limit.iter().chain(&partly.waiting) {
            clients.entry(*key).or_default();
        }
        let process = |(key, clients): (ProcessKey, Vec<&ScannedClient>)| {
            let is_empty = clients.is_empty();
            let client = self.process_usage(key, clients, card);
            let why: Reading<()> = match partly.waiting.contains(&key) {
                true => Reading::Failed(NOT_READ_YET.to_owned()),
                false if is_empty => Reading::Failed(TOO_MANY_DESCRIPTORS.to_owned()),
                false => return client,
            };
            let utilization = Utilization::unknown(&why);
            if !is_empty {
                return ProcessUsage {
                    utilization,
                    ..client
                };
            }
            ProcessUsage {
                memory: why.as_unknown(),
                host_memory: why.as_unknown(),
                utilization,
                ..client
            }
        };
        clients.into_iter().map(process).collect()
    }

    /// The processes that hold a client that another process owns.
    fn shared_clients(&self) -> Vec<SharedClient> {
        let owned = self
            .owned_clients()
            .filter_map(|(client, owner)| match owner {
                ClientOwner::Process(owner) => Some((client, owner)),
                ClientOwner::Passed(_) | ClientOwner::Unknown => None,
            });
        let shared_clients = owned.flat_map(|(client, owner)| {
            let others = client.holders.iter().filter(move |key| **key != owner);
            others.map(move |key| SharedClient {
                key: *key,
                owner_pid: owner.pid,
            })
        });
        shared_clients.collect()
    }

    /// Each process that holds a client of unknown owner, once.
    fn passed_clients(&self) -> Vec<PassedClient> {
        let mut passed = BTreeMap::new();
        for (client, owner) in self.owned_clients() {
            if let ClientOwner::Passed(first) = owner {
                for key in &client.holders {
                    passed.entry(*key).or_insert(first);
                }
            }
        }
        let passed = passed.into_iter();
        passed
            .map(|(key, first)| PassedClient { key, first })
            .collect()
    }

    fn owned_clients(&self) -> impl Iterator<Item = (&ScannedClient, ClientOwner)> {
        let clients = self.scan_state.clients.iter();
        clients.map(|(id, client)| (client, self.origins.owner(*id, &client.holders)))
    }

    /// The processes that use the card through a driver that reports no clients (radeon, and others
    /// before the kernel had fdinfo): nothing beyond their use is known.
    fn unreported_processes(&self) -> Vec<ProcessUsage> {
        if self.driver_reports {
            return Vec::new();
        }
        let client = |key| ProcessUsage {
            key,
            memory: Reading::Unsupported,
            sharing: Sharing::NONE,
            host_memory: Reading::Unsupported,
            host_sharing: Sharing::NONE,
            utilization: Utilization::unknown(&Reading::Unsupported),
            used_for: GpuUse::default(),
        };
        self.scan_state
            .unreported_processes()
            .into_iter()
            .map(client)
            .collect()
    }

    fn process_usage(
        &self,
        key: ProcessKey,
        clients: Vec<&ScannedClient>,
        card: &DrmCard,
    ) -> ProcessUsage {
        let histories: Vec<&CounterHistory> =
            clients.iter().map(|client| &client.history).collect();
        let (host_memory, host_sharing) = sum_held(clients.iter().map(|client| &client.host));
        let (memory, sharing) = if self.has_own_memory {
            sum_held(clients.iter().map(|client| &client.own))
        } else {
            (host_memory.clone(), host_sharing)
        };
        ProcessUsage {
            key,
            memory,
            sharing,
            host_memory,
            host_sharing,
            utilization: shares::process_utilization(
                engines::driver_by_name(&card.driver),
                &histories,
            ),
            used_for: GpuUse {
                compute: clients.iter().any(|client| client.used_for.compute),
                graphics: clients.iter().any(|client| client.used_for.graphics),
                mps: false,
            },
        }
    }
}

/// The memory that several clients of one process hold, and how much of it may be shared.
fn sum_held<'a>(parts: impl Iterator<Item = &'a HeldMemory> + Clone) -> (Reading<Bytes>, Sharing) {
    let sharing = parts.clone().map(|part| part.sharing);
    let sharing = sharing.fold(Sharing::NONE, Sharing::combine);
    (shares::sum_bytes(parts.map(|part| &part.bytes)), sharing)
}

/// How much of each process's memory others may hold too; processes that share nothing have no
/// entry.
pub(crate) fn sharing_by_process(clients: &[ProcessUsage]) -> BTreeMap<ProcessKey, Sharing> {
    let sharing = clients.iter().map(|client| (client.key, client.sharing));
    sharing.filter(|(_, it)| *it != Sharing::NONE).into_map()
}

/// The open descriptors of the card's files, and the processes that have more than are read.
fn open_descriptors(
    card: &DrmCard,
    file_holders: &FileHolders,
) -> (Vec<ProcessDescriptor>, BTreeSet<ProcessKey>) {
    let numbers: BTreeSet<DeviceNumber> = card.nodes.iter().map(|node| node.number).into_set();
    let mut descriptors = Vec::new();
    let mut overfull = BTreeSet::new();
    for (key, opens) in &file_holders.processes {
        let mut opens = opens.iter().filter(|open| numbers.contains(&open.number));
        descriptors.extend(
            opens
                .by_ref()
                .take(DESCRIPTORS_MAX)
                .map(|open| (*key, *open)),
        );
        let is_any = descriptors
            .last()
            .is_some_and(|(last, _): &ProcessDescriptor| last == key);
        if opens.next().is_some() || is_any && file_holders.truncated.contains(key) {
            overfull.insert(*key);
        }
    }
    (descriptors, overfull)
}

/// The utilization by all clients together. If some clients may be missing it fails: a part says
/// nothing about the card.
fn card_share(
    card: &DrmCard,
    clients: &[&CounterHistory],
    work: EngineWork,
    incomplete: Option<&str>,
) -> Reading<Percent> {
    let driver = engines::driver_by_name(&card.driver);
    let share = if clients.is_empty() && driver.reports_work(work) {
        Reading::Value(Percent(0))
    } else {
        shares::busiest_engine_share_of_card(driver, clients, work)
    };
    match (share, incomplete) {
        (Reading::Value(_), Some(why)) => Reading::Failed(why.to_owned()),
        (share, _) => share,
    }
}

#[cfg(test)]
mod tests;
