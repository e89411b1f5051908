//! What rules may know of a process and of a device. It is stored as it is told here,
//! so that a replay judges the same.

use super::rules::PersonBy;
use crate::select::{is_of_a_login, is_user_manager};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::Person;
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::Suspected;
use gpukill_proto::snapshot::{Device, GpuProcess, NetworkRole, Place, Scheduler};
use gpukill_proto::units::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a process. `None` is not known; what there is none of is
/// `Some(None)`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct About {
    /// Whose it is: whom to ask.
    pub owner: Option<Person>,
    /// As whom it runs: name, where there is one, and number.
    pub user: Option<(Option<String>, u32)>,
    /// Who logged in.
    pub login_uid: Option<Option<u32>>,
    /// Whether it has the box's own user namespace.
    pub is_of_the_box: Option<bool>,
    /// Whether its name is to be believed: [`GpuProcess::name_is_trusted`].
    pub has_trusted_name: Option<bool>,
    /// The names of its owner's groups.
    pub groups: Option<Vec<String>>,
    /// The kernel's name for it.
    pub name: Option<String>,
    /// The path of its executable.
    pub executable: Option<String>,
    /// Its arguments joined by blanks.
    pub command: Option<String>,
    /// The image of its container.
    pub image: Option<Option<String>>,
    /// Its systemd unit, of the system's own systemd.
    pub unit: Option<Option<String>>,
    /// The namespace of its Kubernetes pod, and the pod.
    pub pod: Option<Option<(String, String)>>,
    /// Its job in a batch scheduler.
    pub scheduler: Option<Option<(Scheduler, String)>>,
    /// The account that job is charged to. Only Slurm has any; it puts them into the
    /// environment of its jobs, and there each process can write another, or leave it
    /// out: so this is the user's own word. By it nobody is spared anything: a group
    /// that only this speaks for makes limits stricter, and where it would make one
    /// looser, what lies between the two is not known; it raises no priority, and
    /// holds nobody else to a total. Not known where there is none.
    pub account: Option<Option<String>>,
    /// Its job: what names it on this box, and how `list` shows it.
    pub job: Option<(String, String)>,
    /// Whether its parent has ended.
    pub is_orphaned: Option<bool>,
    /// Of its owner, of whom it runs as and of who logged in, the users who have no name.
    /// Who is called by their number and is not among these may have any: the name
    /// service has not told.
    pub nameless: Vec<u32>,
    /// What who logged in is called.
    pub login_name: Option<String>,
    /// The names of that user's groups.
    pub login_groups: Option<Vec<String>>,
    /// Whether it is in a container, of whatever image.
    pub is_contained: Option<bool>,
    /// What the watch for rogues says of it. Not known where it was not looked at yet;
    /// `Some(None)` where it was, and there is no verdict.
    pub suspected: Option<Option<Suspected>>,
    /// How others use its job over TCP.
    pub network: Option<NetworkRole>,
}

impl About {
    /// Whether it is in the same container, and of the same scheduler's job, as this: what
    /// its owner cannot move it into.
    pub(crate) fn is_placed_as(&self, other: &Self) -> bool {
        (&self.scheduler, &self.pod, self.is_contained)
            == (&other.scheduler, &other.pod, other.is_contained)
    }

    /// What rules may know of a process. `groups` has the names of each user's: none
    /// of a number that nobody has, for whoever has one is in a group at least.
    #[must_use]
    pub fn of(process: &GpuProcess, groups: &BTreeMap<u32, Vec<String>>) -> Self {
        let owner = process.owner.last_known();
        let uid = process.uid.last_known().copied();
        let of_user = |uid: u32| groups.get(&uid).cloned();
        Self {
            owner: owner.map(|owner| Person {
                name: owner.name.clone(),
                uid: owner.uid,
            }),
            user: uid.map(|uid| (process.user.last_known().cloned(), uid)),
            nameless: nameless(process, groups),
            login_uid: process.login_uid.last_known().copied(),
            login_name: process.login_user.last_known().cloned().flatten(),
            login_groups: process.login().and_then(of_user),
            is_of_the_box: process.namespace_owner.last_known().map(Option::is_none),
            has_trusted_name: process.name_is_trusted.last_known().copied(),
            // Who is no user of the box is in none of its groups.
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
        .placed(&process.place)
    }

    /// What is known of where it runs.
    fn placed(mut self, place: &Place) -> Self {
        let container = place.container.last_known();
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
        self.unit = place.unit.last_known().map(|unit| {
            let unit = unit.as_ref().filter(|unit| unit.manager.is_none());
            unit.map(|unit| unit.name.clone())
        });
        self.scheduler = place.scheduler.last_known().map(|job| {
            let job = job.as_ref();
            job.map(|job| (job.scheduler, job.job.clone()))
        });
        // Only Slurm has accounts; what one of its jobs says is told by `charged_to`.
        self.account = match &self.scheduler {
            Some(Some((Scheduler::Slurm, _))) | None => None,
            Some(Some(_) | None) => Some(None),
        };
        self
    }
}

/// Whoever of it the name service says it does not know.
fn nameless(process: &GpuProcess, groups: &BTreeMap<u32, Vec<String>>) -> Vec<u32> {
    let user = process.uid.last_known().copied();
    let owner = process.owner.last_known().and_then(|owner| owner.uid);
    let is_nameless = |uid: &u32| {
        let is_told = user == Some(*uid)
            && match &process.user {
                Reading::Unsupported => true,
                // Rules take a name that is all digits for a number.
                Reading::Value(name) | Reading::Stale(name, _) => name.parse() == Ok(*uid),
                Reading::Failed(_) | Reading::Withheld => false,
            };
        is_told || groups.get(uid).is_some_and(Vec::is_empty)
    };
    let all = owner.into_iter().chain(user).chain(process.login());
    let all: BTreeSet<u32> = all.filter(is_nameless).into_set();
    all.into_iter().collect()
}

/// Whose a process is by rules that mean this person; `None` where that is not known.
#[must_use]
pub fn person_of(process: &GpuProcess, person: PersonBy) -> Option<Person> {
    let about = About::of(process, &BTreeMap::new());
    about.by(person).owner.clone()
}

impl About {
    /// What a user of it is called, who is told of as `said`. `None` is not known;
    /// who is not called anything is `Some(None)`.
    pub(crate) fn called<'a>(&self, uid: u32, said: Option<&'a str>) -> Option<Option<&'a str>> {
        let name = said.filter(|said| said.parse() != Ok(uid));
        match name {
            Some(name) => Some(Some(name)),
            None => self.nameless.contains(&uid).then_some(None),
        }
    }

    /// Whose it is to rules that mean this person; `None` where that is not known.
    #[must_use]
    pub fn person(&self, by: PersonBy) -> Option<Person> {
        self.by(by).owner.clone()
    }

    /// As of the person whom rules mean.
    pub(crate) fn by(&self, person: PersonBy) -> Cow<'_, Self> {
        match person {
            PersonBy::Owner => Cow::Borrowed(self),
            PersonBy::Login => self
                .of_login()
                .map_or_else(|| Cow::Borrowed(self), Cow::Owned),
        }
    }

    /// As of whoever logged in to start it; `None` where that changes nothing. What is of a
    /// container alone stays its container's, and what nobody logged in for is of whom it
    /// runs as. Where it is not known who logged in, it is not known whose it is.
    fn of_login(&self) -> Option<Self> {
        let owner = self.owner.as_ref()?.uid?;
        let is_in_a_login = self.is_in_a_login();
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

    /// Whether it may run where somebody logged in. Where nobody did, in a service of the
    /// system's or a scheduler's job, the kernel lets each process write once who that
    /// was: there it is the user's own word, and could be anybody's name.
    fn is_in_a_login(&self) -> Option<bool> {
        let (unit, scheduler) = (self.unit.as_ref()?, self.scheduler.as_ref()?);
        Some(scheduler.is_none() && unit.as_deref().is_none_or(is_of_a_login))
    }

    /// Whether a container that it is in is its user's own: below their own systemd they
    /// name groups, images and pods as they like. What root runs for others is no user's,
    /// nor is what lies in a unit of the system's, whatever namespaces are made in there.
    /// Whose unit is not known may be in any.
    pub(crate) fn contains_itself(&self) -> bool {
        let is_of_a_user = self.owner.as_ref().is_some_and(|owner| owner.uid.is_some());
        let unit = self.unit.as_ref();
        is_of_a_user && unit.is_some_and(|unit| unit.as_deref().is_none_or(is_user_manager))
    }

    /// The Kubernetes pod that it is in, where that is no user's word.
    pub(crate) fn pod_of_the_box(&self) -> Option<Option<&(String, String)>> {
        if self.contains_itself() {
            return Some(None);
        }
        self.pod.as_ref().map(Option::as_ref)
    }

    /// The image of its container, likewise.
    pub(crate) fn image_of_the_box(&self) -> Option<Option<&str>> {
        if self.contains_itself() {
            return Some(None);
        }
        self.image.as_ref().map(Option::as_deref)
    }

    /// With the account that its environment names. It counts in a job of Slurm alone:
    /// elsewhere anybody may have written it for any reason.
    #[must_use]
    pub fn charged_to(mut self, account: Option<&str>) -> Self {
        if let Some(Some((Scheduler::Slurm, _))) = self.scheduler {
            self.account = account.map(|account| Some(account.to_owned()));
        }
        self
    }
}

/// Whether the process that started it has ended: its parent is pid 1 or a systemd
/// of its user's, though neither is what runs it. Services and containers are
/// started by those.
fn is_orphaned(process: &GpuProcess) -> Option<bool> {
    process.key()?;
    if process.place.container.last_known()?.is_some() {
        return Some(false);
    }
    let unit = process.place.unit.last_known()?.as_ref();
    if unit.is_some_and(|unit| unit.name.ends_with(".service") && !is_user_manager(&unit.name)) {
        return Some(false);
    }
    // Parents are told without pid 1.
    let adopts = |name: &str| name == "systemd" || name == "init";
    Some(process.parents.first().is_none_or(|it| adopts(&it.name)))
}

/// What a device has for programs: without what the driver keeps for itself.
#[must_use]
pub fn memory(device: &Device) -> Option<Bytes> {
    let total = device.memory_total.last_known()?;
    let reserved = device.memory_reserved.last_known().map_or(0, |it| it.0);
    Some(Bytes(total.0.saturating_sub(reserved)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::{DeviceId, Owner, OwnerKind};
    use gpukill_proto::units::Timestamp;

    /// Of a process that runs as this user, and is of that one.
    fn of(user: Reading<String>, owner: u32, groups: &[(u32, &[&str])]) -> Vec<u32> {
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
        About::of(&process, &groups.collect()).nameless
    }

    #[test]
    fn who_has_no_name_is_not_who_is_not_told_of_yet() {
        let ann = || Reading::Value("ann".to_owned());
        let failed = || Reading::Failed("not resolved yet".into());
        let nobody = || Reading::Unsupported;
        for (user, owner, groups, expected) in [
            (ann(), 100, &[][..], &[][..]),
            (failed(), 100, &[], &[]),
            (nobody(), 100, &[], &[100]),
            // No rule goes by a name that is a number.
            (Reading::Value("100".into()), 100, &[], &[100]),
            // Of whoever made its namespace the groups tell.
            (nobody(), 7, &[], &[100]),
            (nobody(), 7, &[(7, &[][..])], &[7, 100]),
            (failed(), 7, &[(7, &[])], &[7]),
            (failed(), 7, &[(7, &["ml"])], &[]),
        ] {
            assert_eq!(of(user, owner, groups), expected, "{owner} {groups:?}");
        }
    }
}
