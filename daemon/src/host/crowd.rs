//! Every process of the box at one moment, for whoever plans to end some.

mod member;

mod asking;

mod kinship;

mod origins;

use super::fuse::{self, FuseMount};
use super::login_defs;
use super::namespace;
use super::users::Users;
use crate::procfs::file::read_at_most;
use asking::Asking;
use gpukill_policy::kill::{Candidate, Crowd};
use kinship::Kinship;
use member::{Member, Place};
use origins::Origins;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where processes are looked up. Each look is a fresh one: nothing that it finds
/// is kept for the next, and none of it is the poll's. Only who was stuck is
/// remembered: such a process costs two threads at most, and not one at each look. Clones share them.
#[derive(Clone)]
pub(crate) struct Crowds {
    procfs: PathBuf,
    /// Below which the files of container runtimes lie.
    host_root: PathBuf,
    /// The first uid that is a person's.
    uid_min: u32,
    /// Compares what processes execute with the host's files.
    origins: Origins,
    asking: Arc<Asking>,
}

/// So many processes are looked at: a hundred times as many as a busy box has.
const MOST: usize = 200_000;

/// Longer than what the kernel says of a handle.
const FDINFO_MAX: u64 = 4 << 10;

/// How long is waited, after all else is read, for what may hang.
const PATIENCE: Duration = Duration::from_secs(3);

impl Crowds {
    /// Below these roots, `/proc` and `/` but in tests.
    pub(crate) fn new(procfs: PathBuf, host_root: PathBuf, owner_label: &str) -> Self {
        Self {
            uid_min: login_defs::uid_min(&host_root),
            origins: Origins::new(procfs.clone()),
            procfs,
            asking: Arc::new(Asking::new(&host_root, owner_label)),
            host_root,
        }
    }

    /// The first uid that is a person's; lower ones are system accounts.
    pub(crate) const fn uid_min(&self) -> u32 {
        self.uid_min
    }

    /// Everybody. Takes up to a second on a box of 10,000 processes, and a few more
    /// where one of them is stuck that was not known to be.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub(crate) fn everybody(&self, users: &Users) -> io::Result<Crowd> {
        let (mut members, is_cut) = self.members()?;
        // Begun first: it goes on while the others are asked.
        let origins = self.origins.begin(&members, self.uid_min);
        self.asking
            .fill(&mut members, &self.procfs, users, PATIENCE);
        origins.fill(&mut members, PATIENCE);
        Ok(candidates(members, is_cut, users))
    }

    /// Everybody once more, soon after such a look and at once, whoever is stuck.
    /// What may hang is not asked for: command lines are those of that look, and
    /// those who came since have none. No container has a name.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub(crate) fn everybody_since(&self, before: &Crowd, users: &Users) -> io::Result<Crowd> {
        let (mut members, is_cut) = self.members()?;
        for (pid, member) in &mut members {
            member.recall(before.get(pid));
        }
        Ok(candidates(members, is_cut, users))
    }

    /// Everybody as far as files tell that never hang, and whether there are more.
    fn members(&self) -> io::Result<(BTreeMap<u32, Member>, bool)> {
        let (pids, is_cut) = list(&self.procfs, MOST)?;
        let own_users = namespace::own_users();
        let place = self.place(own_users.as_deref());
        let look = |pid| Member::read(&place, pid);
        // Whoever cannot be read has ended since the list was made.
        let members = pids.into_iter();
        let members = members.filter_map(|pid| Some((pid, look(pid).ok()?)));
        Ok((members.collect(), is_cut))
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
        let own_users = namespace::own_users();
        let member = Member::read(&self.place(own_users.as_deref()), pid)?;
        Ok(member.into_candidate_alone())
    }

    /// The FUSE filesystem that a process waits on in this function of the kernel.
    pub(crate) fn awaited_fuse(&self, pid: u32, function: &str) -> Option<FuseMount> {
        fuse::awaited(&self.procfs, pid, function)
    }

    fn place<'a>(&'a self, own_users: Option<&'a Path>) -> Place<'a> {
        Place {
            procfs: &self.procfs,
            host_root: &self.host_root,
            view: namespace::view(&self.procfs),
            own_users,
        }
    }
}

/// With their jobs, and what their owners are called.
fn candidates(members: BTreeMap<u32, Member>, is_cut: bool, users: &Users) -> Crowd {
    let mut jobs = Kinship::new(&members, is_cut).jobs();
    let candidate = |(pid, member): (u32, Member)| {
        let job = jobs.remove(&pid);
        (pid, member.into_candidate(job, users))
    };
    members.into_iter().map(candidate).collect()
}

/// The pids that there are, at most so many, and whether there are more. The
/// lowest are those of the system, and are in any case among them.
pub(super) fn list(procfs: &Path, most: usize) -> io::Result<(Vec<u32>, bool)> {
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
