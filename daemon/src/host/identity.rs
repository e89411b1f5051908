//! What is known of one process, and how a row of a snapshot is filled with it.

use super::connections::Affiliation;
use super::users::Users;
use gpukill_policy::access::Uids;
use gpukill_policy::job::Kin;
use gpukill_policy::kill::protected::NameFacts;
use gpukill_policy::owner::{self, owner};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{GpuProcess, Job, Parent, Place, ProcessKey};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::sync::Arc;

/// Who a pid is now. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: ProcessKey,
    pub(super) usage: Usage,
    pub(super) person: Arc<Person>,
}

/// What a process takes of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) memory: Reading<Bytes>,
    /// Unsupported at first sight: there is no "since the last poll" yet.
    pub(super) cpu: Reading<Percent>,
}

/// What stays the same of a process mostly, and is read seldom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) started_at: Reading<Timestamp>,
    pub(super) uids: Reading<Uids>,
    pub(super) login_uid: Reading<Option<u32>>,
    pub(super) namespace_owner: Reading<Option<u32>>,
    /// The user in whose slice it is.
    pub(super) slice: Option<u32>,
    /// Whether it is part of an active session at a seat.
    pub(super) at_seat: Reading<bool>,
    /// The first uid that is a person's.
    pub(super) uid_min: u32,
    pub(super) name: String,
    pub(super) executable: Reading<String>,
    pub(super) command: Reading<String>,
    pub(super) inner_pid: Reading<Option<u32>>,
    pub(super) place: Place,
    /// Whom the label of its container names.
    pub(super) label: Option<String>,
    /// What its job is charged to, as it said first. `None` is not known.
    pub(super) account: Option<String>,
    pub(super) job: Reading<Job>,
    pub(super) parents: Vec<Parent>,
    /// The notebook servers above it.
    pub(super) notebook_servers: Vec<ProcessKey>,
}

impl Identity {
    /// Fills in everything that says who the process is, whose, and where.
    pub(crate) fn describe(&self, row: &mut GpuProcess, users: &Users) {
        let person = &*self.person;
        row.start_ticks = Reading::Value(self.key.start_ticks);
        row.started_at = person.started_at.clone();
        row.uid = person.uids.clone().map(|uids| uids.real);
        row.user = name_of(row.uid.clone(), users);
        let behind = users.behind(&row.uid, &person.namespace_owner, person.slice);
        row.owner = owner(owner::Facts {
            uid: &row.uid,
            user: &row.user,
            behind: &behind,
            behind_user: &users.name_of_some(&behind),
            namespace_owner: &person.namespace_owner,
            namespace_user: &users.name_of_some(&person.namespace_owner),
            container: &person.place.container,
            label: person.label.as_deref(),
        });
        row.login_uid = person.login_uid.clone();
        row.login_user = match person.login_uid {
            Reading::Value(Some(uid)) => users.name(uid).map(Some),
            Reading::Value(None) => Reading::Value(None),
            ref unknown => unknown.because(),
        };
        row.namespace_owner = person.namespace_owner.clone();
        row.name_is_trusted = person.name_is_trusted();
        row.name = Reading::Value(person.name.clone());
        row.executable = person.executable.clone();
        row.command = person.command.clone();
        row.inner_pid = person.inner_pid.clone();
        row.place = person.place.clone();
        row.job = person.job.clone();
        row.parents.clone_from(&person.parents);
        row.host_memory = self.usage.memory.clone();
        row.cpu = self.usage.cpu.clone();
    }

    /// What else belongs to it.
    pub(crate) fn affiliation(&self, users: &Users) -> Affiliation {
        let person = &*self.person;
        let uid = person.uids.clone().map(|uids| uids.real);
        Affiliation {
            job: person.job.known().cloned(),
            uid: uid.known().copied(),
            person: users.person(&uid, &person.namespace_owner, person.slice),
            notebook_servers: person.notebook_servers.clone(),
        }
    }

    /// The account that its job is charged to, as it says itself, in a job of Slurm.
    pub(crate) fn account(&self) -> Option<&String> {
        self.person.account.as_ref()
    }

    /// Whether it may be whom a list of this moment names: who started later has
    /// only got the pid. The kernel tells the boot, and with it all beginnings,
    /// to the second.
    pub(crate) fn was_there_at(&self, moment: Timestamp) -> bool {
        let started = self.person.started_at.last_known();
        started.is_none_or(|started| started.0 <= moment.0.saturating_add(2_000))
    }

    /// Somebody of whom only this is known, for tests of what others do with it.
    #[cfg(test)]
    pub(crate) fn invented(key: ProcessKey, name: &str) -> Self {
        let unknown = Reading::Unsupported;
        Self {
            key,
            usage: Usage {
                memory: Reading::Unsupported,
                cpu: Reading::Unsupported,
            },
            person: Arc::new(Person {
                started_at: unknown.because(),
                uids: unknown.because(),
                login_uid: unknown.because(),
                namespace_owner: unknown.because(),
                slice: None,
                at_seat: unknown.because(),
                uid_min: gpukill_policy::access::UID_MIN,
                name: name.to_owned(),
                executable: unknown.because(),
                command: unknown.because(),
                inner_pid: unknown.because(),
                place: Place::unknown(&unknown),
                label: None,
                account: None,
                job: unknown.because(),
                parents: Vec::new(),
                notebook_servers: Vec::new(),
            }),
        }
    }
}

impl Person {
    /// Whether its name is to be believed. Where its file lies is not looked up at
    /// each poll: what is in no container executes the host's.
    pub(super) fn name_is_trusted(&self) -> Reading<bool> {
        let container = self.place.container.last_known();
        let facts = NameFacts {
            uids: &self.uids,
            namespace_owner: &self.namespace_owner,
            is_host_file: container.map(Option::is_none),
            at_seat: &self.at_seat,
        };
        match facts.is_trusted(&self.name, self.uid_min) {
            Some(is_trusted) => Reading::Value(is_trusted),
            None => Reading::Failed("not known".into()),
        }
    }
}

/// An ancestor, as it is told of.
pub(super) fn parent(kin: &Kin) -> Parent {
    Parent {
        key: kin.key,
        name: kin.name.clone(),
    }
}

/// The name of a user, where it is known which.
pub(super) fn name_of(uid: Reading<u32>, users: &Users) -> Reading<String> {
    match uid {
        Reading::Value(uid) => users.name(uid),
        unknown => unknown.because(),
    }
}
