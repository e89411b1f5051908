//! The ancestors of processes, as they are during one poll: many workers of one
//! launcher cost one look at it.

use super::cgroup::{CGROUP_MAX, Group, View};
use super::namespace::{own_users, user_namespace_makers};
use super::status::Status;
use crate::procfs::file::{failed, read_at_most};
use crate::procfs::stat::Stat;
use gpukill_policy::job::{Ancestors, Kin};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::visible;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Ancestors that one poll has looked at.
pub(super) struct Family<'a> {
    root: &'a Path,
    view: View,
    own_users: Option<PathBuf>,
    /// `None`: it cannot be read, mostly for that it has just ended.
    members: BTreeMap<u32, Option<Member>>,
}

struct Member {
    kin: Kin,
    parent: u32,
}

/// So many ancestors of one process are looked at. Deeper than any launcher's
/// workers lie; above it, a job is not known.
pub(super) const MOST: usize = 256;

/// The longest path of an executable that is kept.
const EXECUTABLE_MAX: usize = 1024;

impl<'a> Family<'a> {
    /// Of the processes below this root.
    pub(super) fn new(root: &'a Path, view: View) -> Self {
        Self {
            root,
            view,
            own_users: own_users(),
            members: BTreeMap::new(),
        }
    }

    /// The ancestors of a process.
    pub(super) fn above(&mut self, child: &Stat) -> Ancestors {
        let (mut line, mut pid, mut born) = (Vec::new(), child.parent, child.start_ticks);
        while pid > 1 {
            if line.len() == MOST {
                return Ancestors { line, is_cut: true };
            }
            let Some(member) = self.member(pid) else {
                break;
            };
            // A parent that began after its child has its pid from another,
            // which ended while we looked.
            if member.kin.key.start_ticks > born {
                break;
            }
            (pid, born) = (member.parent, member.kin.key.start_ticks);
            line.push(member.kin.clone());
        }
        Ancestors {
            line,
            is_cut: false,
        }
    }

    fn member(&mut self, pid: u32) -> Option<&Member> {
        let (root, view, own_users) = (self.root, self.view, self.own_users.as_deref());
        let member = self.members.entry(pid);
        member
            .or_insert_with(|| read(root, view, own_users, pid))
            .as_ref()
    }
}

fn read(root: &Path, view: View, own_users: Option<&Path>, pid: u32) -> Option<Member> {
    let directory = root.join(pid.to_string());
    let stat = Stat::read(&directory).ok()?;
    let uids = Status::read(&directory).uids;
    let unit = group(&directory, view).unit;
    let makers = user_namespace_makers(&directory, own_users);
    Some(Member {
        parent: stat.parent,
        kin: Kin {
            executable: executable(&directory).known().cloned(),
            unit: unit.known().cloned().flatten(),
            maker: makers.known().and_then(|makers| makers.person),
            ..kin(pid, &stat, uids.known().map(|uids| uids.real))
        },
    })
}

/// What matters of a process for its job, as far as these two tell it.
pub(super) fn kin(pid: u32, stat: &Stat, uid: Option<u32>) -> Kin {
    Kin {
        key: ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        },
        uid,
        maker: None,
        name: stat.name.clone(),
        group: stat.group,
        session: stat.session,
        on_terminal: stat.terminal != 0,
        executable: None,
        arguments: None,
        unit: None,
    }
}

/// Where the process of this directory runs, by its control groups.
pub(super) fn group(directory: &Path, view: View) -> Group {
    group_of(read_at_most(&directory.join("cgroup"), CGROUP_MAX), view)
}

/// Where a process runs whose control groups were read so.
fn group_of(read: io::Result<Vec<u8>>, view: View) -> Group {
    match read {
        Ok(text) => Group::parse(&String::from_utf8_lossy(&text), view),
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
            Group::too_deep()
        }
        Err(error) => Group::unknown(&failed(error)),
    }
}

/// What the process of this directory executes.
pub(super) fn executable(directory: &Path) -> Reading<String> {
    match std::fs::read_link(directory.join("exe")) {
        Ok(path) => Reading::Value(visible(path.as_os_str().as_bytes(), EXECUTABLE_MAX)),
        // Kernel threads and zombies have none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) => failed(error),
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

    fn family(root: &Path) -> Family<'_> {
        Family::new(root, View::Whole)
    }

    fn above(root: &Path, pid: u32) -> Vec<u32> {
        let stat = std::fs::read(root.join(format!("{pid}/stat"))).unwrap();
        let ancestors = family(root).above(&Stat::parse(&stat).unwrap());
        ancestors.line.iter().map(|kin| kin.key.pid).collect()
    }

    #[test]
    fn a_group_too_deep_to_be_told_is_nobodys_and_another_error_leaves_it_unknown() {
        let read = |errno: Errno| group_of(Err(errno.into()), View::Whole);
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
    fn ancestors_are_told_from_the_nearest_to_below_pid_1() {
        let root = tree(&[(1, 0, 0), (10, 1, 5), (20, 10, 6), (30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [20, 10]);
        assert_eq!(above(root.path(), 10), [0; 0]);
        let stat = std::fs::read(root.path().join("30/stat")).unwrap();
        let ancestors = family(root.path()).above(&Stat::parse(&stat).unwrap());
        let parent = &ancestors.line[0];
        assert_eq!((parent.uid, parent.name.as_str()), (Some(20), "p20"));
    }

    #[test]
    fn a_parent_that_began_after_its_child_is_another_process() {
        let root = tree(&[(10, 1, 5), (20, 10, 9), (30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [0; 0]);
    }

    #[test]
    fn a_missing_parent_ends_the_line_and_a_ring_of_parents_too() {
        let root = tree(&[(30, 20, 7)]);
        assert_eq!(above(root.path(), 30), [0; 0]);
        let ring = tree(&[(20, 30, 7), (30, 20, 7)]);
        let stat = std::fs::read(ring.path().join("30/stat")).unwrap();
        let ancestors = family(ring.path()).above(&Stat::parse(&stat).unwrap());
        assert_eq!((ancestors.line.len(), ancestors.is_cut), (MOST, true));
    }

    #[test]
    fn a_line_is_followed_to_its_end_and_is_known_to_be_cut_above_that() {
        for (depth, is_cut) in [(MOST, false), (MOST + 1, true)] {
            let depth = u32::try_from(depth).unwrap();
            let processes: Vec<_> = (2..depth + 3)
                .map(|pid| (pid, pid - 1, u64::from(pid)))
                .collect();
            let root = tree(&processes);
            let stat = std::fs::read(root.path().join(format!("{}/stat", depth + 2))).unwrap();
            let ancestors = family(root.path()).above(&Stat::parse(&stat).unwrap());
            assert_eq!((ancestors.line.len(), ancestors.is_cut), (MOST, is_cut));
        }
    }

    #[test]
    fn an_ancestor_tells_what_it_executes_and_which_unit_it_is_in() {
        let root = tree(&[(20, 1, 6), (30, 20, 7)]);
        let program = "/home/a/.vscode-server/bin/1/node";
        std::os::unix::fs::symlink(program, root.path().join("20/exe")).unwrap();
        std::fs::write(
            root.path().join("20/cgroup"),
            "0::/system.slice/x.service\n",
        )
        .unwrap();
        let stat = std::fs::read(root.path().join("30/stat")).unwrap();
        let ancestors = family(root.path()).above(&Stat::parse(&stat).unwrap());
        let parent = &ancestors.line[0];
        assert_eq!(parent.executable.as_deref(), Some(program));
        let unit = parent.unit.as_ref().map(|unit| unit.name.as_str());
        assert_eq!(unit, Some("x.service"));
    }

    #[test]
    fn what_was_looked_at_once_is_not_looked_at_again() {
        let root = tree(&[(20, 1, 6), (30, 20, 7), (31, 20, 7)]);
        let stat = |pid| std::fs::read(root.path().join(format!("{pid}/stat"))).unwrap();
        let children = [30, 31].map(|pid| Stat::parse(&stat(pid)).unwrap());
        let mut family = family(root.path());
        assert_eq!(family.above(&children[0]).line.len(), 1);
        std::fs::remove_dir_all(root.path().join("20")).unwrap();
        assert_eq!(family.above(&children[1]).line.len(), 1);
    }
}
