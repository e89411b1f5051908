//! Decides which person a client belongs to.
//!
//! A descriptor can be passed to a process of another person (SCM_RIGHTS), and stays open there
//! after its sender has closed it. A client belongs to the person of the process that was first
//! observed holding it; once a process of a second person has held it, its owner is unknown. A
//! person may have several users: two users count as different persons only where both persons are
//! known.

use super::clients_file;
use super::scan::ClientId;
use crate::backend::drm::card::DrmCard;
use crate::procfs::is_in_system_unit;
use crate::procfs::stat::Stat;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::holders::FirstHolder;
use gpukill_proto::model::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clients without a holder that are remembered for a card: a descriptor may be on its way between
/// two processes. Each takes 120 bytes.
const DEPARTED_MAX: usize = 1_024;

/// Accounts that are remembered beside a client's first account: one of another person is enough.
/// The accounts of current holders are added to these.
const ACCOUNTS_MAX: usize = 16;

/// The user of a process, and the person that owns its systemd slice. One person may have several
/// users: subordinate ones, and those that programs switch to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessAccount {
    pub(crate) user: u32,
    pub(crate) slice: Option<u32>,
}

/// Finds the person that a process belongs to.
pub(crate) trait PersonLookup: Send + Sync {
    /// The account of the process with this directory in `/proc`; `None` if it cannot be read.
    fn account(&self, directory: &Path) -> Option<ProcessAccount>;

    /// The person that has this account; `None` while unknown. Never blocks.
    fn person(&self, account: ProcessAccount) -> Option<u32>;
}

pub(super) struct ClientOrigins {
    procfs: PathBuf,
    sysfs: PathBuf,
    persons: Arc<dyn PersonLookup>,
    clients: BTreeMap<ClientId, ClientOrigin>,
    /// The processes that hold clients, as far as they could be inspected.
    holders: BTreeMap<ProcessKey, ClientHolder>,
    /// The greatest number of a client that was forgotten to limit memory. Numbers only grow: a
    /// client with a smaller number may be a forgotten one.
    greatest_forgotten: Option<u64>,
}

/// A process that holds a client.
#[derive(Debug, Clone, Copy)]
struct ClientHolder {
    account: ProcessAccount,
    /// The process opens devices for others and keeps a copy.
    opens_for_others: bool,
}

/// The first holder of a client, and the accounts that have held it since.
#[derive(Debug, Clone)]
struct ClientOrigin {
    first_pid: u32,
    /// `None` if the process ended before it was inspected.
    first_account: Option<ProcessAccount>,
    /// The client may be a forgotten one: its first holder is unknown.
    was_forgotten: bool,
    /// Accounts that are not known to belong to the first account's person.
    other_accounts: Vec<ProcessAccount>,
}

/// Whether two accounts belong to one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AccountRelation {
    Same,
    /// Unknown until a name service answers.
    Unknown,
    Different,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientOwner {
    Process(ProcessKey),
    /// Processes of several persons held the client. This was the first known holder.
    Passed(FirstHolder),
    /// The holders could not be inspected.
    Unknown,
}

impl ClientOrigins {
    pub(super) fn new(procfs: PathBuf, sysfs: PathBuf, persons: Arc<dyn PersonLookup>) -> Self {
        Self {
            procfs,
            sysfs,
            persons,
            clients: BTreeMap::new(),
            holders: BTreeMap::new(),
            greatest_forgotten: None,
        }
    }

    /// Updates the clients from their current holders that were identified.
    pub(super) fn update(
        &mut self,
        card: &DrmCard,
        held: &BTreeMap<ClientId, &BTreeSet<ProcessKey>>,
    ) {
        let is_new = |(id, holders): (&ClientId, &&BTreeSet<ProcessKey>)| {
            let is_unknown = id.number().is_some() && !self.clients.contains_key(id);
            is_unknown && !self.active_users(holders).is_empty()
        };
        let last_users = match held.iter().any(is_new) {
            true => clients_file::last_users(&self.sysfs, card),
            false => BTreeMap::new(),
        };
        for (id, holders) in held {
            let Some(number) = id.number() else { continue };
            let users = self.active_users(holders);
            // No process uses the client yet, or its users could not be inspected.
            let Some((first, holder)) = users.first() else {
                continue;
            };
            let mut origin = match self.clients.remove(id) {
                Some(origin) => origin,
                None => self.find_origin(number, *first, holder.account, holders, &last_users),
            };
            let now = users.iter().map(|(_, holder)| holder.account);
            self.record_accounts(&mut origin, now);
            self.clients.insert(*id, origin);
        }
        self.forget_departed(held);
    }

    /// The owner of a client with these holders: the oldest process of its person, except processes
    /// that open devices for others and keep a copy.
    pub(super) fn owner(&self, id: ClientId, holders: &BTreeSet<ProcessKey>) -> ClientOwner {
        let users = self.active_users(holders);
        // A client without a number cannot be recognized again, and belongs to its holder.
        let relation = self.clients.get(&id).map(|origin| {
            let now = users.iter().map(|(_, holder)| holder.account);
            (origin, self.relation(origin, now))
        });
        match (relation, users.first()) {
            (Some((origin, AccountRelation::Different)), _) => {
                ClientOwner::Passed(self.first_holder(origin))
            }
            (Some((_, AccountRelation::Unknown)), Some(_)) => ClientOwner::Unknown,
            (Some((_, AccountRelation::Same)) | None, Some((oldest, _))) => {
                ClientOwner::Process(*oldest)
            }
            (_, None) => self
                .oldest_opener(holders)
                .map_or(ClientOwner::Unknown, ClientOwner::Process),
        }
    }

    /// Keeps the accounts that are not known to belong to the first account's person.
    fn record_accounts(
        &self,
        origin: &mut ClientOrigin,
        now: impl Iterator<Item = ProcessAccount>,
    ) {
        let Some(first) = origin.first_account else {
            return;
        };
        let is_open =
            |other: &ProcessAccount| self.compare_accounts(first, *other) != AccountRelation::Same;
        origin.other_accounts.retain(is_open);
        for other in now {
            let is_new = !origin.other_accounts.contains(&other) && is_open(&other);
            if is_new && origin.other_accounts.len() < ACCOUNTS_MAX {
                origin.other_accounts.push(other);
            }
        }
    }

    /// Whether all former and current holders of a client belong to the first account's person.
    fn relation(
        &self,
        origin: &ClientOrigin,
        now: impl Iterator<Item = ProcessAccount>,
    ) -> AccountRelation {
        let Some(first) = origin.first_account.filter(|_| !origin.was_forgotten) else {
            return AccountRelation::Different;
        };
        let all = origin.other_accounts.iter().copied().chain(now);
        all.map(|other| self.compare_accounts(first, other))
            .max()
            .unwrap_or(AccountRelation::Same)
    }

    fn compare_accounts(&self, one: ProcessAccount, other: ProcessAccount) -> AccountRelation {
        if one == other {
            return AccountRelation::Same;
        }
        match (self.persons.person(one), self.persons.person(other)) {
            (Some(one), Some(other)) if one != other => AccountRelation::Different,
            (Some(_), Some(_)) => AccountRelation::Same,
            // Two processes of one user count as one person until the contrary is known.
            (None, _) | (_, None) if one.user == other.user => AccountRelation::Same,
            (None, _) | (_, None) => AccountRelation::Unknown,
        }
    }

    fn first_holder(&self, origin: &ClientOrigin) -> FirstHolder {
        let uid = |account: ProcessAccount| self.persons.person(account).unwrap_or(account.user);
        FirstHolder {
            pid: origin.first_pid,
            uid: origin.first_account.map(uid),
        }
    }

    /// The origin of a new client with these holders.
    fn find_origin(
        &self,
        number: u64,
        first: ProcessKey,
        account: ProcessAccount,
        holders: &BTreeSet<ProcessKey>,
        last_users: &BTreeMap<u64, u32>,
    ) -> ClientOrigin {
        let origin = |first_pid, first| ClientOrigin {
            first_pid,
            first_account: first,
            was_forgotten: false,
            other_accounts: Vec::new(),
        };
        if let Some(pid) = last_users.get(&number).copied()
            && !holders.iter().any(|holder| holder.pid == pid)
        {
            let directory = self.procfs.join(pid.to_string());
            let last = self.persons.account(&directory);
            if last != Some(account) && !opens_for_others(&directory, pid, last) {
                return origin(pid, last);
            }
        }
        ClientOrigin {
            was_forgotten: self
                .greatest_forgotten
                .is_some_and(|greatest| number <= greatest),
            ..origin(first.pid, Some(account))
        }
    }

    /// The holders that could be inspected, oldest first, without those that keep a copy of a
    /// device opened for others.
    fn active_users(&self, holders: &BTreeSet<ProcessKey>) -> Vec<(ProcessKey, ClientHolder)> {
        let known = holders
            .iter()
            .filter_map(|key| Some((*key, *self.holders.get(key)?)));
        let mut users: Vec<_> = known.filter(|(_, it)| !it.opens_for_others).collect();
        users.sort_indirect_by_key(|(key, _)| (key.start_ticks, key.pid));
        users
    }

    /// The oldest process that opens devices for others, if no other process holds the client.
    fn oldest_opener(&self, holders: &BTreeSet<ProcessKey>) -> Option<ProcessKey> {
        let are_known = holders.iter().all(|key| self.holders.contains_key(key));
        let oldest = holders.iter().min_by_key(|key| (key.start_ticks, key.pid));
        oldest.copied().filter(|_| are_known)
    }

    /// The person of a process, as far as known: the client takes the quota of that person.
    pub(super) fn person(&self, key: &ProcessKey) -> Option<u32> {
        let account = self.holders.get(key)?.account;
        Some(self.persons.person(account).unwrap_or(account.user))
    }

    /// Inspects new holders. A process keeps the account of its first inspection: a process that
    /// changes its user is the same process.
    pub(super) fn inspect_holders<'a>(&mut self, holders: impl Iterator<Item = &'a ProcessKey>) {
        let mut before = std::mem::take(&mut self.holders);
        for key in holders {
            if self.holders.contains_key(key) {
                continue;
            }
            if let Some(holder) = before.remove(key).or_else(|| self.inspect_holder(*key)) {
                self.holders.insert(*key, holder);
            }
        }
    }

    fn inspect_holder(&self, key: ProcessKey) -> Option<ClientHolder> {
        let directory = self.procfs.join(key.pid.to_string());
        let account = self.persons.account(&directory)?;
        // Its pid may belong to another process now.
        let is_still = Stat::read(&directory).is_ok_and(|it| it.start_ticks == key.start_ticks);
        is_still.then(|| ClientHolder {
            account,
            opens_for_others: opens_for_others(&directory, key.pid, Some(account)),
        })
    }

    /// Forgets the oldest clients without holders, where they are too many.
    fn forget_departed(&mut self, held: &BTreeMap<ClientId, &BTreeSet<ProcessKey>>) {
        let departed = self.clients.keys().filter(|id| !held.contains_key(id));
        let too_many = departed.clone().count().saturating_sub(DEPARTED_MAX);
        let oldest: Vec<ClientId> = departed.take(too_many).copied().collect();
        for id in oldest {
            self.clients.remove(&id);
            self.greatest_forgotten = self.greatest_forgotten.max(id.number());
        }
    }
}

#[cfg(test)]
impl ClientOrigins {
    pub(super) fn origin_count(&self) -> usize {
        self.clients.len()
    }
}

/// Whether a process opens devices for others: the init process, or logind, which is root and in
/// its own unit. A name alone proves nothing: every process may take that name, and root of a
/// container is no logind of the host.
fn opens_for_others(directory: &Path, pid: u32, account: Option<ProcessAccount>) -> bool {
    let is_logind = || Stat::read(directory).is_ok_and(|stat| stat.name == "systemd-logind");
    let is_root = account.is_some_and(|it| it.user == 0);
    pid == 1 || (is_root && is_logind() && is_in_system_unit(directory, "systemd-logind.service"))
}
