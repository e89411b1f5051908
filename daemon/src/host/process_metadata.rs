//! The metadata of one process, and how it fills a snapshot row.

use super::sockets::ProcessAttribution;
use super::users::Users;
use gpukill_policy::access::Uids;
use gpukill_policy::job::ProcessLineage;
use gpukill_policy::kill::protection::NameFacts;
use gpukill_policy::owner::{self, determine_owner};
use gpukill_proto::model::{Ancestor, GpuProcess, Job, ProcessKey, ProcessLocation};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::sync::Arc;

/// The process of a PID now. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessMetadata {
    pub(crate) key: ProcessKey,
    /// The host memory that it uses.
    pub(super) memory: Reading<Bytes>,
    /// Unsupported in the first poll: there is no earlier one to compare with.
    pub(super) cpu: Reading<Percent>,
    pub(super) details: Arc<ProcessDetails>,
}

/// Facts about a process that rarely change, and are read rarely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessDetails {
    pub(super) started_at: Reading<Timestamp>,
    pub(super) uids: Reading<Uids>,
    pub(super) login_uid: Reading<Option<u32>>,
    pub(super) namespace_owner: Reading<Option<u32>>,
    /// The user of its user slice.
    pub(super) slice: Option<u32>,
    /// Whether it belongs to an active session at a seat.
    pub(super) at_seat: Reading<bool>,
    /// The lowest uid of a person.
    pub(super) uid_min: u32,
    pub(super) name: String,
    pub(super) executable: Reading<String>,
    pub(super) command: Reading<String>,
    pub(super) inner_pid: Reading<Option<u32>>,
    pub(super) location: ProcessLocation,
    /// The person that its container's label names.
    pub(super) owner_label: Option<String>,
    /// The Slurm account of its job, as it first reported it. `None` where unknown.
    pub(super) account: Option<String>,
    pub(super) job: Reading<Job>,
    pub(super) parents: Vec<Ancestor>,
    /// The notebook servers above it.
    pub(super) notebook_servers: Vec<ProcessKey>,
    /// Whether its arguments run a notebook kernel.
    pub(super) is_notebook_kernel: bool,
}

impl ProcessMetadata {
    /// Fills in all fields about the process, its owner and its location.
    pub(crate) fn fill_row(&self, row: &mut GpuProcess, users: &Users) {
        let person = &*self.details;
        row.start_ticks = Reading::Value(self.key.start_ticks);
        row.started_at = person.started_at.clone();
        row.uid = person.uids.clone().map(|uids| uids.real);
        row.user = user_name(row.uid.clone(), users);
        let person_behind = users.person_behind(&row.uid, &person.namespace_owner, person.slice);
        row.owner = determine_owner(owner::OwnerFacts {
            uid: &row.uid,
            user: &row.user,
            person_behind: &person_behind,
            person_behind_name: &users.name_of_optional(&person_behind),
            namespace_owner: &person.namespace_owner,
            namespace_user: &users.name_of_optional(&person.namespace_owner),
            container: &person.location.container,
            label: person.owner_label.as_deref(),
        });
        row.login_uid = person.login_uid.clone();
        row.login_user = match person.login_uid {
            Reading::Value(Some(uid)) => users.name(uid).map(Some),
            Reading::Value(None) => Reading::Value(None),
            ref unknown => unknown.as_unknown(),
        };
        row.namespace_owner = person.namespace_owner.clone();
        row.name_is_trusted = person.name_is_trusted();
        row.name = Reading::Value(person.name.clone());
        row.executable = person.executable.clone();
        row.command = person.command.clone();
        row.inner_pid = person.inner_pid.clone();
        row.location = person.location.clone();
        row.job = person.job.clone();
        row.parents.clone_from(&person.parents);
        row.host_memory = self.memory.clone();
        row.cpu = self.cpu.clone();
    }

    /// Its job, user, person and notebook servers.
    pub(crate) fn attribution(&self, users: &Users) -> ProcessAttribution {
        let person = &*self.details;
        let uid = person.uids.clone().map(|uids| uids.real);
        ProcessAttribution {
            job: person.job.known().cloned(),
            uid: uid.known().copied(),
            person: users.person(&uid, &person.namespace_owner, person.slice),
            notebook_servers: person.notebook_servers.clone(),
            is_notebook_kernel: person.is_notebook_kernel,
        }
    }

    /// The Slurm account that its job reports.
    pub(crate) fn account(&self) -> Option<&String> {
        self.details.account.as_ref()
    }

    /// Whether a list of this moment can mean this process: a process that started later only
    /// reuses the PID. The kernel reports the boot time, and with it all start times, to the
    /// second.
    pub(crate) fn may_have_existed_at(&self, moment: Timestamp) -> bool {
        let started = self.details.started_at.last_known();
        started.is_none_or(|started| started.0 <= moment.0.saturating_add(2_000))
    }

    /// Metadata with only these values known, for tests of other modules.
    #[cfg(test)]
    pub(crate) fn with_name(key: ProcessKey, name: &str) -> Self {
        let unknown = Reading::Unsupported;
        Self {
            key,
            memory: Reading::Unsupported,
            cpu: Reading::Unsupported,
            details: Arc::new(ProcessDetails {
                started_at: unknown.as_unknown(),
                uids: unknown.as_unknown(),
                login_uid: unknown.as_unknown(),
                namespace_owner: unknown.as_unknown(),
                slice: None,
                at_seat: unknown.as_unknown(),
                uid_min: gpukill_policy::access::UID_MIN,
                name: name.to_owned(),
                executable: unknown.as_unknown(),
                command: unknown.as_unknown(),
                inner_pid: unknown.as_unknown(),
                location: ProcessLocation::unknown(&unknown),
                owner_label: None,
                account: None,
                job: unknown.as_unknown(),
                parents: Vec::new(),
                notebook_servers: Vec::new(),
                is_notebook_kernel: false,
            }),
        }
    }
}

impl ProcessDetails {
    /// Whether its name is trusted. A poll does not look up the executable: a process outside of
    /// containers executes a file of the host.
    pub(super) fn name_is_trusted(&self) -> Reading<bool> {
        let container = self.location.container.last_known();
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

pub(super) fn to_parent(lineage: &ProcessLineage) -> Ancestor {
    Ancestor {
        key: lineage.key,
        name: lineage.name.clone(),
    }
}

/// The name of a user, where the uid is known.
pub(super) fn user_name(uid: Reading<u32>, users: &Users) -> Reading<String> {
    match uid {
        Reading::Value(uid) => users.name(uid),
        unknown => unknown.as_unknown(),
    }
}
