//! Every process of the box at one moment, for whoever plans to end some.

mod member;

mod asking;

mod kinship;

use super::namespace;
use super::users::Users;
use crate::procfs::file::read_at_most;
use asking::Asking;
use gpukill_policy::kill::{Candidate, Crowd};
use kinship::Kinship;
use member::Member;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where processes are looked up. Each look is a fresh one: nothing that it finds
/// is kept for the next, and none of it is the poll's. Only the threads that ask
/// for what may hang stay, so that a process that is stuck costs one of them, and
/// not one at each look. Clones share them.
#[derive(Clone)]
pub(crate) struct Crowds {
    procfs: PathBuf,
    /// Below which the files of container runtimes lie.
    host_root: PathBuf,
    /// The label of a container that names whose it is.
    owner_label: String,
    /// `None` before the first look: most days nobody plans anything.
    asking: Arc<Mutex<Option<Asking>>>,
}

/// So many processes are looked at: a hundred times as many as a busy box has.
const MOST: usize = 200_000;

/// Longer than what the kernel says of a handle.
const FDINFO_MAX: u64 = 4 << 10;

/// How long is waited, after all else is read, for what may hang.
const PATIENCE: Duration = Duration::from_secs(3);

impl Crowds {
    /// Below these roots, `/proc` and `/` but in tests.
    pub(crate) fn new(procfs: PathBuf, host_root: PathBuf, owner_label: String) -> Self {
        Self {
            procfs,
            host_root,
            owner_label,
            asking: Arc::default(),
        }
    }

    /// Everybody. Takes up to a second on a box of 10,000 processes, and not much
    /// longer where one of them is stuck.
    ///
    /// # Errors
    /// When `/proc` cannot be listed, or the system gives no thread.
    pub(crate) fn everybody(&self, users: &Users) -> io::Result<Crowd> {
        let (pids, is_cut) = list(&self.procfs, MOST)?;
        let view = namespace::view(&self.procfs);
        let own_users = namespace::own_users();
        let look = |pid| Member::read(&self.procfs, pid, view, own_users.as_deref());
        let mut members: BTreeMap<u32, Member> = pids
            .into_iter()
            // Whoever cannot be read has ended since the list was made.
            .filter_map(|pid| Some((pid, look(pid).ok()?)))
            .collect();
        self.ask(&mut members, users)?;
        let mut jobs = Kinship::new(&members, is_cut).jobs();
        let candidate = |(pid, member): (u32, Member)| {
            let job = jobs.remove(&pid);
            (pid, member.into_candidate(job, users))
        };
        Ok(members.into_iter().map(candidate).collect())
    }

    /// Fills in what may hang, as far as it comes in time.
    fn ask(&self, members: &mut BTreeMap<u32, Member>, users: &Users) -> io::Result<()> {
        // One look after the other: each forgets what was answered to it.
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let asking = match &mut *asking {
            Some(asking) => asking,
            none => none.insert(Asking::start(&self.host_root, &self.owner_label)?),
        };
        let deadline = Instant::now() + PATIENCE;
        asking.fill(members, &self.procfs, users, deadline);
        Ok(())
    }

    /// The pid, among those that are looked up here, of the process that this
    /// handle is of; `None` where it has none, or that is not told. It is another
    /// than the handle was opened by where these are another namespace's.
    pub(crate) fn pid_of(&self, handle: BorrowedFd<'_>) -> Option<u32> {
        let file = self.procfs.join("self/fdinfo");
        let file = file.join(handle.as_raw_fd().to_string());
        let bytes = read_at_most(&file, FDINFO_MAX).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        // -1 and 0 are none.
        pid.trim().parse().ok().filter(|pid| *pid > 0)
    }

    /// One process as it is now, by its files alone, at once: without what may
    /// hang or needs others, which are its command line, its job, the name of its
    /// container, and what its owner is called.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn one(&self, pid: u32) -> io::Result<Candidate> {
        let view = namespace::view(&self.procfs);
        let own_users = namespace::own_users();
        let member = Member::read(&self.procfs, pid, view, own_users.as_deref())?;
        Ok(member.into_candidate_alone())
    }
}

/// The pids that there are, at most so many, and whether there are more. The
/// lowest are those of the system, and are in any case among them.
fn list(procfs: &Path, most: usize) -> io::Result<(Vec<u32>, bool)> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(procfs)? {
        // In the order of their numbers, as the kernel lists them.
        if let Some(pid) = number(&entry?.file_name()) {
            if pids.len() == most {
                return Ok((pids, true));
            }
            pids.push(pid);
        }
    }
    Ok((pids, false))
}

fn number(name: &std::ffi::OsStr) -> Option<u32> {
    let pid: u32 = name.to_str()?.parse().ok()?;
    // Not `+7` nor `007`.
    (pid > 0 && name.to_str() == Some(pid.to_string().as_str())).then_some(pid)
}

#[cfg(test)]
mod tests;
