//! Reads the process table for kills: every process of the host at one moment.

mod background_reads;
mod entry;
mod membership;
mod program_origins;

use super::fuse::{self, FuseMount};
use super::login_defs;
use super::namespace;
use super::users::Users;
use crate::procfs::read_at_most;
use crate::procfs::stat::Stat;
use background_reads::BackgroundReads;
use entry::{ProcessEntry, ReadRoots};
use gpukill_policy::kill::{ProcessInfo, ProcessTable};
use gpukill_proto::collect::IntoMap as _;
use membership::JobMembership;
use program_origins::ProgramOriginReader;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads the process table. Each read is a fresh one: nothing is cached for the next one or shared
/// with the poll. Only processes that were stuck are remembered: such a process costs two threads
/// in all, and not one per read. Clones share them.
#[derive(Clone)]
pub(crate) struct ProcessTableReader {
    procfs: PathBuf,
    /// The root of the container runtimes' files.
    host_root: PathBuf,
    /// The lowest uid of a person.
    uid_min: u32,
    /// Compares executables with the host's files.
    program_origins: ProgramOriginReader,
    background_reads: Arc<BackgroundReads>,
    /// For reads of few processes: readers of all processes take turns, and a turn takes seconds.
    ancestor_reads: Arc<BackgroundReads>,
    /// For the same reads: lookups for a kill must find a free one.
    ancestor_origins: ProgramOriginReader,
}

/// How many processes are read: a hundred times as many as a busy host has.
const MAX_PROCESSES: usize = 200_000;

/// How often the processes are listed while some end before they are read. On a host that starts
/// thousands of short programs per second, few listings in a row miss one; a fork bomb on a host
/// without a free processor can make each of them miss some.
const MAX_LISTINGS: usize = 32;

/// More than the kernel reports about a handle.
const FDINFO_MAX: u64 = 4 << 10;

pub(crate) struct LaterProcesses {
    pub(crate) table: ProcessTable,
    /// Why processes that exist may be missing from the table; `None` where none is missing.
    pub(crate) missing: Option<String>,
}

struct ReadProcesses<T> {
    by_pid: BTreeMap<u32, T>,
    /// Whether there are more than [`MAX_PROCESSES`].
    is_cut: bool,
    /// Whether newly listed processes ended, at each listing, before they were read.
    is_outrun: bool,
}

/// How long the reader waits, after all other reads, for reads that may hang.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(3);

impl ProcessTableReader {
    /// Reads below these roots, `/proc` and `/` except in tests.
    pub(crate) fn new(procfs: PathBuf, host_root: PathBuf, owner_label: &str) -> Self {
        Self {
            uid_min: login_defs::uid_min(&host_root),
            program_origins: ProgramOriginReader::new(procfs.clone()),
            ancestor_origins: ProgramOriginReader::new(procfs.clone()),
            procfs,
            background_reads: Arc::new(BackgroundReads::new(&host_root, owner_label)),
            ancestor_reads: Arc::new(BackgroundReads::new(&host_root, owner_label)),
            host_root,
        }
    }

    /// The lowest uid of a person; lower ones are system accounts.
    pub(crate) const fn uid_min(&self) -> u32 {
        self.uid_min
    }

    /// Reads all processes. Takes up to a second on a host with 10,000 processes, and a few more
    /// where a process is newly stuck.
    pub(crate) fn read_all(&self, users: &Users) -> io::Result<ProcessTable> {
        let mut read = self.read_entries()?;
        let members = &mut read.by_pid;
        // Started first: it runs while the others are read.
        let origins = self.program_origins.start(members, self.uid_min);
        self.background_reads
            .fill(members, &self.procfs, users, BACKGROUND_TIMEOUT);
        origins.fill(members, BACKGROUND_TIMEOUT);
        Ok(into_table(read.by_pid, read.is_cut, users))
    }

    /// Reads these processes and their ancestors. Reads that may hang are waited for until
    /// `deadline`; without their results a process may count as protected.
    pub(crate) fn read_with_ancestors(
        &self,
        pids: &[u32],
        users: &Users,
        deadline: Instant,
    ) -> ProcessTable {
        let own_users = namespace::own_user_namespace();
        let roots = self.read_roots(own_users.as_deref());
        let mut members = BTreeMap::new();
        let mut left = pids.to_vec();
        while let Some(pid) = left.pop() {
            // The parents are not read at one moment and may form a cycle.
            if pid != 0
                && !members.contains_key(&pid)
                && let Ok(entry) = ProcessEntry::read(&roots, pid)
            {
                left.push(entry.info.parent);
                members.insert(pid, entry);
            }
        }
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let origins = self.ancestor_origins.start(&members, self.uid_min);
        self.ancestor_reads
            .fill(&mut members, &self.procfs, users, remaining());
        origins.fill(&mut members, remaining());
        into_table(members, true, users)
    }

    /// Reads all processes again, soon after an earlier read and without waiting. Reads that may
    /// hang are left out: command lines are taken from the earlier table, and newer processes have
    /// none. Containers have no names.
    pub(crate) fn reread_all(
        &self,
        before: &ProcessTable,
        users: &Users,
    ) -> io::Result<LaterProcesses> {
        let mut read = self.read_entries()?;
        for (pid, member) in &mut read.by_pid {
            member.inherit(before.get(pid));
        }
        let missing = if read.is_cut {
            Some(format!("there are more than {MAX_PROCESSES} processes"))
        } else if read.is_outrun {
            Some("processes started and ended faster than they could be read".to_owned())
        } else {
            None
        };
        let table = into_table(read.by_pid, read.is_cut, users);
        Ok(LaterProcesses { table, missing })
    }

    /// The entries from files that never hang.
    fn read_entries(&self) -> io::Result<ReadProcesses<ProcessEntry>> {
        let own_users = namespace::own_user_namespace();
        let roots = self.read_roots(own_users.as_deref());
        read_listed(
            || list_pids(&self.procfs, MAX_PROCESSES),
            |pid| ProcessEntry::read(&roots, pid).ok(),
        )
    }

    /// The PID, as seen in this procfs, of the process of this handle; `None` where it has none or
    /// it is unknown. It differs from the PID that the handle was opened with if this procfs
    /// belongs to another PID namespace.
    pub(crate) fn pid_of(&self, handle: BorrowedFd<'_>) -> Option<u32> {
        let file = self.procfs.join("self/fdinfo");
        let file = file.join(handle.as_raw_fd().to_string());
        let bytes = read_at_most(&file, FDINFO_MAX).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        // -1 and 0 mean no process.
        pid.trim().parse().ok().filter(|pid| *pid > 0)
    }

    /// Reads one process from its files, without waiting: its command line, job, container name and
    /// owner name are left out, because they may hang or need other processes.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn read_one(&self, pid: u32) -> io::Result<ProcessInfo> {
        let own_users = namespace::own_user_namespace();
        let member = ProcessEntry::read(&self.read_roots(own_users.as_deref()), pid)?;
        Ok(member.into_info_alone())
    }

    /// Whether no thread of a process that got SIGSTOP runs on: each is stopped, has ended or waits
    /// uninterruptibly. The signal takes effect when a thread leaves the kernel, and a fork that is
    /// under way then is completed first. True for a process that cannot be read, because it has
    /// ended.
    pub(crate) fn is_at_rest(&self, pid: u32) -> bool {
        let directory = self.procfs.join(pid.to_string()).join("task");
        let mut threads = std::fs::read_dir(directory).into_iter().flatten().flatten();
        threads.all(|thread| {
            let stat = Stat::read(&thread.path());
            stat.map_or(true, |stat| {
                matches!(stat.state, 'T' | 't' | 'D' | 'Z' | 'X')
            })
        })
    }

    /// The FUSE filesystem that a process waits for in this kernel function.
    pub(crate) fn awaited_fuse(&self, pid: u32, function: &str) -> Option<FuseMount> {
        fuse::awaited_mount(&self.procfs, pid, function)
    }

    fn read_roots<'a>(&'a self, own_users: Option<&'a Path>) -> ReadRoots<'a> {
        ReadRoots {
            procfs: &self.procfs,
            host_root: &self.host_root,
            view: namespace::cgroup_view(&self.procfs),
            own_users,
            uid_min: self.uid_min,
        }
    }
}

/// Lists the processes and reads each. A process that cannot be read has ended since it was listed,
/// and another may have started in its place: the processes are listed again, and the new ones read,
/// until no new one is missed.
fn read_listed<T>(
    mut list: impl FnMut() -> io::Result<(Vec<u32>, bool)>,
    mut read: impl FnMut(u32) -> Option<T>,
) -> io::Result<ReadProcesses<T>> {
    let (mut pids, mut is_cut) = list()?;
    let mut by_pid = BTreeMap::new();
    // An entry that stays and cannot be read is no reason to list the processes again.
    let mut unreadable = BTreeSet::new();
    for _ in 0..MAX_LISTINGS {
        let missed_before = unreadable.len();
        // The newest first: those of a fork bomb may live for less time than the whole reading
        // takes.
        for pid in pids.into_iter().rev() {
            if by_pid.contains_key(&pid) || unreadable.contains(&pid) {
                continue;
            }
            match read(pid) {
                Some(process) => {
                    by_pid.insert(pid, process);
                }
                None => {
                    unreadable.insert(pid);
                }
            }
        }
        if unreadable.len() == missed_before {
            return Ok(ReadProcesses {
                by_pid,
                is_cut,
                is_outrun: false,
            });
        }
        (pids, is_cut) = list()?;
    }
    Ok(ReadProcesses {
        by_pid,
        is_cut,
        is_outrun: true,
    })
}

/// Adds the jobs and the owner names.
fn into_table(members: BTreeMap<u32, ProcessEntry>, is_cut: bool, users: &Users) -> ProcessTable {
    let mut jobs = JobMembership::new(&members, is_cut).jobs();
    let candidate = |(pid, member): (u32, ProcessEntry)| {
        let job = jobs.remove(&pid);
        (pid, member.into_info(job, users))
    };
    members.into_iter().map(candidate).into_map()
}

/// The PIDs of all processes, up to `max_pids`, and whether there are more. The lowest PIDs, those of
/// the system, are always included.
pub(super) fn list_pids(procfs: &Path, max_pids: usize) -> io::Result<(Vec<u32>, bool)> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(procfs)? {
        // The kernel lists PIDs in ascending order.
        if let Some(pid) = parse_pid(&entry?.file_name()) {
            if pids.len() == max_pids {
                return Ok((pids, true));
            }
            pids.push(pid);
        }
    }
    Ok((pids, false))
}

fn parse_pid(name: &std::ffi::OsStr) -> Option<u32> {
    let pid: u32 = name.to_str()?.parse().ok()?;
    // Not `+7` or `007`.
    (pid > 0 && name.to_str() == Some(pid.to_string().as_str())).then_some(pid)
}

#[cfg(test)]
mod tests;
