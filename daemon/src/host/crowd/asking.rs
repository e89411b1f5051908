//! What may hang is asked for by threads, as the poll does it, and waited for
//! only so long: command lines, and the names of containers and users.

use super::member::Member;
use crate::host::cgroup::Contained;
use crate::host::commands::{Commands, NOT_YET};
use crate::host::containers::Containers;
use crate::host::users::Users;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What asks, for all looks at once.
pub(super) struct Asking {
    commands: Commands,
    /// Processes whose command line was stuck once. Whoever does that on purpose
    /// lets it be read in the end, and is stuck again at the next look.
    slow: Mutex<BTreeSet<ProcessKey>>,
    /// Reads theirs: nobody waits for it, nor behind it.
    of_slow: Commands,
    containers: Mutex<Containers>,
}

/// So many command lines are asked for at once: far fewer than may wait.
const AT_ONCE: usize = 512;

/// So many processes are remembered to have been stuck: that takes them a thread
/// each at first, for as long as one counts as stuck. More are waited for again.
const SLOW_MAX: usize = 1_024;

impl Asking {
    pub(super) fn new(host_root: &Path, owner_label: &str) -> Self {
        let containers = Containers::new(host_root.to_owned(), owner_label);
        Self {
            commands: Commands::new(),
            slow: Mutex::default(),
            of_slow: Commands::new(),
            containers: Mutex::new(containers),
        }
    }

    /// Makes every caller wait.
    #[cfg(test)]
    pub(super) fn halt(&self) -> impl Drop {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in what comes in time, and forgets it all: the next look is to be a
    /// fresh one.
    pub(super) fn fill(
        &self,
        members: &mut BTreeMap<u32, Member>,
        root: &Path,
        users: &Users,
        patience: Duration,
    ) {
        for member in members.values() {
            let candidate = &member.candidate;
            let maker = candidate.namespace_owner.known().copied().flatten();
            for uid in candidate.kin.uid.into_iter().chain(maker) {
                users.name(uid);
            }
        }
        let slow = self.slow_among(members);
        self.ask_the_slow(&slow, members, root);
        // One look after the other: each forgets what was answered to it.
        let containers = lock(&self.containers);
        let deadline = Instant::now() + patience;
        containers_of(&containers, members, users, deadline);
        containers.keep_only(|_| false);
        drop(containers);
        self.commands_of(members, &slow, root, deadline);
    }

    /// Those of these processes that were stuck once. The others are forgotten: they
    /// have ended.
    fn slow_among(&self, members: &BTreeMap<u32, Member>) -> BTreeSet<ProcessKey> {
        let mut slow = lock(&self.slow);
        slow.retain(|key| {
            let member = members.get(&key.pid);
            member.is_some_and(|member| member.candidate.kin.key == *key)
        });
        slow.clone()
    }

    /// First of all, so that there is some time for those that are well again.
    fn ask_the_slow(
        &self,
        slow: &BTreeSet<ProcessKey>,
        members: &BTreeMap<u32, Member>,
        root: &Path,
    ) {
        for key in slow {
            if let Some(member) = members.get(&key.pid) {
                self.of_slow.forget(*key);
                self.of_slow.of(*key, || member.cmdline(root));
            }
        }
    }

    fn commands_of(
        &self,
        members: &mut BTreeMap<u32, Member>,
        slow: &BTreeSet<ProcessKey>,
        root: &Path,
        deadline: Instant,
    ) {
        let key = |member: &&mut Member| member.candidate.kin.key;
        let (mut of_slow, others): (Vec<&mut Member>, Vec<&mut Member>) = members
            .values_mut()
            .partition(|member| slow.contains(&key(member)));
        let mut others = others.into_iter();
        loop {
            let some: Vec<&mut Member> = others.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            self.some_commands(some, root, deadline);
        }
        for member in &mut of_slow {
            take(&self.of_slow, member, root);
            self.of_slow.forget(key(member));
        }
    }

    /// Of a few. Other looks may ask for the same at the same time, and forget it: it
    /// is asked for until it comes.
    fn some_commands(&self, mut left: Vec<&mut Member>, root: &Path, deadline: Instant) {
        let keys_of = |members: &[&mut Member]| -> BTreeSet<ProcessKey> {
            let keys = members.iter().map(|member| member.candidate.kin.key);
            keys.into_set()
        };
        let keys = keys_of(&left);
        let forget = || keys.iter().for_each(|key| self.commands.forget(*key));
        // What another look was told may be of before.
        forget();
        loop {
            left.retain_mut(|member| !take(&self.commands, member, root));
            let wanted = keys_of(&left);
            if Instant::now() >= deadline || !self.commands.may_read(&wanted) {
                break;
            }
            self.commands.settle_for(&wanted, deadline);
        }
        forget();
        if !left.is_empty() {
            let found = keys_of(&left);
            let stuck = self.commands.stuck();
            let mut slow = lock(&self.slow);
            let stuck = stuck.into_iter().filter(|key| found.contains(key));
            let room = SLOW_MAX.saturating_sub(slow.len());
            slow.extend(stuck.take(room));
        }
    }
}

fn containers_of(
    containers: &Containers,
    members: &mut BTreeMap<u32, Member>,
    users: &Users,
    deadline: Instant,
) {
    let contained = members.values();
    let contained = contained.filter_map(|member| member.contained.known()?.clone());
    let contained: BTreeSet<Contained> = contained.into_set();
    let ask = || {
        contained
            .iter()
            .map(|contained| (contained, containers.of(contained, users)))
            .into_map()
    };
    // First for the homes of those who have containers of their own, then
    // for what lies there.
    ask();
    users.settle(deadline);
    ask();
    containers.settle(deadline);
    let told = ask();
    for member in members.values_mut() {
        let container;
        (container, member.label) = match &member.contained {
            Reading::Value(Some(contained)) => match told.get(contained) {
                Some((container, label)) => {
                    (Reading::Value(Some(container.clone())), label.clone())
                }
                None => (Reading::Failed(NOT_YET.into()), None),
            },
            Reading::Value(None) => (Reading::Value(None), None),
            unknown => (unknown.because(), None),
        };
        member.candidate.container = container;
    }
}

/// Takes what is known of a command line, and asks for it where nothing is; false
/// where it was not read yet.
fn take(commands: &Commands, member: &mut Member, root: &Path) -> bool {
    let key = member.candidate.kin.key;
    let command = commands.of(key, || member.cmdline(root));
    let is_read = command.failure() != Some(NOT_YET);
    member.candidate.command = command;
    if member.candidate.kin.needs_arguments() {
        let arguments = commands.arguments_of(key, || member.cmdline(root));
        member.lacks_arguments = arguments.failure() == Some(NOT_YET);
        member.candidate.kin.arguments = arguments.known().cloned();
    }
    is_read && !member.lacks_arguments
}

/// Nothing panics while it holds one of these locks; if something did, what is in it
/// is whole all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Alice, Tree};
    use super::*;
    use std::fs::File;
    use std::io::Write as _;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 500,
        }
    }

    impl Asking {
        /// What the command lines of these processes are found to be.
        fn look(&self, tree: &Tree, pids: &[u32], patience: Duration) -> Vec<Reading<String>> {
            let read = |pid| Member::read(&tree.place(), pid).unwrap();
            let members = pids.iter().map(|pid| (*pid, read(*pid)));
            let mut members: BTreeMap<u32, Member> = members.collect();
            let users = Users::new(Alice);
            self.fill(&mut members, tree.root(), &users, patience);
            let members = members.into_values();
            members.map(|member| member.candidate.command).collect()
        }
    }

    /// Two processes, of which the first is stuck, and the file that it waits for.
    fn stuck_and_well() -> (Tree, std::path::PathBuf) {
        let tree = Tree::new();
        tree.process(7, "stuck", 1, 500);
        tree.process(8, "well", 1, 500);
        let cmdline = tree.stick(7);
        (tree, cmdline)
    }

    fn well() -> Reading<String> {
        Reading::Value("well".into())
    }

    #[test]
    fn one_that_was_stuck_once_is_not_waited_for_again_and_is_read_when_it_is_well() {
        let (tree, cmdline) = stuck_and_well();
        let mut asking = Asking::new(tree.root(), "");
        let not_yet = [Reading::Failed(NOT_YET.into()), well()];
        assert_eq!(asking.look(&tree, &[7, 8], HOUR), not_yet);
        assert_eq!(*lock(&asking.slow), [key(7)].into());
        // It goes on, and is stuck again.
        std::fs::write(&cmdline, "late").unwrap();
        // Whom these read is waited for, for an hour.
        asking.commands = Commands::patient();
        for _ in 0..2 {
            assert_eq!(asking.look(&tree, &[7, 8], HOUR), not_yet);
        }
        let reads = File::options().write(true).open(&cmdline).unwrap();
        std::fs::remove_file(&cmdline).unwrap();
        tree.file(7, "cmdline", "late");
        drop(reads);
        let both = [Reading::Value("late".into()), well()];
        while asking.look(&tree, &[7, 8], HOUR) != both {
            std::thread::yield_now();
        }
        assert_eq!(*lock(&asking.slow), [key(7)].into());
        // Those who have ended are forgotten.
        assert_eq!(asking.look(&tree, &[8], HOUR), [well()]);
        assert_eq!(*lock(&asking.slow), BTreeSet::new());
    }

    #[test]
    fn no_look_waits_for_what_another_one_waits_for() {
        let (tree, cmdline) = stuck_and_well();
        let asking = Asking {
            commands: Commands::patient(),
            ..Asking::new(tree.root(), "")
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| asking.look(&tree, &[7, 8], HOUR));
            // Opened as soon as somebody reads there.
            let mut reads = File::options().write(true).open(&cmdline).unwrap();
            assert_eq!(asking.look(&tree, &[8], HOUR), [well()]);
            reads.write_all(b"late").unwrap();
            drop(reads);
            assert_eq!(
                other.join().unwrap(),
                [Reading::Value("late".into()), well()]
            );
        });
    }
}
