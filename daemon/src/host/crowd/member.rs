//! One process, as far as its files tell that never hang.

use crate::host::cgroup::{Contained, Teller, View};
use crate::host::condition::state;
use crate::host::family::{executable, group, kin};
use crate::host::identity::name_of;
use crate::host::namespace::{pid_namespace, user_namespace_makers, user_namespace_root};
use crate::host::seat;
use crate::host::status::Status;
use crate::host::users::Users;
use crate::procfs::stat::Stat;
use gpukill_policy::job::Kin;
use gpukill_policy::kill::Candidate;
use gpukill_policy::owner::{self, owner};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, Job, Pod, SchedulerJob, Unit};
use std::io;
use std::path::{Path, PathBuf};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// So many threads are tried when the first one has ended.
const THREADS: usize = 64;

/// Why something is not known that this look does not ask for.
const NOT_ASKED: &str = "not asked for";

/// Where processes are read.
pub(super) struct Place<'a> {
    pub(super) procfs: &'a Path,
    pub(super) host_root: &'a Path,
    pub(super) view: View,
    pub(super) own_users: Option<&'a Path>,
}

/// A process that was looked at.
pub(super) struct Member {
    /// What is known of it, without its job and its owner's name.
    pub(super) candidate: Candidate,
    /// Its container, as its cgroup names it.
    pub(super) contained: Reading<Option<Contained>>,
    /// The person whom the label of its container names.
    pub(super) label: Option<String>,
    pub(super) unit: Reading<Option<Unit>>,
    pub(super) scheduler: Reading<Option<SchedulerJob>>,
    /// The user in whose slice it is.
    slice: Option<u32>,
    /// Whether its arguments matter and are not known.
    pub(super) lacks_arguments: bool,
    /// The thread that shows what it executes, where the first one has ended.
    speaker: Option<u32>,
}

impl Member {
    /// Of this pid. All of it is one process's.
    pub(super) fn read(place: &Place<'_>, pid: u32) -> io::Result<Self> {
        let directory = place.procfs.join(pid.to_string());
        let stat = Stat::read(&directory)?;
        let Status { uids, inner_pid } = Status::read(&directory);
        let group = group(&directory, place.view);
        let makers = user_namespace_makers(&directory, place.own_users);
        let speaker = speaker(&directory, &stat);
        let shown = directory_of(&directory, speaker);
        let kin = Kin {
            executable: executable(&shown).known().cloned(),
            unit: group.unit.known().cloned().flatten(),
            maker: makers.known().and_then(|makers| makers.person),
            ..kin(pid, &stat, uids.known().map(|uids| uids.real))
        };
        let namespace_owner = makers.map(|makers| makers.outermost);
        let is_contained = matches!(group.container, Reading::Value(Some(_)));
        let is_roots = is_contained && namespace_owner == Reading::Value(Some(0));
        let candidate = Candidate {
            namespace_root: is_roots.then(|| user_namespace_root(&directory)).flatten(),
            pid_namespace: is_contained.then(|| pid_namespace(&directory)).flatten(),
            is_namespace_init: inner_pid == Reading::Value(Some(1)),
            parent: stat.parent,
            is_kernel_thread: stat.flags & KERNEL_THREAD != 0,
            state: state(&stat, &directory),
            uids,
            namespace_owner,
            owner: Reading::Failed(NOT_ASKED.into()),
            command: Reading::Failed(NOT_ASKED.into()),
            container: Reading::Failed(NOT_ASKED.into()),
            job: Reading::Failed(NOT_ASKED.into()),
            program: Reading::Failed(NOT_ASKED.into()),
            at_seat: seat::is_display_at_seat(&kin.name, place.host_root, &group, kin.uid),
            kin,
        };
        // Had the pid changed hands meanwhile, this would be of two processes.
        if Stat::read(&directory)?.start_ticks != stat.start_ticks {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self {
            candidate,
            contained: group.container,
            label: None,
            unit: group.unit,
            scheduler: group.scheduler,
            slice: group.slice,
            lacks_arguments: false,
            speaker,
        })
    }

    /// The directory of the thread that shows what it executes.
    pub(super) fn shown_in(&self, root: &Path) -> PathBuf {
        let directory = root.join(self.candidate.kin.key.pid.to_string());
        directory_of(&directory, self.speaker)
    }

    /// The file of its command line.
    pub(super) fn cmdline(&self, root: &Path) -> PathBuf {
        self.shown_in(root).join("cmdline")
    }

    /// With what was known of the same process before, where that may hang.
    pub(super) fn recall(&mut self, before: Option<&Candidate>) {
        let now = &mut self.candidate;
        now.container = named_by_its_id(self.contained.clone());
        if let Some(before) = before.filter(|before| before.kin.key == now.kin.key) {
            now.command = before.command.clone();
            now.kin.arguments = before.kin.arguments.clone();
            if now.kin.executable == before.kin.executable {
                now.program = before.program.clone();
            }
        }
        // One that has no command line has no arguments either.
        self.lacks_arguments = now.kin.needs_arguments()
            && now.kin.arguments.is_none()
            && now.command != Reading::Unsupported;
    }

    /// With everything that was found out.
    pub(super) fn into_candidate(self, job: Option<Reading<Job>>, users: &Users) -> Candidate {
        let Self {
            mut candidate,
            label,
            slice,
            ..
        } = self;
        let uid = candidate.uids.clone().map(|uids| uids.real);
        let user = name_of(uid.clone(), users);
        let maker = candidate.namespace_owner.clone();
        let behind = users.behind(&uid, &maker, slice);
        let owner = owner(owner::Facts {
            uid: &uid,
            user: &user,
            behind: &behind,
            behind_user: &users.name_of_some(&behind),
            namespace_owner: &maker,
            namespace_user: &users.name_of_some(&maker),
            container: &candidate.container,
            label: label.as_deref(),
        });
        candidate.owner = owner.map(|owner| owner.name);
        if let Some(job) = job {
            candidate.job = job;
        }
        candidate
    }

    /// With what is known of it alone.
    pub(super) fn into_candidate_alone(self) -> Candidate {
        Candidate {
            container: named_by_its_id(self.contained),
            ..self.candidate
        }
    }
}

fn named_by_its_id(contained: Reading<Option<Contained>>) -> Reading<Option<Container>> {
    contained.map(|contained| contained.map(unnamed))
}

/// A container of which only its cgroup is known.
fn unnamed(contained: Contained) -> Container {
    let unknown = || Reading::Failed(NOT_ASKED.into());
    Container {
        id: contained.id,
        manager: match contained.teller {
            Teller::System => None,
            Teller::User(uid) => Some(uid),
        },
        name: unknown(),
        image: unknown(),
        pod: contained.pod.map(|uid| Pod {
            uid,
            name: unknown(),
            namespace: unknown(),
        }),
    }
}

/// The thread that tells what a process executes, where that is not the first
/// one: when that has ended and others go on, it shows neither executable nor
/// command line, and each of the others does.
fn speaker(directory: &Path, stat: &Stat) -> Option<u32> {
    if stat.state != 'Z' || stat.threads <= 1 {
        return None;
    }
    let tasks = std::fs::read_dir(directory.join("task")).ok()?;
    let tasks = tasks.flatten().take(THREADS);
    let mut threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    threads.find(|thread| {
        let shown = directory_of(directory, Some(*thread));
        std::fs::read_link(shown.join("exe")).is_ok()
    })
}

fn directory_of(directory: &Path, thread: Option<u32>) -> PathBuf {
    match thread {
        Some(thread) => directory.join("task").join(thread.to_string()),
        None => directory.to_owned(),
    }
}
