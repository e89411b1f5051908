//! Who uses a card: the clients behind the descriptors that are open on it, each
//! once, and what they did since the last poll.
//!
//! Reading wakes a card that sleeps (xe): it is not done then.

mod bounds;

mod clients_file;

mod counter;

mod look;

mod origin;

mod shares;

use super::card::Card;
use super::engines::{self, Work};
use crate::backend::{PassedClient, Sharer, Utilization};
use crate::holders::{DeviceNumber, Found};
use bounds::{NOT_READ_YET, Partly};
use counter::History;
use gpukill_policy::memory::Sharing;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ProcessKey, Use};
use gpukill_proto::units::{Bytes, Percent};
use look::{Held, Look, Place, Sight, Sighting};
use origin::{Origins, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use origin::{Account, People};

/// So many descriptors of one process are looked at, over some polls. A display server has
/// some hundred; who opens more must not hide the others.
const DESCRIPTORS_MAX: usize = 8_192;

/// Why nothing is known of a process that has more, where none of those was a client.
const TOO_MANY: &str = "it has the card open more often than is read";

/// The clients of one card, and what they had done at the last poll.
pub(crate) struct Clients {
    root: PathBuf,
    sight: Sight,
    origins: Origins,
    has_own_memory: bool,
    /// Its driver told of a client once. What tells nothing is none then, but a
    /// descriptor that was closed while it was looked at.
    tells: bool,
}

/// What all clients of a card do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Used {
    /// By key.
    pub(crate) processes: Vec<Client>,
    /// The busiest of its engines, but for those that code videos.
    pub(crate) utilization: Reading<Percent>,
    pub(crate) encoder: Reading<Percent>,
    pub(crate) decoder: Reading<Percent>,
    /// Whether its driver tells of a memory that is the card's own. Without one
    /// it shares the host's.
    pub(crate) has_own_memory: bool,
    /// Whoever has a client of these processes open too.
    pub(crate) sharers: Vec<Sharer>,
    /// The processes that hold clients of which the owner is not known: they count for
    /// no process.
    pub(crate) passed: Vec<PassedClient>,
    /// What is wrong with reading one process, and not with the others.
    pub(crate) fault: Option<String>,
    /// Why there may be others; `None` when every descriptor was read.
    pub(crate) unseen: Option<String>,
}

/// What one process does on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) key: ProcessKey,
    /// Memory of the card that it holds; of the host's, where the card has none
    /// of its own. What it shares is in it, and what two of its clients share is in
    /// it twice.
    pub(crate) memory: Reading<Bytes>,
    /// How much of that others may hold too.
    pub(crate) sharing: Sharing,
    /// Memory of the host that it holds through the card.
    pub(crate) host_memory: Reading<Bytes>,
    /// How much of that others may hold too.
    pub(crate) host_sharing: Sharing,
    pub(crate) utilization: Utilization,
    pub(crate) used_for: Use,
}

impl Clients {
    /// Reads descriptors below this root, `/proc` but in tests, and what the kernel
    /// keeps of clients below `sysfs`.
    pub(crate) fn new(root: PathBuf, sysfs: PathBuf, people: Arc<dyn People>) -> Self {
        Self {
            origins: Origins::new(root.clone(), sysfs, people),
            root,
            sight: Sight::default(),
            has_own_memory: false,
            tells: false,
        }
    }

    /// Who uses the card now, of those who have it open.
    pub(crate) fn read(&mut self, card: &Card, found: &Found) -> Used {
        self.read_by(card, found, &Instant::now)
    }

    fn read_by(&mut self, card: &Card, found: &Found, now: &dyn Fn() -> Instant) -> Used {
        let (places, overfull) = places(card, found);
        self.origins.identify(places.iter().map(|(key, _)| key));
        let before = std::mem::take(&mut self.sight);
        let person = |key: &ProcessKey| self.origins.person(key);
        let look = Look::new(&self.root, card, now, &person, before);
        let (sight, mut partly, unread) = look.all(&places);
        partly.overfull.extend(overfull);
        self.sight = sight;
        let clients = &self.sight.clients;
        let held = clients.iter().map(|(id, client)| (*id, &client.holders));
        self.origins.follow(card, &held.collect());
        self.has_own_memory |= clients.values().any(|client| client.has_own);
        self.tells |= !clients.is_empty();
        let unseen = found.unseen.clone().or(unread);
        // What the rest of a process's descriptors do is not known, nor then what
        // all do together; that it uses the card is.
        let is_part = partly.is_any().then_some(TOO_MANY);

        let histories: Vec<&History> = clients.values().map(|client| &client.history).collect();
        let silent = self.silent();
        let share = |work| {
            if silent.is_empty() {
                device_share(card, &histories, work, unseen.as_deref().or(is_part))
            } else {
                Reading::Unsupported
            }
        };
        Used {
            utilization: share(Work::Main),
            encoder: share(Work::Encode),
            decoder: share(Work::Decode),
            processes: [self.processes(card, &partly), silent].concat(),
            has_own_memory: self.has_own_memory,
            sharers: self.sharers(),
            passed: self.passed(),
            fault: partly.fault(&card.name),
            unseen,
        }
    }

    /// Each client with the one process that answers for it. What was read of a process is
    /// the least that it does.
    fn processes(&self, card: &Card, partly: &Partly) -> Vec<Client> {
        let mut clients: BTreeMap<ProcessKey, Vec<&Sighting>> = BTreeMap::new();
        for (client, owner) in self.owned() {
            if let Owner::Process(owner) = owner {
                clients.entry(owner).or_default().push(client);
            }
        }
        for key in partly.overfull.iter().chain(&partly.waiting) {
            clients.entry(*key).or_default();
        }
        let process = |(key, clients): (ProcessKey, Vec<&Sighting>)| {
            let is_empty = clients.is_empty();
            let client = self.process(key, clients, card);
            let why: Reading<()> = match partly.waiting.contains(&key) {
                true => Reading::Failed(NOT_READ_YET.to_owned()),
                false if is_empty => Reading::Failed(TOO_MANY.to_owned()),
                false => return client,
            };
            let utilization = Utilization::unknown(&why);
            if !is_empty {
                return Client {
                    utilization,
                    ..client
                };
            }
            Client {
                memory: why.because(),
                host_memory: why.because(),
                utilization,
                ..client
            }
        };
        clients.into_iter().map(process).collect()
    }

    /// The processes that hold a client for which another process answers.
    fn sharers(&self) -> Vec<Sharer> {
        let owned = self.owned().filter_map(|(client, owner)| match owner {
            Owner::Process(owner) => Some((client, owner)),
            Owner::Passed(_) | Owner::Unknown => None,
        });
        let sharers = owned.flat_map(|(client, owner)| {
            let others = client.holders.iter().filter(move |key| **key != owner);
            others.map(move |key| Sharer {
                key: *key,
                with: owner.pid,
            })
        });
        sharers.collect()
    }

    /// Each process that holds a client of which the owner is not known, once.
    fn passed(&self) -> Vec<PassedClient> {
        let mut passed = BTreeMap::new();
        for (client, owner) in self.owned() {
            if let Owner::Passed(first) = owner {
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

    fn owned(&self) -> impl Iterator<Item = (&Sighting, Owner)> {
        let clients = self.sight.clients.iter();
        clients.map(|(id, client)| (client, self.origins.owner(*id, &client.holders)))
    }

    /// Who uses the card of those of whom its driver tells nothing (radeon, and
    /// others before the kernel had fdinfo): that they do, and no more.
    fn silent(&self) -> Vec<Client> {
        if self.tells {
            return Vec::new();
        }
        let client = |key| Client {
            key,
            memory: Reading::Unsupported,
            sharing: Sharing::NONE,
            host_memory: Reading::Unsupported,
            host_sharing: Sharing::NONE,
            utilization: Utilization::unknown(&Reading::Unsupported),
            used_for: Use::default(),
        };
        self.sight.silent().into_iter().map(client).collect()
    }

    fn process(&self, key: ProcessKey, clients: Vec<&Sighting>, card: &Card) -> Client {
        let histories: Vec<&History> = clients.iter().map(|client| &client.history).collect();
        let (host_memory, host_sharing) = held(clients.iter().map(|client| &client.host));
        let (memory, sharing) = if self.has_own_memory {
            held(clients.iter().map(|client| &client.own))
        } else {
            (host_memory.clone(), host_sharing)
        };
        Client {
            key,
            memory,
            sharing,
            host_memory,
            host_sharing,
            utilization: shares::utilization(engines::driver(&card.driver), &histories),
            used_for: Use {
                compute: clients.iter().any(|client| client.used_for.compute),
                graphics: clients.iter().any(|client| client.used_for.graphics),
                mps: false,
            },
        }
    }
}

/// What several clients of one process hold, and how much of that may be others'.
fn held<'a>(parts: impl Iterator<Item = &'a Held> + Clone) -> (Reading<Bytes>, Sharing) {
    let sharing = parts.clone().map(|part| part.sharing);
    let sharing = sharing.fold(Sharing::NONE, Sharing::and);
    (shares::sum(parts.map(|part| &part.bytes)), sharing)
}

/// How much of what each of these holds others may hold too; who shares nothing is
/// not in it.
pub(crate) fn sharing(clients: &[Client]) -> BTreeMap<ProcessKey, Sharing> {
    let sharing = clients.iter().map(|client| (client.key, client.sharing));
    sharing.filter(|(_, it)| *it != Sharing::NONE).into_map()
}

/// The descriptors that were found open on the card's files, and the processes
/// that have more than are read.
fn places(card: &Card, found: &Found) -> (Vec<Place>, BTreeSet<ProcessKey>) {
    let numbers: BTreeSet<DeviceNumber> = card.nodes.iter().map(|node| node.number).into_set();
    let mut places = Vec::new();
    let mut overfull = BTreeSet::new();
    for (key, opens) in &found.processes {
        let mut opens = opens.iter().filter(|open| numbers.contains(&open.number));
        places.extend(
            opens
                .by_ref()
                .take(DESCRIPTORS_MAX)
                .map(|open| (*key, *open)),
        );
        let is_any = places.last().is_some_and(|(last, _): &Place| last == key);
        if opens.next().is_some() || is_any && found.cut.contains(key) {
            overfull.insert(*key);
        }
    }
    (places, overfull)
}

/// What all clients do together. A part of them tells nothing of the card.
fn device_share(
    card: &Card,
    clients: &[&History],
    work: Work,
    unseen: Option<&str>,
) -> Reading<Percent> {
    let driver = engines::driver(&card.driver);
    let share = if clients.is_empty() && driver.tells(work) {
        Reading::Value(Percent(0))
    } else {
        shares::of_all(driver, clients, work)
    };
    match (share, unseen) {
        (Reading::Value(_), Some(why)) => Reading::Failed(why.to_owned()),
        (share, _) => share,
    }
}

#[cfg(test)]
mod tests;
