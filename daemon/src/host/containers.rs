//! Reads the files of container runtimes: the name, image and pod of a container, and the person
//! that a label names. No runtime is queried: a file does not hang like a daemon, and reading it
//! needs no right to command the daemon.
//!
//! A cgroup names the container, and a user who may create cgroups chooses their names. Therefore
//! only ids become parts of paths, no link below a runtime's directory is followed, and a user's
//! own files only describe containers below that user's own systemd, and never name their owner.

mod docker;
pub(super) mod format;
mod open;

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use super::cgroup::{CgroupContainer, ContainerManager, is_hash, is_name};
use super::users::Users;
use docker::docker_files;
use format::{ContainerFacts, ContainerFileFormat};
use gpukill_proto::model::{Container, Pod};
use gpukill_proto::reading::Reading;
use open::{FileError, TrustedOwner, read_below};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The cached data of containers. The files of users may be anywhere: another thread reads them, so
/// that a file that hangs hides no other container's name.
pub(crate) struct ContainerCache {
    system: BackgroundCache<CgroupContainer, (), CachedContainer>,
    user_owned: BackgroundCache<CgroupContainer, PathBuf, CachedContainer>,
}

/// The result of reading the files of a container.
#[derive(Clone, PartialEq, Eq)]
struct CachedContainer {
    facts: ContainerFacts,
    /// When to read again, where that is earlier than usual.
    retry_at: Option<Instant>,
}

const FETCH_POLICY: FetchPolicy = FetchPolicy {
    thread: "containers",
    // The disk hangs as a whole, whichever file is read.
    threads: 1,
    queue: 4_096,
    max_entries: 16_384,
    // A container may be renamed.
    refresh_after: Duration::from_secs(60),
    stuck_after: Duration::from_secs(2),
};

/// How soon a malformed file is read again: it may have been read while it was written.
const RETRY_AFTER: Duration = Duration::from_secs(2);

impl ContainerCache {
    /// Reads below this root. `label` is the label that names a container's owner, where it is not
    /// empty.
    pub(crate) fn new(root: PathBuf, label: &str) -> Self {
        Self::with_times(root, label, FETCH_POLICY.refresh_after, RETRY_AFTER)
    }

    fn with_times(root: PathBuf, label: &str, keep: Duration, again: Duration) -> Self {
        let policy = FetchPolicy {
            refresh_after: keep,
            ..FETCH_POLICY
        };
        let of_users = FetchPolicy {
            thread: "user-containers",
            ..policy
        };
        let label = label.to_owned();
        let users_root = root.clone();
        Self {
            system: BackgroundCache::new(policy, move |contained: &CgroupContainer, ()| {
                let found = look_up_in_system(contained, &root, TrustedOwner::Any, &label);
                Ok(CachedContainer::from_lookup(found, again))
            }),
            user_owned: BackgroundCache::new(
                of_users,
                move |contained: &CgroupContainer, home: PathBuf| {
                    Ok(CachedContainer::from_lookup(
                        look_up_in_home(contained, &users_root, &home),
                        again,
                    ))
                },
            ),
        }
    }

    /// The cached data of a container, and the person that its label names. Requests it where it is
    /// unknown or old, and never waits.
    pub(super) fn get(
        &self,
        contained: &CgroupContainer,
        users: &Users,
    ) -> (Container, Option<String>) {
        let found = match contained.manager {
            ContainerManager::System if has_files(contained) => {
                cached_facts(&self.system, contained, || ())
            }
            ContainerManager::User(uid) if has_files(contained) => match users.home(uid) {
                Reading::Value(home) => cached_facts(&self.user_owned, contained, || home.clone()),
                unknown => ContainerFacts::unknown(&unknown.as_unknown()),
            },
            ContainerManager::System | ContainerManager::User(_) => {
                ContainerFacts::from_id(&contained.id.id)
            }
        };
        let pod = contained.pod.as_ref().map(|uid| Pod {
            uid: uid.clone(),
            name: found.pod_name,
            namespace: found.pod_namespace,
        });
        let container = Container {
            id: contained.id.clone(),
            manager: contained.manager.uid(),
            // The Kubernetes name is a label, which any container may have.
            name: match contained.pod {
                Some(_) => found.name_in_pod,
                None => found.name,
            },
            image: found.image,
            pod,
        };
        (container, found.person)
    }

    /// Waits until all requests are answered, at most until `deadline`, and not for a read that is
    /// stuck.
    pub(super) fn settle(&self, deadline: Instant) {
        self.system.settle(deadline);
        self.user_owned.settle(deadline);
    }

    /// Drops all other containers.
    pub(super) fn keep_only(&self, wanted: impl Fn(&CgroupContainer) -> bool) {
        self.system.keep_only(&wanted);
        self.user_owned.keep_only(&wanted);
    }

    pub(super) fn changes(&self) -> u64 {
        self.system.changes() + self.user_owned.changes()
    }

    /// The current faults of the reads.
    pub(super) fn faults(&self) -> Vec<String> {
        let why = "their disk may hang";
        let of_host = self.system.stuck().into_iter().map(|contained| {
            let runtime = &contained.id.runtime;
            format!("cannot read the files of {runtime} containers: {why}")
        });
        let of_users = self.user_owned.stuck().into_iter().map(|contained| {
            let owner = match contained.manager {
                ContainerManager::User(uid) => format!("user {uid}'s"),
                ContainerManager::System => "users'".to_owned(),
            };
            format!("cannot read the files of {owner} containers: {why}")
        });
        of_host.chain(of_users).collect()
    }
}

/// The cached facts. Requests them where they are unknown or old.
fn cached_facts<Q: Send + 'static>(
    cache: &BackgroundCache<CgroupContainer, Q, CachedContainer>,
    contained: &CgroupContainer,
    question: impl Fn() -> Q,
) -> ContainerFacts {
    let lookup = match cache.get(contained, &question) {
        CachedValue::Ready(lookup) => lookup,
        CachedValue::Failed | CachedValue::Pending => {
            return ContainerFacts::unknown(&Reading::Failed("not read yet".into()));
        }
    };
    if lookup.retry_at.is_some_and(|again| Instant::now() >= again) {
        cache.forget(contained);
        cache.get(contained, question);
    }
    lookup.facts
}

impl CachedContainer {
    fn from_lookup(lookup: ContainerLookup, again: Duration) -> Self {
        match lookup {
            ContainerLookup::Found(found) => Self {
                facts: found,
                retry_at: None,
            },
            ContainerLookup::Malformed(why) => Self {
                facts: ContainerFacts::unknown(&Reading::Failed(why)),
                retry_at: Some(Instant::now() + again),
            },
        }
    }
}

/// Whether its runtime writes files that are supported here, and its id may be a part of a path.
fn has_files(contained: &CgroupContainer) -> bool {
    let id = &contained.id.id;
    match contained.id.runtime.as_str() {
        "containerd" => is_hash(id) || is_name(id),
        "docker" | "kubernetes" | "cri-o" | "podman" => is_hash(id),
        _ => false,
    }
}

/// The directories of running containers of containerd, also as shipped by k3s, RKE2 and MicroK8s.
const CONTAINERD_DIRS: [&str; 3] = [
    "run/containerd",
    "run/k3s/containerd",
    "var/snap/microk8s/common/run/containerd",
];

const CONTAINERD_NAMESPACES: [&str; 3] = ["k8s.io", "moby", "default"];

/// A file that may describe a container: its directory and its format.
struct ContainerFile {
    directory: PathBuf,
    parts: Vec<String>,
    format: ContainerFileFormat,
}

impl ContainerFile {
    fn new(directory: impl Into<PathBuf>, parts: &[&str], format: ContainerFileFormat) -> Self {
        Self {
            directory: directory.into(),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            format,
        }
    }
}

fn containerd_files(id: &str) -> Vec<ContainerFile> {
    let in_namespace = |base: &str, namespace: &str| {
        let directory = format!("{base}/io.containerd.runtime.v2.task/{namespace}");
        ContainerFile::new(
            directory,
            &[id, "config.json"],
            ContainerFileFormat::Annotations,
        )
    };
    CONTAINERD_DIRS
        .iter()
        .flat_map(|base| CONTAINERD_NAMESPACES.map(|namespace| in_namespace(base, namespace)))
        .collect()
}

/// CRI-O and podman use the same storage.
fn storage_files(id: &str) -> Vec<ContainerFile> {
    let parts = [id, "userdata", "config.json"];
    ["run", "var/lib"]
        .map(|base| {
            let directory = format!("{base}/containers/storage/overlay-containers");
            ContainerFile::new(directory, &parts, ContainerFileFormat::Annotations)
        })
        .into()
}

/// The container lists of a storage; containers of `podman run --rm` are in the second.
const STORAGE_LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

fn podman_files(directory: &str) -> Vec<ContainerFile> {
    STORAGE_LISTS
        .map(|list| ContainerFile::new(directory, &[list], ContainerFileFormat::List))
        .into()
}

enum ContainerLookup {
    Found(ContainerFacts),
    /// A malformed file, with the reason.
    Malformed(String),
}

fn look_up_in_system(
    contained: &CgroupContainer,
    root: &Path,
    trusted_owner: TrustedOwner,
    label: &str,
) -> ContainerLookup {
    let id = contained.id.id.as_str();
    let sources = match contained.id.runtime.as_str() {
        "docker" => docker_files(root, id),
        "containerd" => containerd_files(id),
        "cri-o" => storage_files(id),
        "podman" => podman_files("var/lib/containers/storage/overlay-containers"),
        // With cgroupfs, nothing shows the runtime that Kubernetes uses.
        "kubernetes" => {
            let of_any = containerd_files(id).into_iter().chain(storage_files(id));
            of_any.chain(docker_files(root, id)).collect()
        }
        _ => Vec::new(),
    };
    first_match(&sources, root, trusted_owner, id, label)
}

/// Looks a user's container up in that user's files. They never name its owner: they could name any
/// person.
fn look_up_in_home(contained: &CgroupContainer, root: &Path, home: &Path) -> ContainerLookup {
    let ContainerManager::User(uid) = contained.manager else {
        return ContainerLookup::Found(ContainerFacts::from_id(&contained.id.id));
    };
    let Ok(home) = home.strip_prefix("/") else {
        let why = format!("user {uid} has no home directory");
        return ContainerLookup::Found(ContainerFacts::unknown(&Reading::Failed(why)));
    };
    let id = contained.id.id.as_str();
    let below = |parts: &[&str], format| ContainerFile::new(home, parts, format);
    let share = [".local", "share"];
    let sources: Vec<ContainerFile> = match contained.id.runtime.as_str() {
        "docker" => {
            let parts = [&share[..], &["docker", "containers", id, "config.v2.json"]].concat();
            vec![below(&parts, ContainerFileFormat::Docker)]
        }
        "podman" => STORAGE_LISTS
            .map(|list| {
                let storage = ["containers", "storage", "overlay-containers", list];
                below(&[&share[..], &storage].concat(), ContainerFileFormat::List)
            })
            .into(),
        _ => Vec::new(),
    };
    first_match(&sources, root, TrustedOwner::User(uid), id, "")
}

/// The first existing file decides, even when it is malformed; only a list may lack a container
/// that the next one has.
fn first_match(
    sources: &[ContainerFile],
    root: &Path,
    trusted_owner: TrustedOwner,
    id: &str,
    label: &str,
) -> ContainerLookup {
    let failed = |why| ContainerLookup::Found(ContainerFacts::unknown(&Reading::Failed(why)));
    for source in sources {
        match read_below(&root.join(&source.directory), &source.parts, trusted_owner) {
            Ok(text) => match source.format.parse(&text, id, label) {
                Ok(Some(found)) => return ContainerLookup::Found(found),
                Ok(None) => {}
                Err(why) => return ContainerLookup::Malformed(why),
            },
            Err(FileError::Absent) => {}
            Err(FileError::Unusable(why)) => return failed(why),
        }
    }
    failed("no file of its runtime names it".into())
}

#[cfg(test)]
mod hanging;
#[cfg(test)]
mod tests;
