//! The ancestors of processes during one poll: the workers of a launcher share one read of it.

use super::cgroup::{CgroupLocation, CgroupView};
use super::namespace::{own_user_namespace, user_namespace_creators};
use super::status::StatusFile;
use crate::procfs::stat::Stat;
use crate::procfs::{MAX_CGROUP_BYTES, read_at_most, read_failure};
use gpukill_policy::job::{Ancestors, ProcessLineage};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The ancestors that one poll has read.
pub(super) struct AncestorCache<'a> {
    root: &'a Path,
    view: CgroupView,
    own_users: Option<PathBuf>,
    /// The lowest uid of a person.
    uid_min: u32,
    /// `None` where it cannot be read, mostly because it has just ended.
    entries: BTreeMap<u32, Option<AncestorEntry>>,
}

struct AncestorEntry {
    lineage: ProcessLineage,
    parent: u32,
}

/// How many ancestors of one process are read: more than any launcher's workers have. With more of
/// them the job is unknown.
pub(super) const MAX_ANCESTORS: usize = 256;

const EXECUTABLE_MAX: usize = 1024;

impl<'a> AncestorCache<'a> {
    /// A cache for the processes below this root.
    pub(super) fn new(root: &'a Path, view: CgroupView, uid_min: u32) -> Self {
        Self {
            root,
            view,
            own_users: own_user_namespace(),
            uid_min,
            entries: BTreeMap::new(),
        }
    }

    pub(super) fn ancestors_of(&mut self, child: &Stat) -> Ancestors {
        let (mut line, mut pid, mut latest_start) = (Vec::new(), child.parent, child.start_ticks);
        while pid > 1 {
            if line.len() == MAX_ANCESTORS {
                return Ancestors {
                    processes: line,
                    is_truncated: true,
                };
            }
            let Some(member) = self.entry(pid) else {
                break;
            };
            // A parent that started after its child has a reused PID: the real parent ended during
            // the read.
            if member.lineage.key.start_ticks > latest_start {
                break;
            }
            (pid, latest_start) = (member.parent, member.lineage.key.start_ticks);
            line.push(member.lineage.clone());
        }
        Ancestors {
            processes: line,
            is_truncated: false,
        }
    }

    fn entry(&mut self, pid: u32) -> Option<&AncestorEntry> {
        let (root, view, own_users) = (self.root, self.view, self.own_users.as_deref());
        let uid_min = self.uid_min;
        let member = self.entries.entry(pid);
        member
            .or_insert_with(|| read_entry(root, view, own_users, pid, uid_min))
            .as_ref()
    }
}

fn read_entry(
    root: &Path,
    view: CgroupView,
    own_users: Option<&Path>,
    pid: u32,
    uid_min: u32,
) -> Option<AncestorEntry> {
    let directory = root.join(pid.to_string());
    let stat = Stat::read(&directory).ok()?;
    let uids = StatusFile::read(&directory).uids;
    let unit = cgroup_location(&directory, view).unit;
    let makers = user_namespace_creators(&directory, own_users);
    Some(AncestorEntry {
        parent: stat.parent,
        lineage: ProcessLineage {
            executable: executable(&directory).known().cloned(),
            unit: unit.known().cloned().flatten(),
            namespace_creator: makers.known().and_then(|makers| makers.person),
            ..lineage(pid, &stat, uids.known().map(|uids| uids.real), uid_min)
        },
    })
}

/// The facts about a process that decide its job, as far as `stat` and its uid give them.
pub(super) fn lineage(pid: u32, stat: &Stat, uid: Option<u32>, uid_min: u32) -> ProcessLineage {
    ProcessLineage {
        key: ProcessKey::new(pid, stat.start_ticks),
        uid,
        uid_min,
        namespace_creator: None,
        name: stat.name.clone(),
        group: stat.group,
        session: stat.session,
        on_terminal: stat.terminal != 0,
        executable: None,
        arguments: None,
        unit: None,
    }
}

/// Where the host mounts its cgroup hierarchies, below the root of its `/proc`.
const CGROUP_MOUNTS: &str = "1/root/sys/fs/cgroup";

pub(super) fn cgroup_location(directory: &Path, view: CgroupView) -> CgroupLocation {
    let mounts = directory.parent().map(|procfs| procfs.join(CGROUP_MOUNTS));
    let read = read_at_most(&directory.join("cgroup"), MAX_CGROUP_BYTES);
    parse_cgroup(read, view, mounts.as_deref())
}

/// The location from the result of reading a cgroup file.
fn parse_cgroup(
    read: io::Result<Vec<u8>>,
    view: CgroupView,
    mounts: Option<&Path>,
) -> CgroupLocation {
    match read {
        Ok(text) => CgroupLocation::parse(&String::from_utf8_lossy(&text), view, mounts),
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
            CgroupLocation::too_deep()
        }
        Err(error) => CgroupLocation::unknown(&read_failure(error)),
    }
}

pub(super) fn executable(directory: &Path) -> Reading<String> {
    match std::fs::read_link(directory.join("exe")) {
        Ok(path) => Reading::Value(sanitize(path.as_os_str().as_bytes(), EXECUTABLE_MAX)),
        // Kernel threads and zombies have none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) => read_failure(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes below a root, each with its parent and its start.
    fn tree(processes: &[(u32, u32, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent, start) in processes {
            let directory = root.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            let zeros = "0 ".repeat(14);
            let stat = format!("{pid} (p{pid}) S {parent} 0 0 0 {zeros}{start} 0 0");
            std::fs::write(directory.join("stat"), stat).unwrap();
            std::fs::write(directory.join("status"), format!("Uid:\t{pid}\t0\t0\t0\n")).unwrap();
        }
        root
    }

    fn family(root: &Path) -> AncestorCache<'_> {
        AncestorCache::new(root, CgroupView::Whole, 1000)
    }

    fn ancestors(root: &Path, pid: u32) -> Ancestors {
        family(root).ancestors_of(&Stat::read(&root.join(pid.to_string())).unwrap())
    }

    fn above(root: &Path, pid: u32) -> Vec<u32> {
        let ancestors = ancestors(root, pid).processes.into_iter();
        ancestors.map(|lineage| lineage.key.pid).collect()
    }

    #[test]
    fn too_deep_cgroup_is_no_location() {
        let read = |errno: Errno| parse_cgroup(Err(errno.into()), CgroupView::Whole, None);
        let deep = read(Errno::NAMETOOLONG);
        assert_eq!(deep.container, Reading::Value(None));
        assert_eq!(deep.unit, Reading::Value(None));
        assert_eq!(deep.scheduler, Reading::Value(None));
        for errno in [Errno::IO, Errno::ACCESS, Errno::NOENT, Errno::SRCH] {
            let unknown = read(errno);
            let is_unknown = [
                unknown.container.known().is_none(),
                unknown.unit.known().is_none(),
                unknown.scheduler.known().is_none(),
            ];
            assert_eq!(is_unknown, [true; 3], "{errno}");
        }
    }

    #[test]
    fn ancestors_are_nearest_first_without_pid_1() {
        let root = tree(&[(1, 0, 0), (10, 1, 5), (20, 10, 6), (30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [20, 10]);
        assert_eq!(above(root.path(), 10), [0; 0]);
        let parent = &ancestors(root.path(), 30).processes[0];
        assert_eq!((parent.uid, parent.name.as_str()), (Some(20), "p20"));
    }

    #[test]
    fn parent_started_after_child_is_another() {
        let root = tree(&[(10, 1, 5), (20, 10, 9), (30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [0; 0]);
    }

    #[test]
    fn missing_parent_and_cycle_end_the_chain() {
        let root = tree(&[(30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [0; 0]);
        let ring = tree(&[(20, 30, 7), (30, 20, 7)]);
        let ancestors = ancestors(ring.path(), 30);
        assert_eq!(
            (ancestors.processes.len(), ancestors.is_truncated),
            (MAX_ANCESTORS, true)
        );
    }

    #[test]
    fn long_chain_is_truncated() {
        for (depth, is_cut) in [(MAX_ANCESTORS, false), (MAX_ANCESTORS + 1, true)] {
            let depth = u32::try_from(depth).unwrap();
            let processes: Vec<_> = (2..depth + 3)
                .map(|pid| (pid, pid - 1, u64::from(pid)))
                .collect();
            let root = tree(&processes);
            let ancestors = ancestors(root.path(), depth + 2);
            assert_eq!(
                (ancestors.processes.len(), ancestors.is_truncated),
                (MAX_ANCESTORS, is_cut)
            );
        }
    }

    #[test]
    fn ancestor_shows_executable_and_unit() {
        let root = tree(&[(20, 1, 6), (30, 20, 7)]);
        let program = "/home/a/.vscode-server/bin/1/node";
        std::os::unix::fs::symlink(program, root.path().join("20/exe")).unwrap();
        std::fs::write(
            root.path().join("20/cgroup"),
            "0::/system.slice/x.service\n",
        )
        .unwrap();
        let parent = &ancestors(root.path(), 30).processes[0];
        assert_eq!(parent.executable.as_deref(), Some(program));
        let unit = parent.unit.as_ref().map(|unit| unit.name.as_str());
        assert_eq!(unit, Some("x.service"));
    }

    #[test]
    fn ancestor_is_read_once() {
        let root = tree(&[(20, 1, 6), (30, 20, 7), (31, 20, 7)]);
        let children = ["30", "31"].map(|pid| Stat::read(&root.path().join(pid)).unwrap());
        let mut family = family(root.path());
        assert_eq!(family.ancestors_of(&children[0]).processes.len(), 1);
        std::fs::remove_dir_all(root.path().join("20")).unwrap();
        assert_eq!(family.ancestors_of(&children[1]).processes.len(), 1);
    }
}
