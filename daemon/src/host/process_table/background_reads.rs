//! Reads that may hang, for the process table: command lines, and the names of containers and
//! users. Background threads make them, and the reader waits for them only for a limited time.

use super::entry::ProcessEntry;
use crate::host::cgroup::CgroupContainer;
use crate::host::commands::{CommandLineCache, NOT_READ_YET};
use crate::host::containers::ContainerCache;
use crate::host::users::Users;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct BackgroundReads {
    command_lines: CommandLineCache,
    /// Processes with a command line that was stuck once. A user who does that on purpose lets the
    /// read finish and is stuck again at the next one.
    slow_processes: Mutex<BTreeSet<ProcessKey>>,
    /// Reads the command lines of those: no other process waits for them.
    slow_command_lines: CommandLineCache,
    containers: Mutex<ContainerCache>,
}

/// How many command lines are requested at once: far fewer than may wait.
const BATCH_SIZE: usize = 512;

/// How many stuck processes are remembered. Each takes a thread at first, until it counts as stuck.
/// Further ones are waited for again.
const MAX_SLOW: usize = 1_024;

impl BackgroundReads {
    pub(super) fn new(host_root: &Path, owner_label: &str) -> Self {
        let containers = ContainerCache::new(host_root.to_owned(), owner_label);
        Self {
            command_lines: CommandLineCache::new(),
            slow_processes: Mutex::default(),
            slow_command_lines: CommandLineCache::new(),
            containers: Mutex::new(containers),
        }
    }

    /// Blocks every caller.
    #[cfg(test)]
    pub(super) fn block(&self) -> impl Drop {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in the values that arrive in time, and drops them from the caches: the next read must
    /// be a fresh one.
    pub(super) fn fill(
        &self,
        members: &mut BTreeMap<u32, ProcessEntry>,
        root: &Path,
        users: &Users,
        timeout: Duration,
    ) {
        for member in members.values() {
            let info = &member.info;
            let maker = info.namespace_owner.known().copied().flatten();
            for uid in info.lineage.uid.into_iter().chain(maker) {
                users.name(uid);
            }
        }
        let slow = self.slow_among(members);
        self.request_slow(&slow, members, root);
        // Readers take turns: each drops the values it was given.
        let containers = lock(&self.containers);
        let deadline = Instant::now() + timeout;
        fill_containers(&containers, members, users, deadline);
        containers.keep_only(|_| false);
        drop(containers);
        self.fill_commands(members, &slow, root, deadline);
    }

    /// The slow processes among these. The others have ended and are dropped.
    fn slow_among(&self, members: &BTreeMap<u32, ProcessEntry>) -> BTreeSet<ProcessKey> {
        let mut slow = lock(&self.slow_processes);
        slow.retain(|key| {
            let member = members.get(&key.pid);
            member.is_some_and(|member| member.info.lineage.key == *key)
        });
        slow.clone()
    }

    /// First, so that processes that recovered have some time.
    fn request_slow(
        &self,
        slow: &BTreeSet<ProcessKey>,
        members: &BTreeMap<u32, ProcessEntry>,
        root: &Path,
    ) {
        for key in slow {
            if let Some(member) = members.get(&key.pid) {
                self.slow_command_lines.0.forget(key);
                self.slow_command_lines.get(*key, || member.cmdline(root));
            }
        }
    }

    fn fill_commands(
        &self,
        members: &mut BTreeMap<u32, ProcessEntry>,
        slow: &BTreeSet<ProcessKey>,
        root: &Path,
        deadline: Instant,
    ) {
        let key = |member: &&mut ProcessEntry| member.info.lineage.key;
        let (mut of_slow, others): (Vec<&mut ProcessEntry>, Vec<&mut ProcessEntry>) = members
            .values_mut()
            .partition(|member| slow.contains(&key(member)));
        let mut others = others.into_iter();
        loop {
            let some: Vec<&mut ProcessEntry> = others.by_ref().take(BATCH_SIZE).collect();
            if some.is_empty() {
                break;
            }
            self.fill_batch(some, root, deadline);
        }
        for member in &mut of_slow {
            fill_command(&self.slow_command_lines, member, root);
            self.slow_command_lines.0.forget(&key(member));
        }
    }

    /// Reads the command lines of a batch. Other readers may request the same ones at the same
    /// time, and drop them: each is requested until it arrives.
    fn fill_batch(&self, mut left: Vec<&mut ProcessEntry>, root: &Path, deadline: Instant) {
        let keys_of = |members: &[&mut ProcessEntry]| -> BTreeSet<ProcessKey> {
            let keys = members.iter().map(|member| member.info.lineage.key);
            keys.into_set()
        };
        let keys = keys_of(&left);
        let forget = || keys.iter().for_each(|key| self.command_lines.0.forget(key));
        // A value that another reader requested may be outdated.
        forget();
        loop {
            left.retain_mut(|member| !fill_command(&self.command_lines, member, root));
            let wanted = keys_of(&left);
            if Instant::now() >= deadline || !self.command_lines.may_be_read_soon(&wanted) {
                break;
            }
            let is_wanted = |key: &ProcessKey| wanted.contains(key);
            self.command_lines.0.settle_for(is_wanted, deadline);
        }
        forget();
        if !left.is_empty() {
            let found = keys_of(&left);
            let stuck = self.command_lines.0.stuck();
            let mut slow = lock(&self.slow_processes);
            let stuck = stuck.into_iter().filter(|key| found.contains(key));
            let room = MAX_SLOW.saturating_sub(slow.len());
            slow.extend(stuck.take(room));
        }
    }
}

fn fill_containers(
    containers: &ContainerCache,
    members: &mut BTreeMap<u32, ProcessEntry>,
    users: &Users,
    deadline: Instant,
) {
    let contained = members.values();
    let contained = contained.filter_map(|member| member.cgroup_container.known()?.clone());
    let contained: BTreeSet<CgroupContainer> = contained.into_set();
    let ask = || {
        contained
            .iter()
            .map(|contained| (contained, containers.get(contained, users)))
            .into_map()
    };
    // First for the home directories of users with containers, then for the files there.
    ask();
    users.settle(deadline);
    ask();
    containers.settle(deadline);
    let answers = ask();
    for member in members.values_mut() {
        let container;
        (container, member.owner_label) = match &member.cgroup_container {
            Reading::Value(Some(contained)) => match answers.get(contained) {
                Some((container, label)) => {
                    (Reading::Value(Some(container.clone())), label.clone())
                }
                None => (Reading::Failed(NOT_READ_YET.into()), None),
            },
            Reading::Value(None) => (Reading::Value(None), None),
            unknown => (unknown.as_unknown(), None),
        };
        member.info.container = container;
    }
}

/// Sets the command line, and requests it where it is unknown; false where it has not been read
/// yet.
fn fill_command(commands: &CommandLineCache, member: &mut ProcessEntry, root: &Path) -> bool {
    let key = member.info.lineage.key;
    let command = commands.get(key, || member.cmdline(root));
    let is_read = command.failure() != Some(NOT_READ_YET);
    member.info.command = command;
    if member.info.lineage.needs_arguments() {
        let arguments = commands.arguments(key, || member.cmdline(root));
        member.lacks_arguments = arguments.failure() == Some(NOT_READ_YET);
        member.info.lineage.arguments = arguments.known().cloned();
    }
    is_read && !member.lacks_arguments
}

/// Locks. No code panics while it holds one of these locks; if some did, the values in it would
/// still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{AliceNameService, FakeProcessTree};
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use std::fs::File;
    use std::io::Write as _;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(pid: u32) -> ProcessKey {
        ProcessKey::new(pid, 500)
    }

    impl BackgroundReads {
        /// The command lines of these processes, as read.
        fn read_table(
            &self,
            tree: &FakeProcessTree,
            pids: &[u32],
            timeout: Duration,
        ) -> Vec<Reading<String>> {
            let read = |pid| ProcessEntry::read(&tree.roots(), pid).unwrap();
            let members = pids.iter().map(|pid| (*pid, read(*pid)));
            let mut members: BTreeMap<u32, ProcessEntry> = members.collect();
            let users = Users::new(AliceNameService);
            self.fill(&mut members, tree.root(), &users, timeout);
            let members = members.into_values();
            members.map(|member| member.info.command).collect()
        }
    }

    /// Two processes, the first of them stuck, and the file that it waits for.
    fn stuck_and_well() -> (FakeProcessTree, std::path::PathBuf) {
        let tree = FakeProcessTree::new();
        tree.process(7, "stuck", 1, 500);
        tree.process(8, "well", 1, 500);
        let cmdline = tree.stick(7);
        (tree, cmdline)
    }

    fn well() -> Reading<String> {
        Reading::Value("well".into())
    }

    /// Opens a FIFO for writing; `NXIO` where no process has it open for reading.
    fn open_if_read(fifo: &Path) -> rustix::io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(fifo, flags, Mode::empty()).map(File::from)
    }

    #[test]
    fn slow_process_is_not_waited_for_twice() {
        let (tree, cmdline) = stuck_and_well();
        let mut asking = BackgroundReads::new(tree.root(), "");
        let not_yet = [Reading::Failed(NOT_READ_YET.into()), well()];
        assert_eq!(asking.read_table(&tree, &[7, 8], HOUR), not_yet);
        assert_eq!(*lock(&asking.slow_processes), [key(7)].into());
        // It continues, and is stuck again.
        std::fs::write(&cmdline, "late").unwrap();
        // These reads wait for an hour.
        asking.command_lines = CommandLineCache::without_stuck_limit();
        for _ in 0..2 {
            assert_eq!(asking.read_table(&tree, &[7, 8], HOUR), not_yet);
        }
        // A background thread that did not begin before its reader left reads nothing.
        let reads = loop {
            match open_if_read(&cmdline) {
                Ok(reads) => break reads,
                Err(Errno::NXIO) => {
                    assert_eq!(asking.read_table(&tree, &[7, 8], HOUR), not_yet);
                }
                Err(error) => panic!("{error}"),
            }
        };
        std::fs::remove_file(&cmdline).unwrap();
        tree.file(7, "cmdline", "late");
        drop(reads);
        let both = [Reading::Value("late".into()), well()];
        while asking.read_table(&tree, &[7, 8], HOUR) != both {
            std::thread::yield_now();
        }
        assert_eq!(*lock(&asking.slow_processes), [key(7)].into());
        // Ended processes are dropped.
        assert_eq!(asking.read_table(&tree, &[8], HOUR), [well()]);
        assert_eq!(*lock(&asking.slow_processes), BTreeSet::new());
    }

    #[test]
    fn readers_do_not_wait_for_each_other() {
        let (tree, cmdline) = stuck_and_well();
        let asking = BackgroundReads {
            command_lines: CommandLineCache::without_stuck_limit(),
            ..BackgroundReads::new(tree.root(), "")
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| asking.read_table(&tree, &[7, 8], HOUR));
            // Opened as soon as the file has a reader.
            let mut reads = File::options().write(true).open(&cmdline).unwrap();
            assert_eq!(asking.read_table(&tree, &[8], HOUR), [well()]);
            reads.write_all(b"late").unwrap();
            drop(reads);
            assert_eq!(
                other.join().unwrap(),
                [Reading::Value("late".into()), well()]
            );
        });
    }
}
