//! One look at the descriptors that are open on a card: which of them are read,
//! and which client is behind each.
//!
//! A driver may take locks to answer, so each client is read through one of its
//! descriptors; the others are asked again only once in a while whether they are
//! still of the same client.

use super::bounds::{Budget, CLIENTS_MAX, Partly, rooms};
use super::counter::History;
use super::shares::sum;
use crate::backend::drm::card::Card;
use crate::backend::drm::engines::{self, Driver, Memory, Role};
use crate::backend::drm::fdinfo::{self, FdInfo, Region, TEXT_MAX};
use crate::holders::{DeviceNumber, Open};
use crate::procfs::file::{failed, read_at_most};
use gpukill_policy::memory::Sharing;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ProcessKey, Use};
use gpukill_proto::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a descriptor is believed to be of the client that it was of.
pub(super) const BELIEVED: Duration = Duration::from_secs(10);

/// A descriptor of a process.
pub(super) type Place = (ProcessKey, Open);

/// What a descriptor was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    what: What,
    at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Of this client.
    Client(Id),
    /// Of a client of this card of which its driver tells nothing at all.
    Silent,
    /// Of none of this card.
    Foreign,
}

/// What tells a client from the others of its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    /// As the driver numbers it: for each device, and without a PCI address for
    /// each device file. Numbers grow with each descriptor that is opened.
    Told(u64, Option<DeviceNumber>),
    /// It has none. Copies of such a descriptor cannot be known for the same
    /// client: what they do counts for each.
    Untold(Place),
}

/// A client, as of its last reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    by: Place,
    /// Who has it open.
    pub(super) holders: BTreeSet<ProcessKey>,
    pub(super) history: History,
    /// The card's own memory that it holds.
    pub(super) own: Held,
    /// Memory of the host that it holds through the card.
    pub(super) host: Held,
    /// Its driver tells of memory that is the card's own.
    pub(super) has_own: bool,
    pub(super) used_for: Use,
}

/// Memory of one kind that a client holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: Reading<Bytes>,
    /// How much of it other clients may hold too.
    pub(super) sharing: Sharing,
}

/// What one look leaves for the next.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) clients: BTreeMap<Id, Sighting>,
    seen: BTreeMap<Place, Seen>,
}

impl Sight {
    /// Those who have clients of which nothing is told.
    pub(super) fn silent(&self) -> BTreeSet<ProcessKey> {
        let seen = self.seen.iter();
        let silent = seen.filter(|(_, seen)| seen.what == What::Silent);
        silent.map(|((key, _), _)| *key).into_set()
    }
}

/// A look in progress.
pub(super) struct Look<'a> {
    root: &'a Path,
    card: &'a Card,
    driver: &'static Driver,
    now: &'a dyn Fn() -> Instant,
    before: Sight,
    sight: Sight,
    unseen: Option<String>,
    partly: Partly,
    person: &'a dyn Fn(&ProcessKey) -> Option<u32>,
    /// So many more clients each person has room for.
    rooms: BTreeMap<Option<u32>, usize>,
}

impl<'a> Look<'a> {
    pub(super) fn new(
        root: &'a Path,
        card: &'a Card,
        now: &'a dyn Fn() -> Instant,
        person: &'a dyn Fn(&ProcessKey) -> Option<u32>,
        before: Sight,
    ) -> Self {
        Self {
            root,
            card,
            driver: engines::driver(&card.driver),
            now,
            before,
            sight: Sight::default(),
            unseen: None,
            partly: Partly::default(),
            person,
            rooms: BTreeMap::new(),
        }
    }

    /// Looks at these: first at those that clients were read by, so that the
    /// others need not be read. Also tells of which processes not all was read, and why
    /// there may be more.
    pub(super) fn all(mut self, places: &[Place]) -> (Sight, Partly, Option<String>) {
        self.rooms = rooms(places, self.person, CLIENTS_MAX);
        let clients = self.before.clients.values();
        let readers: BTreeSet<Place> = clients.map(|client| client.by).into_set();
        let (mut readers, mut others): (Vec<&Place>, Vec<&Place>) =
            places.iter().partition(|place| readers.contains(place));
        // Those that were never read come first, then those that wait longest.
        let age = |place: &&Place| self.before.seen.get(*place).map(|seen| seen.at);
        readers.sort_indirect_by_key(age);
        let mut budget = Budget::of_clients(&readers, self.person);
        // Those of whose turn it is not may be found by those that are read.
        let (now, later): (Vec<&Place>, Vec<&Place>) =
            readers.into_iter().partition(|place| budget.take(place.0));
        for place in now {
            self.read(*place);
        }
        for place in later {
            self.keep_client(*place);
        }
        others.retain(|place| !self.is_believed(place));
        others.sort_indirect_by_key(|place| self.before.seen.get(*place).map(|seen| seen.at));
        let mut budget = Budget::of_others(&others, self.person);
        for place in others {
            // What was read before this one may tell of it.
            if self.is_believed(place) {
                continue;
            }
            if budget.take(place.0) {
                self.read(*place);
            } else if !self.takes_over(place) {
                self.partly.waiting.insert(place.0);
            }
        }
        (self.sight, self.partly, self.unseen)
    }

    /// Keeps the client that was read through this descriptor as it was.
    fn keep_client(&mut self, place: Place) {
        let Some(seen) = self.before.seen.get(&place) else {
            return;
        };
        self.partly.waiting.insert(place.0);
        if let What::Client(id) = seen.what
            && !self.sight.clients.contains_key(&id)
            && let Some(before) = self.before.clients.remove(&id)
            && self.takes_room(&place)
        {
            let holders = BTreeSet::from([place.0]);
            self.sight
                .clients
                .insert(id, Sighting { holders, ..before });
        }
        self.takes_over(&place);
    }

    /// Whether its person has room for one more client.
    fn takes_room(&mut self, place: &Place) -> bool {
        let room = self.rooms.entry((self.person)(&place.0)).or_default();
        let has_room = *room > 0;
        if has_room {
            *room -= 1;
        } else {
            self.partly.overfull.insert(place.0);
        }
        has_room
    }

    /// Whether it is known without reading whose this descriptor is.
    fn is_believed(&mut self, place: &Place) -> bool {
        let is_young = self
            .before
            .seen
            .get(place)
            .is_some_and(|seen| (self.now)().saturating_duration_since(seen.at) < BELIEVED);
        is_young && self.takes_over(place)
    }

    /// Keeps what a descriptor was when it was last read, where that is known and its
    /// client was found.
    fn takes_over(&mut self, place: &Place) -> bool {
        let Some(seen) = self.before.seen.get(place) else {
            return false;
        };
        if let What::Client(id) = seen.what {
            // Its client was not found where it was: perhaps it is here.
            let Some(client) = self.sight.clients.get_mut(&id) else {
                return false;
            };
            client.holders.insert(place.0);
        }
        self.sight.seen.insert(*place, seen.clone());
        true
    }

    fn read(&mut self, place: Place) {
        let bytes = read_at_most(&file(self.root, "fdinfo", &place), TEXT_MAX as u64 + 1);
        // The moment of this reading: the whole look may take long.
        let at = (self.now)();
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                self.unseen = self.unseen.take().or(unseen(error));
                return;
            }
        };
        let told = fdinfo::parse(&bytes);
        let what = match &told {
            Some(told) if is_of(told, self.card) => What::Client(Id::of(told, place)),
            None if !fdinfo::is_drm(&bytes) && self.renders(&place) => What::Silent,
            Some(_) | None => What::Foreign,
        };
        self.sight.seen.insert(place, Seen { what, at });
        if let (Some(told), What::Client(id)) = (told, what) {
            self.meet(id, &told, place, at);
        }
    }

    /// Whether this is open on the card's render node still. Its other node is not
    /// asked for: who shows pictures or listens for changes has that open, too, and
    /// may use nothing of the card.
    fn renders(&self, place: &Place) -> bool {
        let mut nodes = self.card.nodes.iter();
        nodes.any(|node| node.number == place.1.number && node.name.starts_with("renderD"))
            && std::fs::metadata(file(self.root, "fd", place)).is_ok_and(|now| {
                let number = now.rdev();
                let number = (rustix::fs::major(number), rustix::fs::minor(number));
                number == (place.1.number.major, place.1.number.minor)
            })
    }

    /// Takes what a descriptor told of its client, unless another one did before.
    fn meet(&mut self, id: Id, told: &FdInfo, place: Place, at: Instant) {
        if let Some(client) = self.sight.clients.get_mut(&id) {
            client.holders.insert(place.0);
            return;
        }
        if !self.takes_room(&place) {
            return;
        }
        let history = match self.before.clients.remove(&id) {
            Some(before) => before.history.next(told, at, self.driver),
            None => History::first(told, at),
        };
        let is_own = |name: &String| self.driver.memory(name) == Memory::Own;
        let sighting = Sighting {
            by: place,
            holders: BTreeSet::from([place.0]),
            history,
            own: Held::of(told, self.driver, Memory::Own),
            host: Held::of(told, self.driver, Memory::Host),
            has_own: told.regions.keys().any(is_own),
            used_for: used_for(told, self.driver),
        };
        self.sight.clients.insert(id, sighting);
    }
}

impl Held {
    fn of(told: &FdInfo, driver: &Driver, memory: Memory) -> Self {
        if let Some(why) = told.too_much {
            return Self {
                bytes: Reading::Failed(why.to_owned()),
                sharing: Sharing::NONE,
            };
        }
        let regions = told.regions.iter();
        let regions = regions.filter(|(name, _)| driver.memory(name) == memory);
        let regions: Vec<&Region> = regions.map(|(_, region)| region).collect();
        let parts = regions.iter().map(|it| it.resident().clone().map(Bytes));
        let bytes = sum(&parts.collect::<Vec<_>>());
        let mut shared = regions.iter().map(|it| it.resident_and_shared());
        let shared = shared.try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)));
        let known = bytes.known().copied();
        Self {
            sharing: known.map_or(Sharing::NONE, |held| Sharing::of(held, shared.map(Bytes))),
            bytes,
        }
    }
}

impl Id {
    fn of(told: &FdInfo, place: Place) -> Self {
        let number = told.pdev.is_none().then_some(place.1.number);
        told.client
            .map_or(Self::Untold(place), |id| Self::Told(id, number))
    }

    /// Its number, where its driver gives it one.
    pub(super) const fn number(self) -> Option<u64> {
        match self {
            Self::Told(number, _) => Some(number),
            Self::Untold(_) => None,
        }
    }
}

/// A descriptor's entry in one of the two directories that have them.
fn file(root: &Path, directory: &str, (key, open): &Place) -> PathBuf {
    let process = root.join(key.pid.to_string());
    let task = match open.thread {
        Some(thread) => process.join("task").join(thread.to_string()),
        None => process,
    };
    task.join(directory).join(open.fd.to_string())
}

/// Whoever has it open was found, and what is behind the descriptor is shown only to
/// whom the kernel lets trace it (`proc(5)`), be it another user's or not.
const NOT_PERMITTED: &str = "a process that has it open cannot be looked into: gpukilld lacks \
                             CAP_SYS_PTRACE, or /proc is mounted with hidepid=";

/// Why there may be clients that were not seen; `None` where only this
/// descriptor is gone, or its process.
fn unseen(error: io::Error) -> Option<String> {
    let is_gone = error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    if is_gone {
        return None;
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Some(NOT_PERMITTED.into());
    }
    let why: Reading<()> = failed(error);
    let why = why.failure().unwrap_or_default();
    Some(format!("a descriptor cannot be read: {why}"))
}

/// Whether this is of this card: a descriptor may have been closed since it was
/// found, and its number may be another file's now.
fn is_of(told: &FdInfo, card: &Card) -> bool {
    match &told.pdev {
        Some(pdev) => card.pci.as_ref().is_some_and(|pci| pci.slot == *pdev),
        None => engines::is_same(&card.driver, &told.driver),
    }
}

/// By the engines that it ever used.
fn used_for(told: &FdInfo, driver: &Driver) -> Use {
    let used = |role| {
        told.engines.iter().any(|(name, engine)| {
            let counters = [&engine.busy, &engine.cycles];
            let mut counters = counters.into_iter().filter_map(|counter| counter.known());
            driver.role(name) == role && counters.any(|count| *count > 0)
        })
    };
    Use {
        compute: used(Role::Compute),
        graphics: used(Role::Graphics),
        mps: false,
    }
}

#[cfg(test)]
impl Sight {
    /// How many descriptors were read so far.
    pub(super) fn read(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_hide_a_client_is_said() {
        let cases = [
            (rustix::io::Errno::NOENT, None),
            (rustix::io::Errno::SRCH, None),
            (rustix::io::Errno::ACCESS, Some(NOT_PERMITTED)),
            (rustix::io::Errno::PERM, Some(NOT_PERMITTED)),
            (
                rustix::io::Errno::IO,
                Some("a descriptor cannot be read: Input/output error (os error 5)"),
            ),
        ];
        for (errno, expected) in cases {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(unseen(error).as_deref(), expected, "{errno}");
        }
    }
}
