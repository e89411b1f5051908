//! Facts that rules may know about a process or a device. The store keeps them as they are
//! here, so that a replay evaluates the same.

use super::rules::PersonAttribution;
use crate::select::{holds_user_processes, is_user_manager};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::Person;
use gpukill_proto::model::{Device, GpuProcess, NetworkRole, ProcessLocation, Scheduler};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::units::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Known facts about a process. `None` means unknown; `Some(None)` means that there is
/// none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The person to ask about it.
    pub owner: Option<Person>,
    /// The user that it runs as: name, if there is one, and uid.
    pub user: Option<(Option<String>, u32)>,
    /// Uid of the user who logged in.
    pub login_uid: Option<Option<u32>>,
    /// Whether it is in the host's own user namespace.
    pub in_host_user_namespace: Option<bool>,
    /// Whether its name can be trusted: [`GpuProcess::name_is_trusted`].
    pub has_trusted_name: Option<bool>,
    /// Names of its owner's groups.
    pub groups: Option<Vec<String>>,
    /// The kernel's name for it.
    pub name: Option<String>,
    /// The path of its executable.
    pub executable: Option<String>,
    /// Its arguments joined by spaces.
    pub command: Option<String>,
    /// The image of its container.
    pub image: Option<Option<String>>,
    /// Its unit in the system's systemd.
    pub unit: Option<Option<String>>,
    /// The namespace and the name of its Kubernetes pod.
    pub pod: Option<Option<(String, String)>>,
    /// Its job in a batch scheduler.
    pub scheduler: Option<Option<(Scheduler, String)>>,
    /// The account that its job is charged to. Only Slurm has accounts. It puts them into
    /// the environment of its jobs, where each process can change or remove them, so this
    /// is the user's own claim. It exempts from nothing. A group that only this claim
    /// supports makes limits stricter; where it would make one looser, the range between
    /// the two is unknown. It raises no priority, and holds no other member to a total.
    /// Unknown if there is none.
    pub account: Option<Option<String>>,
    /// Id of its job on this host, and how `list` shows it.
    pub job: Option<(String, String)>,
    /// Whether its parent has ended.
    pub is_orphaned: Option<bool>,
    /// Uids without a name, among its owner, the user that it runs as and the login user.
    /// If a user is shown by a uid that is not listed here, the name service has not
    /// answered, and any name is possible.
    pub nameless_uids: Vec<u32>,
    /// Name of the login user.
    pub login_name: Option<String>,
    /// Names of the login user's groups.
    pub login_groups: Option<Vec<String>>,
    /// Whether it is in a container, of any image.
    pub is_contained: Option<bool>,
    /// The verdict of the rogue scan. Unknown before the first scan; `Some(None)` if there
    /// is no verdict.
    pub suspected: Option<Option<VerdictSummary>>,
    /// How other processes use its job over TCP.
    pub network: Option<NetworkRole>,
}

impl ProcessFacts {
    /// Whether it has the same container and scheduler job as `other`: its owner cannot
    /// move it between these.
    pub(crate) fn has_same_placement(&self, other: &Self) -> bool {
        (&self.scheduler, &self.pod, self.is_contained)
            == (&other.scheduler, &other.pod, other.is_contained)
    }

    /// Collects the facts about a process. `groups` has the group names of each uid: none
    /// for a uid without a user, because every user is in one group at least.
    #[must_use]
    pub fn from_process(process: &GpuProcess, groups: &BTreeMap<u32, Vec<String>>) -> Self {
        let owner = process.owner.last_known();
        let uid = process.uid.last_known().copied();
        let of_user = |uid: u32| groups.get(&uid).cloned();
        Self {
            owner: owner.map(|owner| Person {
                name: owner.name.clone(),
                uid: owner.uid,
            }),
            user: uid.map(|uid| (process.user.last_known().cloned(), uid)),
            nameless_uids: nameless_uids(process, groups),
            login_uid: process.login_uid.last_known().copied(),
            login_name: process.login_user.last_known().cloned().flatten(),
            login_groups: process.known_login_uid().and_then(of_user),
            in_host_user_namespace: process.namespace_owner.last_known().map(Option::is_none),
            has_trusted_name: process.name_is_trusted.last_known().copied(),
            // An owner who is no user of the host is in none of its groups.
            groups: owner.and_then(|owner| owner.uid.map_or_else(|| Some(Vec::new()), of_user)),
            name: process.name.last_known().cloned(),
            executable: process.executable.last_known().cloned(),
            command: process.command.last_known().cloned(),
            job: process
                .job
                .last_known()
                .map(|job| (job.id(), job.to_string())),
            is_orphaned: is_orphaned(process),
            network: process.network_role.last_known().cloned(),
            ..Self::default()
        }
        .with_location(&process.location)
    }

    /// Adds the facts about the location of the process.
    fn with_location(mut self, location: &ProcessLocation) -> Self {
        let container = location.container.last_known();
        self.is_contained = container.map(Option::is_some);
        self.image = container.and_then(|container| match container {
            None => Some(None),
            Some(container) => container.image.last_known().cloned().map(Some),
        });
        self.pod = container.and_then(|container| {
            let pod = container.as_ref().and_then(|it| it.pod.as_ref());
            match pod {
                None => Some(None),
                Some(pod) => {
                    let namespace = pod.namespace.last_known()?.clone();
                    let name = pod.name.last_known()?.clone();
                    Some(Some((namespace, name)))
                }
            }
        });
        self.unit = location.unit.last_known().map(|unit| {
            let unit = unit.as_ref().filter(|unit| unit.manager.is_none());
            unit.map(|unit| unit.name.clone())
        });
        self.scheduler = location.scheduler.last_known().map(|job| {
            let job = job.as_ref();
            job.map(|job| (job.scheduler, job.job.clone()))
        });
        // Only Slurm has accounts; `with_account` sets the account of a Slurm job.
        self.account = match &self.scheduler {
            Some(Some((Scheduler::Slurm, _))) | None => None,
            Some(Some(_) | None) => Some(None),
        };
        self
    }
}

/// The uids of the process for which the name service reports no user.
fn nameless_uids(process: &GpuProcess, groups: &BTreeMap<u32, Vec<String>>) -> Vec<u32> {
    let user = process.uid.last_known().copied();
    let owner = process.owner.last_known().and_then(|owner| owner.uid);
    let is_nameless = |uid: &u32| {
        let is_known = user == Some(*uid)
            && match &process.user {
                Reading::Unsupported => true,
                // Rules read a name that is all digits as a uid.
                Reading::Value(name) | Reading::Stale(name, _) => name.parse() == Ok(*uid),
                Reading::Failed(_) | Reading::Withheld => false,
            };
        is_known || groups.get(uid).is_some_and(Vec::is_empty)
    };
    let all = owner
        .into_iter()
        .chain(user)
        .chain(process.known_login_uid());
    let all: BTreeSet<u32> = all.filter(is_nameless).into_set();
    all.into_iter().collect()
}

/// The person of a process under rules that refer to this kind of person; `None` if
/// unknown.
#[must_use]
pub fn person_of_process(process: &GpuProcess, person: PersonAttribution) -> Option<Person> {
    let facts = ProcessFacts::from_process(process, &BTreeMap::new());
    facts.attributed_to(person).owner.clone()
}

impl ProcessFacts {
    /// The name of a uid that is reported as `reported`. `None` means unknown; `Some(None)`
    /// means that it has no name.
    pub(crate) fn user_name<'a>(
        &self,
        uid: u32,
        reported: Option<&'a str>,
    ) -> Option<Option<&'a str>> {
        let name = reported.filter(|reported| reported.parse() != Ok(uid));
        match name {
            Some(name) => Some(Some(name)),
            None => self.nameless_uids.contains(&uid).then_some(None),
        }
    }

    /// The person of the process under rules that refer to this kind of person; `None` if
    /// unknown.
    #[must_use]
    pub fn person(&self, by: PersonAttribution) -> Option<Person> {
        self.attributed_to(by).owner.clone()
    }

    /// The facts, attributed to the person that the rules refer to.
    pub(crate) fn attributed_to(&self, person: PersonAttribution) -> Cow<'_, Self> {
        match person {
            PersonAttribution::Owner => Cow::Borrowed(self),
            PersonAttribution::Login => self
                .attributed_to_login()
                .map_or_else(|| Cow::Borrowed(self), Cow::Owned),
        }
    }

    /// The facts, attributed to the user who logged in to start the process; `None` if that
    /// changes nothing. A process that belongs to a container alone stays the container's,
    /// and a process without a login belongs to the user that it runs as. If the login is
    /// unknown, the owner is unknown.
    fn attributed_to_login(&self) -> Option<Self> {
        let owner = self.owner.as_ref()?.uid?;
        let is_in_a_login = self.is_in_login_session();
        let (owner, groups) = match self.login_uid {
            Some(None) => return None,
            Some(Some(login)) if login == owner => return None,
            Some(Some(_)) if is_in_a_login == Some(false) => return None,
            Some(Some(_)) if is_in_a_login.is_none() => (None, None),
            Some(Some(login)) => {
                let name = self.login_name.clone();
                let person = Person {
                    name: name.unwrap_or_else(|| login.to_string()),
                    uid: Some(login),
                };
                (Some(person), self.login_groups.clone())
            }
            None => (None, None),
        };
        Some(Self {
            owner,
            groups,
            ..self.clone()
        })
    }

    /// Whether it may run in a login session. In a system service or a scheduler's job the
    /// kernel lets each process set its login uid once: there the uid is the user's own
    /// claim, and could be anyone's.
    fn is_in_login_session(&self) -> Option<bool> {
        let (unit, scheduler) = (self.unit.as_ref()?, self.scheduler.as_ref()?);
        Some(scheduler.is_none() && unit.as_deref().is_none_or(holds_user_processes))
    }

    /// Whether its container is its user's own: below their own systemd, users choose the
    /// names of groups, images and pods. A container that root runs for others is no
    /// user's, nor is anything in a system unit, whatever namespaces are created in it. If
    /// the unit is unknown, the container counts as no user's: the process may be in any
    /// unit.
    pub(crate) fn is_in_user_container(&self) -> bool {
        let is_of_a_user = self.owner.as_ref().is_some_and(|owner| owner.uid.is_some());
        let unit = self.unit.as_ref();
        is_of_a_user && unit.is_some_and(|unit| unit.as_deref().is_none_or(is_user_manager))
    }

    /// Its Kubernetes pod, unless that is a user's own claim.
    pub(crate) fn host_pod(&self) -> Option<Option<&(String, String)>> {
        if self.is_in_user_container() {
            return Some(None);
        }
        self.pod.as_ref().map(Option::as_ref)
    }

    /// The image of its container, unless that is a user's own claim.
    pub(crate) fn host_image(&self) -> Option<Option<&str>> {
        if self.is_in_user_container() {
            return Some(None);
        }
        self.image.as_ref().map(Option::as_deref)
    }

    /// Adds the account that its environment names. It counts only in a job of Slurm:
    /// elsewhere the variable may have been set for any reason.
    #[must_use]
    pub fn with_account(mut self, account: Option<&str>) -> Self {
        if let Some(Some((Scheduler::Slurm, _))) = self.scheduler {
            self.account = account.map(|account| Some(account.to_owned()));
        }
        self
    }
}

/// Whether the process that started it has ended: its parent is pid 1 or its user's
/// systemd, although neither runs it. Services and containers are started by those.
fn is_orphaned(process: &GpuProcess) -> Option<bool> {
    process.key()?;
    if process.location.container.last_known()?.is_some() {
        return Some(false);
    }
    let unit = process.location.unit.last_known()?.as_ref();
    if unit.is_some_and(|unit| unit.name.ends_with(".service") && !is_user_manager(&unit.name)) {
        return Some(false);
    }
    // The list of parents leaves out pid 1.
    let adopts = |name: &str| name == "systemd" || name == "init";
    Some(process.parents.first().is_none_or(|it| adopts(&it.name)))
}

/// Memory of a device for programs: without the driver's reserve.
#[must_use]
pub fn usable_memory(device: &Device) -> Option<Bytes> {
    let total = device.memory_total.last_known()?;
    let reserved = device.memory_reserved.last_known().map_or(0, |it| it.0);
    Some(Bytes(total.0.saturating_sub(reserved)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{DeviceId, Owner, OwnerKind};
    use gpukill_proto::units::Timestamp;

    /// The nameless uids of a process with this user and this owner.
    fn nameless_uids_of(user: Reading<String>, owner: u32, groups: &[(u32, &[&str])]) -> Vec<u32> {
        let process = GpuProcess {
            uid: Reading::Value(100),
            user,
            owner: Reading::Value(Owner {
                name: owner.to_string(),
                uid: Some(owner),
                kind: OwnerKind::Namespace,
            }),
            ..GpuProcess::unknown(DeviceId("G".into()), 7, Timestamp(0), &Reading::Unsupported)
        };
        let groups = groups.iter().map(|(uid, names)| {
            let names = names.iter().map(|&name| name.to_owned());
            (*uid, names.collect())
        });
        ProcessFacts::from_process(&process, &groups.collect()).nameless_uids
    }

    #[test]
    fn unknown_name_is_not_nameless() {
        let ann = || Reading::Value("ann".to_owned());
        let failed = || Reading::Failed("not resolved yet".into());
        let nobody = || Reading::Unsupported;
        for (user, owner, groups, expected) in [
            (ann(), 100, &[][..], &[][..]),
            (failed(), 100, &[], &[]),
            (nobody(), 100, &[], &[100]),
            // Rules ignore a name that is a number.
            (Reading::Value("100".into()), 100, &[], &[100]),
            // The groups decide about the creator of the namespace.
            (nobody(), 7, &[], &[100]),
            (nobody(), 7, &[(7, &[][..])], &[7, 100]),
            (failed(), 7, &[(7, &[])], &[7]),
            (failed(), 7, &[(7, &["ml"])], &[]),
        ] {
            assert_eq!(
                nameless_uids_of(user, owner, groups),
                expected,
                "{owner} {groups:?}"
            );
        }
    }
}
