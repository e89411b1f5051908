//! Determines whether a process executes a file of the host, or one of a container or another mount
//! namespace. The lookup may hang, on a network file system for example: a thread does it and is
//! waited for only for a limited time.

use super::entry::ProcessEntry;
use crate::procfs::read_failure;
use crate::procfs::stat::Stat;
use gpukill_policy::kill::ProgramOrigin;
use gpukill_policy::kill::protection::may_be_protected_by_name;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
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

/// How many lookups may run at once: one that hangs stays. Without a result a process is protected.
const MAX_RUNNING: usize = 8;

/// Why a result is missing.
const NOT_YET_KNOWN: &str = "not known yet";

/// The kernel's suffix for the path of a deleted or replaced file.
const DELETED: &[u8] = b" (deleted)";

/// Starts lookups. Clones share the number of running ones.
#[derive(Clone)]
pub(super) struct ProgramOriginReader {
    procfs: PathBuf,
    running: Arc<AtomicUsize>,
}

/// A lookup that was started; `None` where none could be.
pub(super) struct PendingOrigins(Option<Receiver<(ProcessKey, Reading<ProgramOrigin>)>>);

impl ProgramOriginReader {
    pub(super) fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            running: Arc::default(),
        }
    }

    /// Starts a lookup for the processes that it matters for.
    pub(super) fn start(
        &self,
        members: &BTreeMap<u32, ProcessEntry>,
        uid_min: u32,
    ) -> PendingOrigins {
        let matters = |member: &&ProcessEntry| {
            let process = &member.info;
            let maker = process.namespace_owner.known().copied().flatten();
            maker.is_none()
                && process.lineage.executable.is_some()
                && may_be_protected_by_name(&process.lineage, &process.uids, uid_min)
        };
        let queried = members.values().filter(matters);
        let queried: Vec<(ProcessKey, PathBuf)> = queried
            .map(|member| {
                (
                    member.info.lineage.key,
                    member.visible_directory(&self.procfs),
                )
            })
            .collect();
        if queried.is_empty() || self.running.load(Ordering::Relaxed) >= MAX_RUNNING {
            return PendingOrigins(None);
        }
        let (procfs, under_way) = (self.procfs.clone(), Arc::clone(&self.running));
        under_way.fetch_add(1, Ordering::Relaxed);
        let (sender, origins) = channel();
        let work = move || {
            let mut host = HostFiles::new(procfs);
            for (key, directory) in queried {
                // An error means that the receiver is gone.
                if sender.send((key, host.origin(key, &directory))).is_err() {
                    break;
                }
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
        };
        let name = "origins".to_owned();
        let started = std::thread::Builder::new().name(name).spawn(work);
        if started.is_err() {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
        PendingOrigins(started.is_ok().then_some(origins))
    }
}

impl PendingOrigins {
    /// Fills in the results that arrive in time.
    pub(super) fn fill(self, members: &mut BTreeMap<u32, ProcessEntry>, timeout: Duration) {
        for member in members.values_mut() {
            member.info.program = Reading::Failed(NOT_YET_KNOWN.into());
        }
        let Some(origins) = self.0 else {
            return;
        };
        let deadline = Instant::now() + timeout;
        while let Ok((key, origin)) =
            origins.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let member = members.get_mut(&key.pid);
            if let Some(member) = member.filter(|member| member.info.lineage.key == key) {
                member.info.program = origin;
            }
        }
    }
}

/// A file, by device and inode.
type FileId = (u32, u32, u64);

/// The host's files as its first process sees them.
struct HostFiles {
    procfs: PathBuf,
    root: PathBuf,
    /// Earlier lookups by path.
    known: HashMap<PathBuf, Option<FileId>>,
}

impl HostFiles {
    fn new(procfs: PathBuf) -> Self {
        Self {
            root: procfs.join("1/root"),
            procfs,
            known: HashMap::new(),
        }
    }

    fn origin(&mut self, key: ProcessKey, directory: &Path) -> Reading<ProgramOrigin> {
        let origin = match self.compare(directory) {
            Ok(origin) => Reading::Value(origin),
            Err(error) => read_failure(error),
        };
        // If the PID was reused meanwhile, the result would be of another process.
        match Stat::read(&self.procfs.join(key.pid.to_string())) {
            Ok(stat) if stat.start_ticks == key.start_ticks => origin,
            Ok(_) | Err(_) => Reading::Failed("the process has ended".into()),
        }
    }

    fn compare(&mut self, directory: &Path) -> io::Result<ProgramOrigin> {
        let path = std::fs::read_link(directory.join("exe"))?;
        if path.as_os_str().as_bytes().ends_with(DELETED) {
            return Ok(match self.sees_host_root(directory)? {
                true => ProgramOrigin::Replaced,
                false => ProgramOrigin::Elsewhere,
            });
        }
        let own = file_id(&directory.join("exe"))?;
        Ok(match self.host_file(&path)? {
            Some(file) if file == own => ProgramOrigin::Host,
            Some(_) | None => ProgramOrigin::Elsewhere,
        })
    }

    /// The host's file at this path; `None` where there is none. The kernel's path has no links and
    /// dots.
    fn host_file(&mut self, path: &Path) -> io::Result<Option<FileId>> {
        if let Some(known) = self.known.get(path) {
            return Ok(*known);
        }
        let relative = path.strip_prefix("/").unwrap_or(path);
        // Without this check every file would seem to be missing.
        file_id(&self.root)?;
        let found = match file_id(&self.root.join(relative)) {
            Ok(found) => Some(found),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(error),
        };
        self.known.insert(path.to_owned(), found);
        Ok(found)
    }

    /// Whether this process sees the host's root directory: it is in the host's mount namespace, or
    /// in a private one of a service.
    fn sees_host_root(&self, directory: &Path) -> io::Result<bool> {
        let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt"));
        let host = namespace(&self.procfs.join("1"))?;
        Ok(namespace(directory)? == host
            || file_id(&directory.join("root"))? == file_id(&self.root)?)
    }
}

fn is_missing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
}

/// Uses the kernel's cache: a file system in user space is not asked.
fn file_id(path: &Path) -> io::Result<FileId> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let path: &OsStr = path.as_os_str();
    let found = statx(CWD, path, flags, StatxFlags::INO)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The origin of a process of this tree that executes the file at this path.
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
        let key = ProcessKey::new(7, 500);
        HostFiles::new(root.join("proc")).origin(key, &directory)
    }

    #[test]
    fn host_file_is_matched_by_device_and_inode() {
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
        // A host without such a file, and one with another file.
        let host = root.join("host");
        std::fs::create_dir(&host).unwrap();
        std::fs::remove_file(root.join("proc/1/root")).unwrap();
        symlink(&host, root.join("proc/1/root")).unwrap();
        assert_eq!(origin(root, &file, root), value(ProgramOrigin::Elsewhere));
        let there = host.join(file.strip_prefix("/").unwrap());
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::write(there, "x").unwrap();
        assert_eq!(origin(root, &file, root), value(ProgramOrigin::Elsewhere));
        // Nothing is known where the host's root cannot be read.
        std::fs::remove_file(root.join("proc/1/root")).unwrap();
        assert!(origin(root, &file, root).failure().is_some());
    }
}
