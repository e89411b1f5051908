//! Which person a client belongs to.
//!
//! A descriptor can be passed to a process of another person (SCM_RIGHTS), and stays
//! open there after its sender has closed it. The client behind it belongs to the person
//! in whose process it was first seen; one that a second person's process held since
//! belongs to nobody known.

use super::clients_file;
use super::look::Id;
use crate::backend::drm::card::Card;
use crate::procfs::stat::Stat;
use gpukill_proto::holders::FirstHolder;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Clients that no process was found to hold any more and that are remembered, of a
/// card: a descriptor may be on its way between two processes. Each takes 80 bytes.
const DEPARTED_MAX: usize = 1_024;

/// Reads the person that a process belongs to from its directory in `/proc`: who made its
/// user namespace, or else its real user.
pub(crate) type PersonOf = fn(&Path) -> Option<u32>;

/// The clients of one card, and the person that each belongs to.
pub(super) struct Origins {
    procfs: PathBuf,
    sysfs: PathBuf,
    person_of: PersonOf,
    clients: BTreeMap<Id, Origin>,
    /// The processes that hold clients, as far as they could be looked at.
    holders: BTreeMap<ProcessKey, Holder>,
    /// The greatest number of a client that was forgotten for want of room. Numbers
    /// only grow: a client with a smaller one may be one of those.
    forgotten: Option<u64>,
}

/// What is known of a process that holds a client.
#[derive(Debug, Clone, Copy)]
struct Holder {
    person: u32,
    /// It opens devices for others and keeps a copy.
    opens_for_others: bool,
}

#[derive(Debug, Clone, Copy)]
struct Origin {
    first: FirstHolder,
    was_passed: bool,
}

/// Who answers for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Process(ProcessKey),
    /// Processes of several persons held it. This one was the first that is known of.
    Passed(FirstHolder),
    /// The holders could not be looked at.
    Unknown,
}

impl Origins {
    pub(super) fn new(procfs: PathBuf, sysfs: PathBuf, person_of: PersonOf) -> Self {
        Self {
            procfs,
            sysfs,
            person_of,
            clients: BTreeMap::new(),
            holders: BTreeMap::new(),
            forgotten: None,
        }
    }

    /// Takes over which processes hold each client now.
    pub(super) fn follow(&mut self, card: &Card, held: &BTreeMap<Id, &BTreeSet<ProcessKey>>) {
        self.identify(held.values().copied().flatten());
        let is_new = |(id, holders): (&Id, &&BTreeSet<ProcessKey>)| {
            let is_unknown = id.number().is_some() && !self.clients.contains_key(id);
            is_unknown && !self.users(holders).is_empty()
        };
        let last_users = match held.iter().any(is_new) {
            true => clients_file::last_users(&self.sysfs, card),
            false => BTreeMap::new(),
        };
        for (id, holders) in held {
            let Some(number) = id.number() else { continue };
            let users = self.users(holders);
            let mut users = users.iter().map(|(key, holder)| (*key, holder.person));
            // Nobody uses it yet, or those who do could not be looked at.
            let Some((first, person)) = users.next() else {
                continue;
            };
            let origin = match self.clients.get(id) {
                Some(origin) => *origin,
                None => self.origin(number, first, person, holders, &last_users),
            };
            let is_anothers = |of: u32| origin.first.uid != Some(of);
            let was_passed = origin.was_passed
                || is_anothers(person)
                || users.any(|(_, person)| is_anothers(person));
            self.clients.insert(
                *id,
                Origin {
                    was_passed,
                    ..origin
                },
            );
        }
        self.forget(held);
    }

    /// The process that answers for a client that these have open: the oldest of its
    /// person, but for those that open devices for others and keep a copy.
    pub(super) fn owner(&self, id: Id, holders: &BTreeSet<ProcessKey>) -> Owner {
        let users = self.users(holders);
        let origin = self.clients.get(&id);
        match (origin, users.first()) {
            (Some(origin), _) if origin.was_passed => Owner::Passed(origin.first),
            (Some(origin), Some((oldest, holder))) if origin.first.uid == Some(holder.person) => {
                Owner::Process(*oldest)
            }
            // It has no number by which it could be known again.
            (None, Some((oldest, _))) => Owner::Process(*oldest),
            (Some(_), Some(_)) => Owner::Unknown,
            (_, None) => self.opener(holders).map_or(Owner::Unknown, Owner::Process),
        }
    }

    /// Where a client that was not met before comes from: these hold it.
    fn origin(
        &self,
        number: u64,
        first: ProcessKey,
        person: u32,
        holders: &BTreeSet<ProcessKey>,
        last_users: &BTreeMap<u64, u32>,
    ) -> Origin {
        if let Some(pid) = last_users.get(&number).copied()
            && !holders.iter().any(|holder| holder.pid == pid)
        {
            let directory = self.procfs.join(pid.to_string());
            let uid = (self.person_of)(&directory);
            if uid != Some(person) && !opens_for_others(&directory, pid, uid) {
                return Origin {
                    first: FirstHolder { pid, uid },
                    was_passed: true,
                };
            }
        }
        Origin {
            first: FirstHolder {
                pid: first.pid,
                uid: Some(person),
            },
            was_passed: self.forgotten.is_some_and(|greatest| number <= greatest),
        }
    }

    /// Those of the holders that could be looked at, but for those that keep a copy of
    /// what they opened for others, the oldest first.
    fn users(&self, holders: &BTreeSet<ProcessKey>) -> Vec<(ProcessKey, Holder)> {
        let known = holders
            .iter()
            .filter_map(|key| Some((*key, *self.holders.get(key)?)));
        let mut users: Vec<_> = known.filter(|(_, it)| !it.opens_for_others).collect();
        users.sort_by_key(|(key, _)| (key.start_ticks, key.pid));
        users
    }

    /// The oldest of those that open devices for others, where nobody else holds it.
    fn opener(&self, holders: &BTreeSet<ProcessKey>) -> Option<ProcessKey> {
        let are_known = holders.iter().all(|key| self.holders.contains_key(key));
        let oldest = holders.iter().min_by_key(|key| (key.start_ticks, key.pid));
        oldest.copied().filter(|_| are_known)
    }

    /// Looks at holders that were not seen before. A process keeps the person that it was
    /// first seen with: one that becomes another user is the same.
    fn identify<'a>(&mut self, holders: impl Iterator<Item = &'a ProcessKey>) {
        let mut before = std::mem::take(&mut self.holders);
        for key in holders {
            if self.holders.contains_key(key) {
                continue;
            }
            if let Some(holder) = before.remove(key).or_else(|| self.look_at(*key)) {
                self.holders.insert(*key, holder);
            }
        }
    }

    fn look_at(&self, key: ProcessKey) -> Option<Holder> {
        let directory = self.procfs.join(key.pid.to_string());
        let person = (self.person_of)(&directory)?;
        // Its pid may be another process's since.
        let is_still = Stat::read(&directory).is_ok_and(|it| it.start_ticks == key.start_ticks);
        is_still.then(|| Holder {
            person,
            opens_for_others: opens_for_others(&directory, key.pid, Some(person)),
        })
    }

    /// Forgets the oldest of those that nobody holds, where they are too many.
    fn forget(&mut self, held: &BTreeMap<Id, &BTreeSet<ProcessKey>>) {
        let departed = self.clients.keys().filter(|id| !held.contains_key(id));
        let too_many = departed.clone().count().saturating_sub(DEPARTED_MAX);
        let oldest: Vec<Id> = departed.take(too_many).copied().collect();
        for id in oldest {
            self.clients.remove(&id);
            self.forgotten = self.forgotten.max(id.number());
        }
    }
}

#[cfg(test)]
impl Origins {
    pub(super) fn remembered(&self) -> usize {
        self.clients.len()
    }
}

/// Whether a process opens devices for others: the init process, or logind. A name alone
/// says nothing: every process may call itself so.
fn opens_for_others(directory: &Path, pid: u32, person: Option<u32>) -> bool {
    let is_logind = || Stat::read(directory).is_ok_and(|stat| stat.name == "systemd-logind");
    pid == 1 || (person == Some(0) && is_logind())
}
