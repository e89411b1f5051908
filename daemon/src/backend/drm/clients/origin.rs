//! Which person a client belongs to.
//!
//! A descriptor can be passed to a process of another person (SCM_RIGHTS), and stays
//! open there after its sender has closed it. The client behind it belongs to the person
//! in whose process it was first seen; one that a second person's process held since
//! belongs to nobody known. A person may have several users: a second one is somebody
//! else only where both are known to be of different persons.

use super::clients_file;
use super::look::Id;
use crate::backend::drm::card::Card;
use crate::procfs::stat::Stat;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::holders::FirstHolder;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clients that no process was found to hold any more and that are remembered, of a
/// card: a descriptor may be on its way between two processes. Each takes 120 bytes.
const DEPARTED_MAX: usize = 1_024;

/// Accounts that are remembered beside a client's first: one of another person is enough.
/// The others are of the processes that hold it now.
const ACCOUNTS_MAX: usize = 16;

/// The user that a process belongs to, and the person in whose slice of systemd it runs.
/// One person may have several: subordinate users, and those that programs change to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) slice: Option<u32>,
}

/// Tells which person a process belongs to.
pub(crate) trait People: Send + Sync {
    /// The account of the process with this directory in `/proc`; `None` where it cannot be
    /// read.
    fn account(&self, directory: &Path) -> Option<Account>;

    /// The person that has this account; `None` as long as that is not known. Never waits.
    fn person(&self, account: Account) -> Option<u32>;
}

/// The clients of one card, and the person that each belongs to.
pub(super) struct Origins {
    procfs: PathBuf,
    sysfs: PathBuf,
    people: Arc<dyn People>,
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
    account: Account,
    /// It opens devices for others and keeps a copy.
    opens_for_others: bool,
}

/// Where a client comes from, and the accounts that held it since.
#[derive(Debug, Clone)]
struct Origin {
    first_pid: u32,
    /// `None` of a process that had ended before it was looked at.
    first: Option<Account>,
    /// It may be one that was forgotten: its first holder is not known.
    was_forgotten: bool,
    /// Accounts that are not known to be of the first one's person.
    others: Vec<Account>,
}

/// Whether two accounts are of one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    Same,
    /// Not before a name service answers.
    Unknown,
    Different,
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
    pub(super) fn new(procfs: PathBuf, sysfs: PathBuf, people: Arc<dyn People>) -> Self {
        Self {
            procfs,
            sysfs,
            people,
            clients: BTreeMap::new(),
            holders: BTreeMap::new(),
            forgotten: None,
        }
    }

    /// Takes over which processes hold each client now, of those that were identified.
    pub(super) fn follow(&mut self, card: &Card, held: &BTreeMap<Id, &BTreeSet<ProcessKey>>) {
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
            // Nobody uses it yet, or those who do could not be looked at.
            let Some((first, holder)) = users.first() else {
                continue;
            };
            let mut origin = match self.clients.remove(id) {
                Some(origin) => origin,
                None => self.origin(number, *first, holder.account, holders, &last_users),
            };
            let now = users.iter().map(|(_, holder)| holder.account);
            self.remember(&mut origin, now);
            self.clients.insert(*id, origin);
        }
        self.forget(held);
    }

    /// The process that answers for a client that these have open: the oldest of its
    /// person, but for those that open devices for others and keep a copy.
    pub(super) fn owner(&self, id: Id, holders: &BTreeSet<ProcessKey>) -> Owner {
        let users = self.users(holders);
        // One without a number could not be known again, and comes from its holder.
        let relation = self.clients.get(&id).map(|origin| {
            let now = users.iter().map(|(_, holder)| holder.account);
            (origin, self.relation(origin, now))
        });
        match (relation, users.first()) {
            (Some((origin, Relation::Different)), _) => Owner::Passed(self.first_holder(origin)),
            (Some((_, Relation::Unknown)), Some(_)) => Owner::Unknown,
            (Some((_, Relation::Same)) | None, Some((oldest, _))) => Owner::Process(*oldest),
            (_, None) => self.opener(holders).map_or(Owner::Unknown, Owner::Process),
        }
    }

    /// Keeps the accounts that are not known to be of the first one's person.
    fn remember(&self, origin: &mut Origin, now: impl Iterator<Item = Account>) {
        let Some(first) = origin.first else { return };
        let is_open = |other: &Account| self.compare(first, *other) != Relation::Same;
        origin.others.retain(is_open);
        for other in now {
            let is_new = !origin.others.contains(&other) && is_open(&other);
            if is_new && origin.others.len() < ACCOUNTS_MAX {
                origin.others.push(other);
            }
        }
    }

    /// Whether all that held a client, and those that do now, are of the first one's person.
    fn relation(&self, origin: &Origin, now: impl Iterator<Item = Account>) -> Relation {
        let Some(first) = origin.first.filter(|_| !origin.was_forgotten) else {
            return Relation::Different;
        };
        let all = origin.others.iter().copied().chain(now);
        all.map(|other| self.compare(first, other))
            .max()
            .unwrap_or(Relation::Same)
    }

    fn compare(&self, one: Account, other: Account) -> Relation {
        if one == other {
            return Relation::Same;
        }
        match (self.people.person(one), self.people.person(other)) {
            (Some(one), Some(other)) if one != other => Relation::Different,
            (Some(_), Some(_)) => Relation::Same,
            // What one user does is one person's until something else is known.
            (None, _) | (_, None) if one.user == other.user => Relation::Same,
            (None, _) | (_, None) => Relation::Unknown,
        }
    }

    fn first_holder(&self, origin: &Origin) -> FirstHolder {
        let uid = |account: Account| self.people.person(account).unwrap_or(account.user);
        FirstHolder {
            pid: origin.first_pid,
            uid: origin.first.map(uid),
        }
    }

    /// Where a client that was not met before comes from: these hold it.
    fn origin(
        &self,
        number: u64,
        first: ProcessKey,
        account: Account,
        holders: &BTreeSet<ProcessKey>,
        last_users: &BTreeMap<u64, u32>,
    ) -> Origin {
        let origin = |first_pid, first| Origin {
            first_pid,
            first,
            was_forgotten: false,
            others: Vec::new(),
        };
        if let Some(pid) = last_users.get(&number).copied()
            && !holders.iter().any(|holder| holder.pid == pid)
        {
            let directory = self.procfs.join(pid.to_string());
            let last = self.people.account(&directory);
            if last != Some(account) && !opens_for_others(&directory, pid, last) {
                return origin(pid, last);
            }
        }
        Origin {
            was_forgotten: self.forgotten.is_some_and(|greatest| number <= greatest),
            ..origin(first.pid, Some(account))
        }
    }

    /// Those of the holders that could be looked at, but for those that keep a copy of
    /// what they opened for others, the oldest first.
    fn users(&self, holders: &BTreeSet<ProcessKey>) -> Vec<(ProcessKey, Holder)> {
        let known = holders
            .iter()
            .filter_map(|key| Some((*key, *self.holders.get(key)?)));
        let mut users: Vec<_> = known.filter(|(_, it)| !it.opens_for_others).collect();
        users.sort_indirect_by_key(|(key, _)| (key.start_ticks, key.pid));
        users
    }

    /// The oldest of those that open devices for others, where nobody else holds it.
    fn opener(&self, holders: &BTreeSet<ProcessKey>) -> Option<ProcessKey> {
        let are_known = holders.iter().all(|key| self.holders.contains_key(key));
        let oldest = holders.iter().min_by_key(|key| (key.start_ticks, key.pid));
        oldest.copied().filter(|_| are_known)
    }

    /// The person that a process belongs to, as far as that is known: what one opens leaves
    /// others their room.
    pub(super) fn person(&self, key: &ProcessKey) -> Option<u32> {
        let account = self.holders.get(key)?.account;
        Some(self.people.person(account).unwrap_or(account.user))
    }

    /// Looks at holders that were not seen before. A process keeps the account that it was
    /// first seen with: one that becomes another user is the same.
    pub(super) fn identify<'a>(&mut self, holders: impl Iterator<Item = &'a ProcessKey>) {
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
        let account = self.people.account(&directory)?;
        // Its pid may be another process's since.
        let is_still = Stat::read(&directory).is_ok_and(|it| it.start_ticks == key.start_ticks);
        is_still.then(|| Holder {
            account,
            opens_for_others: opens_for_others(&directory, key.pid, Some(account)),
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

/// Whether a process opens devices for others: the init process, or logind, which is root
/// in nobody's slice. A name alone says nothing: every process may call itself so.
fn opens_for_others(directory: &Path, pid: u32, account: Option<Account>) -> bool {
    let is_logind = || Stat::read(directory).is_ok_and(|stat| stat.name == "systemd-logind");
    let is_root = |it: Account| it.user == 0 && it.slice.is_none_or(|slice| slice == 0);
    pid == 1 || (account.is_some_and(is_root) && is_logind())
}
