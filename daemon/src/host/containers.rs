//! What the files of container runtimes say of a container: its name, its image,
//! its pod, and the person whom a label names. No runtime is asked: a file does
//! not hang as a daemon may, and needs no right to command one.
//!
//! A cgroup names the container, and whoever may make cgroups may name them. So
//! only ids become parts of paths, no link below a runtime's directory is
//! followed, and a user's own files tell only about containers below that user's
//! own systemd, and never whose they are.

pub(super) mod format;

mod docker;

mod open;

use super::asked::{Answer, Asked, Manner};
use super::cgroup::{Contained, Teller, is_hash, is_name};
use super::users::Users;
use docker::docker;
use format::{Format, Told};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, Pod};
use open::{Missing, Whose, read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is known of containers by now. The files of users lie where they like:
/// another thread reads those, so that one of them that hangs hides no other
/// container's name.
pub(crate) struct Containers {
    of_the_box: Asked<Contained, (), Looked>,
    of_users: Asked<Contained, PathBuf, Looked>,
}

/// What a look at the files of a container told.
#[derive(Clone, PartialEq, Eq)]
struct Looked {
    told: Told,
    /// When to look again, where that is sooner than for others.
    again: Option<Instant>,
}

const MANNER: Manner = Manner {
    thread: "containers",
    // What hangs is the disk, whichever file is read.
    threads: 1,
    queue: 4_096,
    most: 16_384,
    // A container may be renamed.
    keep: Duration::from_secs(60),
    slow: Duration::from_secs(2),
};

/// After so long a file that could not be understood is read again: it may have
/// been read while it was written.
const AGAIN: Duration = Duration::from_secs(2);

impl Containers {
    /// Reads below this root; `label` is the label that names a container's owner,
    /// where it is not empty.
    pub(crate) fn new(root: PathBuf, label: &str) -> Self {
        Self::keeping(root, label, MANNER.keep, AGAIN)
    }

    fn keeping(root: PathBuf, label: &str, keep: Duration, again: Duration) -> Self {
        let manner = Manner { keep, ..MANNER };
        let of_users = Manner {
            thread: "user-containers",
            ..manner
        };
        let label = label.to_owned();
        let users_root = root.clone();
        Self {
            of_the_box: Asked::new(manner, move |contained: &Contained, ()| {
                let told = look(contained, &root, Whose::Anybodys, &label);
                Ok(Looked::now(told, again))
            }),
            of_users: Asked::new(of_users, move |contained: &Contained, home: PathBuf| {
                Ok(Looked::now(
                    look_at_home(contained, &users_root, &home),
                    again,
                ))
            }),
        }
    }

    /// A container as it is known by now, and the person whom its label names.
    /// Asks for it where it is not known or old, and never waits.
    pub(super) fn of(&self, contained: &Contained, users: &Users) -> (Container, Option<String>) {
        let told = match contained.teller {
            Teller::System if has_files(contained) => told(&self.of_the_box, contained, || ()),
            Teller::User(uid) if has_files(contained) => match users.home(uid) {
                Reading::Value(home) => told(&self.of_users, contained, || home.clone()),
                unknown => Told::unknown(&unknown.because()),
            },
            Teller::System | Teller::User(_) => Told::by_its_id(&contained.id.id),
        };
        let pod = contained.pod.as_ref().map(|uid| Pod {
            uid: uid.clone(),
            name: told.pod_name,
            namespace: told.pod_namespace,
        });
        let container = Container {
            id: contained.id.clone(),
            manager: match contained.teller {
                Teller::System => None,
                Teller::User(uid) => Some(uid),
            },
            // What Kubernetes calls it is a label, which anybody's may have.
            name: match contained.pod {
                Some(_) => told.name_in_pod,
                None => told.name,
            },
            image: told.image,
            pod,
        };
        (container, told.person)
    }

    /// Waits until everything asked so far is read, but not past `deadline`, and
    /// not for what is stuck.
    pub(super) fn settle(&self, deadline: Instant) {
        self.of_the_box.settle(deadline);
        self.of_users.settle(deadline);
    }

    /// Forgets every container but these.
    pub(super) fn keep_only(&self, wanted: impl Fn(&Contained) -> bool) {
        self.of_the_box.keep_only(&wanted);
        self.of_users.keep_only(&wanted);
    }

    /// Grows whenever something else is known of a container than before.
    pub(super) fn changes(&self) -> u64 {
        self.of_the_box.changes() + self.of_users.changes()
    }

    /// What is wrong with reading the files now.
    pub(super) fn faults(&self) -> Vec<String> {
        let why = "their disk may hang";
        let of_the_box = self.of_the_box.stuck().into_iter().map(|contained| {
            let runtime = &contained.id.runtime;
            format!("the files of {runtime} containers do not let themselves be read: {why}")
        });
        let of_users = self.of_users.stuck().into_iter().map(|contained| {
            let whose = match contained.teller {
                Teller::User(uid) => format!("user {uid}'s"),
                Teller::System => "users'".to_owned(),
            };
            format!("the files of {whose} containers do not let themselves be read: {why}")
        });
        of_the_box.chain(of_users).collect()
    }
}

/// What its files told last. Asks for them where that is not known or old.
fn told<Q: Send + 'static>(
    asked: &Asked<Contained, Q, Looked>,
    contained: &Contained,
    question: impl Fn() -> Q,
) -> Told {
    let looked = match asked.of(contained, &question) {
        Answer::Given(looked) => looked,
        Answer::Failed | Answer::Pending => {
            return Told::unknown(&Reading::Failed("not read yet".into()));
        }
    };
    if looked.again.is_some_and(|again| Instant::now() >= again) {
        asked.forget(contained);
        asked.of(contained, question);
    }
    looked.told
}

impl Looked {
    fn now(look: Look, again: Duration) -> Self {
        match look {
            Look::Told(told) => Self { told, again: None },
            Look::Garbled(why) => Self {
                told: Told::unknown(&Reading::Failed(why)),
                again: Some(Instant::now() + again),
            },
        }
    }
}

/// Whether its runtime writes files that we know, and its id is one that may be
/// part of a path.
fn has_files(contained: &Contained) -> bool {
    let id = &contained.id.id;
    match contained.id.runtime.as_str() {
        "containerd" => is_hash(id) || is_name(id),
        "docker" | "kubernetes" | "cri-o" | "podman" => is_hash(id),
        _ => false,
    }
}

/// Where containerd keeps what runs, also when k3s, RKE2 or MicroK8s brings it.
const CONTAINERD: [&str; 3] = [
    "run/containerd",
    "run/k3s/containerd",
    "var/snap/microk8s/common/run/containerd",
];

const NAMESPACES: [&str; 3] = ["k8s.io", "moby", "default"];

/// A file that may tell about a container: below which directory, and how it is
/// to be read.
struct Source {
    directory: PathBuf,
    parts: Vec<String>,
    format: Format,
}

impl Source {
    fn new(directory: impl Into<PathBuf>, parts: &[&str], format: Format) -> Self {
        Self {
            directory: directory.into(),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            format,
        }
    }
}

fn containerd(id: &str) -> Vec<Source> {
    let in_namespace = |base: &str, namespace: &str| {
        let directory = format!("{base}/io.containerd.runtime.v2.task/{namespace}");
        Source::new(directory, &[id, "config.json"], Format::Annotations)
    };
    CONTAINERD
        .iter()
        .flat_map(|base| NAMESPACES.map(|namespace| in_namespace(base, namespace)))
        .collect()
}

/// CRI-O and podman use the same storage.
fn storage(id: &str) -> Vec<Source> {
    let parts = [id, "userdata", "config.json"];
    ["run", "var/lib"]
        .map(|base| {
            let directory = format!("{base}/containers/storage/overlay-containers");
            Source::new(directory, &parts, Format::Annotations)
        })
        .into()
}

/// The containers of a storage; those of `podman run --rm` are in the second.
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

fn podman(directory: &str) -> Vec<Source> {
    LISTS
        .map(|list| Source::new(directory, &[list], Format::List))
        .into()
}

/// What a look at files found.
enum Look {
    Told(Told),
    /// A file that was not as it should be, in this way.
    Garbled(String),
}

/// What the files of the box say of a container.
fn look(contained: &Contained, root: &Path, whose: Whose, label: &str) -> Look {
    let id = contained.id.id.as_str();
    let sources = match contained.id.runtime.as_str() {
        "docker" => docker(root, id),
        "containerd" => containerd(id),
        "cri-o" => storage(id),
        "podman" => podman("var/lib/containers/storage/overlay-containers"),
        // With cgroupfs nothing says which runtime Kubernetes has.
        "kubernetes" => {
            let of_any = containerd(id).into_iter().chain(storage(id));
            of_any.chain(docker(root, id)).collect()
        }
        _ => Vec::new(),
    };
    first_that_tells(&sources, root, whose, id, label)
}

/// What the files of a user say of a container of theirs. Not whose it is: they
/// could name anybody.
fn look_at_home(contained: &Contained, root: &Path, home: &Path) -> Look {
    let Teller::User(uid) = contained.teller else {
        return Look::Told(Told::by_its_id(&contained.id.id));
    };
    let Ok(home) = home.strip_prefix("/") else {
        let why = format!("user {uid} has no home directory");
        return Look::Told(Told::unknown(&Reading::Failed(why)));
    };
    let id = contained.id.id.as_str();
    let below = |parts: &[&str], format| Source::new(home, parts, format);
    let share = [".local", "share"];
    let sources: Vec<Source> = match contained.id.runtime.as_str() {
        "docker" => {
            let parts = [&share[..], &["docker", "containers", id, "config.v2.json"]].concat();
            vec![below(&parts, Format::Docker)]
        }
        "podman" => LISTS
            .map(|list| {
                let storage = ["containers", "storage", "overlay-containers", list];
                below(&[&share[..], &storage].concat(), Format::List)
            })
            .into(),
        _ => Vec::new(),
    };
    first_that_tells(&sources, root, Whose::Users(uid), id, "")
}

/// The first file that there is decides, also when it is not as it should be;
/// only a list may lack a container that the next one has.
fn first_that_tells(sources: &[Source], root: &Path, whose: Whose, id: &str, label: &str) -> Look {
    let failed = |why| Look::Told(Told::unknown(&Reading::Failed(why)));
    for source in sources {
        match read(&root.join(&source.directory), &source.parts, whose) {
            Ok(text) => match source.format.parse(&text, id, label) {
                Ok(Some(told)) => return Look::Told(told),
                Ok(None) => {}
                Err(why) => return Look::Garbled(why),
            },
            Err(Missing::Absent) => {}
            Err(Missing::Unusable(why)) => return failed(why),
        }
    }
    failed("no file of its runtime names it".into())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod hanging;
