//! Whose file a process executes: the host's, or one of a container or of a mount
//! namespace. Looking a file up may hang, on a network file system for example: a
//! thread does it, and is waited for only so long.

use super::member::Member;
use crate::procfs::file::failed;
use crate::procfs::stat::Stat;
use gpukill_policy::kill::ProgramOrigin;
use gpukill_policy::kill::protected::may_be_protected_by_name;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// So many looks may be under way at once: one that hangs stays. What later ones do
/// not know protects.
const AT_ONCE: usize = 8;

/// Why an answer is missing.
const NOT_YET: &str = "not known yet";

/// What the kernel adds to the path of a file that was deleted or replaced.
const DELETED: &[u8] = b" (deleted)";

/// Starts the looks. Clones share the count of those that are under way.
#[derive(Clone)]
pub(super) struct Origins {
    procfs: PathBuf,
    under_way: Arc<AtomicUsize>,
}

/// One look that was begun; `None` where none could be.
pub(super) struct Begun(Option<Receiver<(ProcessKey, Reading<ProgramOrigin>)>>);

impl Origins {
    pub(super) fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            under_way: Arc::default(),
        }
    }

    /// Begins to look at those of which it matters.
    pub(super) fn begin(&self, members: &BTreeMap<u32, Member>, uid_min: u32) -> Begun {
        let matters = |member: &&Member| {
            let process = &member.candidate;
            let maker = process.namespace_owner.known().copied().flatten();
            maker.is_none()
                && process.kin.executable.is_some()
                && may_be_protected_by_name(&process.kin, &process.uids, uid_min)
        };
        let asked = members.values().filter(matters);
        let asked: Vec<(ProcessKey, PathBuf)> = asked
            .map(|member| (member.candidate.kin.key, member.shown_in(&self.procfs)))
            .collect();
        if asked.is_empty() || self.under_way.load(Ordering::Relaxed) >= AT_ONCE {
            return Begun(None);
        }
        let (procfs, under_way) = (self.procfs.clone(), Arc::clone(&self.under_way));
        under_way.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = channel();
        let look = move || {
            let mut host = Host::new(procfs);
            for (key, directory) in asked {
                // Nobody waits any more where this fails.
                if tell.send((key, host.origin(key, &directory))).is_err() {
                    break;
                }
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
        };
        let name = "origins".to_owned();
        let started = std::thread::Builder::new().name(name).spawn(look);
        if started.is_err() {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        Begun(started.is_ok().then_some(told))
    }
}

impl Begun {
    /// Fills in what comes in time.
    pub(super) fn fill(self, members: &mut BTreeMap<u32, Member>, patience: Duration) {
        for member in members.values_mut() {
            member.candidate.program = Reading::Failed(NOT_YET.into());
        }
        let Some(told) = self.0 else {
            return;
        };
        let deadline = Instant::now() + patience;
        while let Ok((key, origin)) =
            told.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let member = members.get_mut(&key.pid);
            if let Some(member) = member.filter(|member| member.candidate.kin.key == key) {
                member.candidate.program = origin;
            }
        }
    }
}

/// A file, by device and inode.
type Identity = (u32, u32, u64);

/// The host's files, as its first process sees them.
struct Host {
    procfs: PathBuf,
    root: PathBuf,
    /// What was looked up already, by path.
    known: HashMap<PathBuf, Option<Identity>>,
}

impl Host {
    fn new(procfs: PathBuf) -> Self {
        Self {
            root: procfs.join("1/root"),
            procfs,
            known: HashMap::new(),
        }
    }

    /// Of the process with this key, which this directory shows.
    fn origin(&mut self, key: ProcessKey, directory: &Path) -> Reading<ProgramOrigin> {
        let origin = match self.compared(directory) {
            Ok(origin) => Reading::Value(origin),
            Err(error) => failed(error),
        };
        // Had the pid changed hands meanwhile, it would be another's.
        match Stat::read(&self.procfs.join(key.pid.to_string())) {
            Ok(stat) if stat.start_ticks == key.start_ticks => origin,
            Ok(_) | Err(_) => Reading::Failed("the process has ended".into()),
        }
    }

    fn compared(&mut self, directory: &Path) -> io::Result<ProgramOrigin> {
        let path = std::fs::read_link(directory.join("exe"))?;
        if path.as_os_str().as_bytes().ends_with(DELETED) {
            return Ok(match self.is_root_of(directory)? {
                true => ProgramOrigin::Replaced,
                false => ProgramOrigin::Elsewhere,
            });
        }
        let own = identity(&directory.join("exe"))?;
        Ok(match self.file(&path)? {
            Some(file) if file == own => ProgramOrigin::Host,
            Some(_) | None => ProgramOrigin::Elsewhere,
        })
    }

    /// The host's file of this path; `None` where it has none. The kernel tells the
    /// path without links and dots.
    fn file(&mut self, path: &Path) -> io::Result<Option<Identity>> {
        if let Some(known) = self.known.get(path) {
            return Ok(*known);
        }
        let relative = path.strip_prefix("/").unwrap_or(path);
        // Otherwise every file would seem to be missing.
        identity(&self.root)?;
        let found = match identity(&self.root.join(relative)) {
            Ok(found) => Some(found),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(error),
        };
        self.known.insert(path.to_owned(), found);
        Ok(found)
    }

    /// Whether this process sees the host's root directory: it is in the host's mount
    /// namespace, or in one that a service has to itself.
    fn is_root_of(&self, directory: &Path) -> io::Result<bool> {
        let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt"));
        let host = namespace(&self.procfs.join("1"))?;
        Ok(namespace(directory)? == host
            || identity(&directory.join("root"))? == identity(&self.root)?)
    }
}

fn is_missing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
}

/// By what the kernel has cached: a file system in user space is not asked.
fn identity(path: &Path) -> io::Result<Identity> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let path: &OsStr = path.as_os_str();
    let found = statx(CWD, path, flags, StatxFlags::INO)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A process of this tree that executes the file of this path.
    fn origin(root: &Path, exe: &Path, sees: &Path) -> Reading<ProgramOrigin> {
        let directory = root.join("proc/7");
        std::fs::remove_dir_all(&directory).ok();
        std::fs::create_dir_all(directory.join("ns")).unwrap();
        std::fs::write(
            directory.join("stat"),
            "7 (x) S 1 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 500 0 0",
        )
        .unwrap();
        symlink(exe, directory.join("exe")).unwrap();
        symlink("mnt:[2]", directory.join("ns/mnt")).unwrap();
        symlink(sees, directory.join("root")).unwrap();
        let key = ProcessKey {
            pid: 7,
            start_ticks: 500,
        };
        Host::new(root.join("proc")).origin(key, &directory)
    }

    #[test]
    fn a_file_is_the_hosts_by_device_and_inode_and_not_by_its_path() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        // The links of this tree are real ones: the host's root is "/".
        std::fs::create_dir_all(root.join("proc/1/ns")).unwrap();
        symlink("/", root.join("proc/1/root")).unwrap();
        symlink("mnt:[1]", root.join("proc/1/ns/mnt")).unwrap();
        let file = root.join("Xorg");
        std::fs::write(&file, "x").unwrap();
        let value = Reading::Value;
        assert_eq!(origin(root, &file, root), value(ProgramOrigin::Host));
        let deleted = root.join("Xorg (deleted)");
        assert_eq!(
            origin(root, &deleted, Path::new("/")),
            value(ProgramOrigin::Replaced)
        );
        assert_eq!(
            origin(root, &deleted, root),
            value(ProgramOrigin::Elsewhere)
        );
        // A host that has no such file, and one that has another.
        let host = root.join("host");
        std::fs::create_dir(&host).unwrap();
        std::fs::remove_file(root.join("proc/1/root")).unwrap();
        symlink(&host, root.join("proc/1/root")).unwrap();
        assert_eq!(origin(root, &file, root), value(ProgramOrigin::Elsewhere));
        let there = host.join(file.strip_prefix("/").unwrap());
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::write(there, "x").unwrap();
        assert_eq!(origin(root, &file, root), value(ProgramOrigin::Elsewhere));
        // Of a host that cannot be seen nothing is known.
        std::fs::remove_file(root.join("proc/1/root")).unwrap();
        assert!(origin(root, &file, root).failure().is_some());
    }
}
