//! One process of the table, from files that never hang.

use crate::host::ancestors::{cgroup_location, executable, lineage};
use crate::host::cgroup::{CgroupContainer, CgroupView};
use crate::host::namespace::{pid_namespace, user_namespace_creators, user_namespace_root};
use crate::host::process_metadata::user_name;
use crate::host::process_state::process_state;
use crate::host::seat;
use crate::host::status::StatusFile;
use crate::host::users::Users;
use crate::procfs::stat::Stat;
use gpukill_policy::job::ProcessLineage;
use gpukill_policy::kill::ProcessInfo;
use gpukill_policy::owner::{self, determine_owner};
use gpukill_proto::model::{Container, Job, Pod, SchedulerJob, Unit};
use gpukill_proto::reading::Reading;
use std::io;
use std::path::{Path, PathBuf};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// How many threads are tried when the first one has ended.
const MAX_THREADS: usize = 64;

/// Why a value is unknown that this read leaves out.
const NOT_REQUESTED: &str = "not requested";

pub(super) struct ReadRoots<'a> {
    pub(super) procfs: &'a Path,
    pub(super) host_root: &'a Path,
    pub(super) view: CgroupView,
    pub(super) own_users: Option<&'a Path>,
    /// The lowest uid of a person.
    pub(super) uid_min: u32,
}

pub(super) struct ProcessEntry {
    /// Its data without its job and its owner's name.
    pub(super) info: ProcessInfo,
    pub(super) cgroup_container: Reading<Option<CgroupContainer>>,
    /// The person that its container's label names.
    pub(super) owner_label: Option<String>,
    pub(super) unit: Reading<Option<Unit>>,
    pub(super) scheduler: Reading<Option<SchedulerJob>>,
    /// The user of its user slice.
    slice: Option<u32>,
    /// Whether relevant arguments are unknown.
    pub(super) lacks_arguments: bool,
    /// The thread that shows its executable, where the first thread has ended.
    live_thread: Option<u32>,
}

impl ProcessEntry {
    /// Reads this PID; all of the data belongs to one process.
    pub(super) fn read(roots: &ReadRoots<'_>, pid: u32) -> io::Result<Self> {
        let directory = roots.procfs.join(pid.to_string());
        let stat = Stat::read(&directory)?;
        let StatusFile { uids, inner_pid } = StatusFile::read(&directory);
        let group = cgroup_location(&directory, roots.view);
        let makers = user_namespace_creators(&directory, roots.own_users);
        let uid = uids.known().map(|uids| uids.real);
        let thread = find_live_thread(&directory, &stat);
        let shown = thread_directory(&directory, thread);
        let lineage = ProcessLineage {
            executable: executable(&shown).known().cloned(),
            unit: group.unit.known().cloned().flatten(),
            namespace_creator: makers.known().and_then(|makers| makers.person),
            ..lineage(pid, &stat, uid, roots.uid_min)
        };
        let namespace_owner = makers.map(|makers| makers.outermost);
        let is_contained = matches!(group.container, Reading::Value(Some(_)));
        let is_root_container = is_contained && namespace_owner == Reading::Value(Some(0));
        let info = ProcessInfo {
            namespace_root: is_root_container
                .then(|| user_namespace_root(&directory))
                .flatten(),
            pid_namespace: is_contained.then(|| pid_namespace(&directory)).flatten(),
            is_namespace_init: inner_pid == Reading::Value(Some(1)),
            parent: stat.parent,
            is_kernel_thread: stat.flags & KERNEL_THREAD != 0,
            state: process_state(&stat, &directory),
            uids,
            namespace_owner,
            owner: Reading::Failed(NOT_REQUESTED.into()),
            person_name: Reading::Failed(NOT_REQUESTED.into()),
            command: Reading::Failed(NOT_REQUESTED.into()),
            container: Reading::Failed(NOT_REQUESTED.into()),
            job: Reading::Failed(NOT_REQUESTED.into()),
            program: Reading::Failed(NOT_REQUESTED.into()),
            at_seat: seat::is_display_at_seat(&lineage.name, roots.host_root, &group, lineage.uid),
            lineage,
        };
        // If the PID was reused meanwhile, the data would be of two processes.
        if Stat::read(&directory)?.start_ticks != stat.start_ticks {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self {
            info,
            cgroup_container: group.container,
            owner_label: None,
            unit: group.unit,
            scheduler: group.scheduler,
            slice: group.slice,
            lacks_arguments: false,
            live_thread: thread,
        })
    }

    /// The directory of the thread that shows its executable.
    pub(super) fn visible_directory(&self, root: &Path) -> PathBuf {
        let directory = root.join(self.info.lineage.key.pid.to_string());
        thread_directory(&directory, self.live_thread)
    }

    pub(super) fn cmdline(&self, root: &Path) -> PathBuf {
        self.visible_directory(root).join("cmdline")
    }

    /// Takes values that a read may hang on from the same process in an earlier table.
    pub(super) fn inherit(&mut self, before: Option<&ProcessInfo>) {
        let now = &mut self.info;
        now.container = container_by_id(self.cgroup_container.clone());
        if let Some(before) = before.filter(|before| before.lineage.key == now.lineage.key) {
            now.command = before.command.clone();
            now.lineage.arguments = before.lineage.arguments.clone();
            if now.lineage.executable == before.lineage.executable {
                now.program = before.program.clone();
            }
        }
        // A process without a command line has no arguments either.
        self.lacks_arguments = now.lineage.needs_arguments()
            && now.lineage.arguments.is_none()
            && now.command != Reading::Unsupported;
    }

    pub(super) fn into_info(self, job: Option<Reading<Job>>, users: &Users) -> ProcessInfo {
        let Self {
            mut info,
            owner_label: label,
            slice,
            ..
        } = self;
        let uid = info.uids.clone().map(|uids| uids.real);
        let user = user_name(uid.clone(), users);
        let maker = info.namespace_owner.clone();
        let namespace_user = users.name_of_optional(&maker);
        let behind = users.person_behind(&uid, &maker, slice);
        let owner = determine_owner(owner::OwnerFacts {
            uid: &uid,
            user: &user,
            person_behind: &behind,
            person_behind_name: &users.name_of_optional(&behind),
            namespace_owner: &maker,
            namespace_user: &namespace_user,
            container: &info.container,
            label: label.as_deref(),
        });
        info.owner = owner.map(|owner| owner.name);
        info.person_name = match maker.known() {
            Some(Some(_)) => namespace_user,
            Some(None) | None => user,
        };
        if let Some(job) = job {
            info.job = job;
        }
        info
    }

    /// The info without its job and its owner's name.
    pub(super) fn into_info_alone(self) -> ProcessInfo {
        ProcessInfo {
            container: container_by_id(self.cgroup_container),
            ..self.info
        }
    }
}

fn container_by_id(contained: Reading<Option<CgroupContainer>>) -> Reading<Option<Container>> {
    contained.map(|contained| contained.map(unnamed_container))
}

/// A container with only its cgroup known.
fn unnamed_container(contained: CgroupContainer) -> Container {
    let unknown = || Reading::Failed(NOT_REQUESTED.into());
    Container {
        id: contained.id,
        manager: contained.manager.uid(),
        name: unknown(),
        image: unknown(),
        pod: contained.pod.map(|uid| Pod {
            uid,
            name: unknown(),
            namespace: unknown(),
        }),
    }
}

/// A thread other than the first that shows the executable: when the first thread has ended and
/// others run, only the others show executable and command line.
fn find_live_thread(directory: &Path, stat: &Stat) -> Option<u32> {
    if stat.state != 'Z' || stat.threads <= 1 {
        return None;
    }
    let tasks = std::fs::read_dir(directory.join("task")).ok()?;
    let tasks = tasks.flatten().take(MAX_THREADS);
    let mut threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    threads.find(|thread| {
        let shown = thread_directory(directory, Some(*thread));
        std::fs::read_link(shown.join("exe")).is_ok()
    })
}

fn thread_directory(directory: &Path, thread: Option<u32>) -> PathBuf {
    match thread {
        Some(thread) => directory.join("task").join(thread.to_string()),
        None => directory.to_owned(),
    }
}
