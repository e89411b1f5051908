//! What a process does at this moment, and who its relatives are: read when
//! somebody asks why memory is not free.

use crate::procfs::file::{failed, read_at_most};
use crate::procfs::stat::Stat;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::visible;
use std::io::ErrorKind;
use std::path::Path;

/// What is read of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) state: Reading<ProcessState>,
    /// 0 where its parent is not of this PID namespace.
    pub(crate) parent: Reading<u32>,
    pub(crate) parent_name: Reading<String>,
    pub(crate) group: Reading<u32>,
    pub(crate) group_leader_is_here: Reading<bool>,
}

impl Condition {
    /// Of this process below `root`, and of no other that has its pid.
    pub(crate) fn read(root: &Path, key: ProcessKey) -> Self {
        let directory = root.join(key.pid.to_string());
        let stat = match Stat::read(&directory) {
            Ok(stat) if stat.start_ticks == key.start_ticks => stat,
            Err(error) if error.kind() != ErrorKind::InvalidData => {
                return Self::unknown(&failed(error));
            }
            // Another has its pid, or it shows nonsense while it ends.
            Ok(_) | Err(_) => {
                return Self::unknown(&Reading::Failed("the process has ended".into()));
            }
        };
        let parent = stat_of(root, stat.parent);
        Self {
            state: Reading::Value(state(&stat, &directory)),
            parent: Reading::Value(stat.parent),
            parent_name: parent.map_or_else(
                || Reading::Failed("the process has ended".into()),
                |parent| Reading::Value(parent.name),
            ),
            group: Reading::Value(stat.group),
            group_leader_is_here: Reading::Value(
                stat.group == key.pid || stat_of(root, stat.group).is_some(),
            ),
        }
    }

    /// Of whoever has this pid now; `None` where nobody has it.
    pub(crate) fn of(root: &Path, pid: u32) -> Option<Self> {
        match Stat::read(&root.join(pid.to_string())) {
            Ok(Stat { start_ticks, .. }) => Some(Self::read(root, ProcessKey { pid, start_ticks })),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Self::unknown(&failed(error))),
        }
    }

    /// Nothing is known of it, for this reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            state: why.because(),
            parent: why.because(),
            parent_name: why.because(),
            group: why.because(),
            group_leader_is_here: why.because(),
        }
    }
}

fn stat_of(root: &Path, pid: u32) -> Option<Stat> {
    Stat::read(&root.join(pid.to_string())).ok()
}

/// What this process does.
pub(super) fn state(stat: &Stat, directory: &Path) -> ProcessState {
    match stat.state {
        // Its first thread has ended, and others go on: which of them works is
        // not told here.
        'Z' if stat.threads > 1 => ProcessState::Sleeping,
        'R' => ProcessState::Running,
        'S' | 'I' => ProcessState::Sleeping,
        'D' => ProcessState::Uninterruptible(waits_on(directory)),
        'T' | 't' => ProcessState::Stopped,
        'Z' | 'X' => ProcessState::Zombie,
        other => ProcessState::Other(other),
    }
}

/// The function of the kernel that it waits in. The kernel says `0` to those who
/// may not know.
fn waits_on(directory: &Path) -> Option<String> {
    let bytes = read_at_most(&directory.join("wchan"), 128).ok()?;
    let text = visible(bytes.trim_ascii(), 64);
    (!text.is_empty() && text != "0").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with these processes: pid, name, state, parent, group, start.
    fn tree(processes: &[(u32, &str, char, u32, u32, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (pid, name, state, parent, group, start) in processes {
            let directory = root.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            // The twentieth field is how many threads it has: two in all of them.
            let between = "0 ".repeat(14);
            let text = format!("{pid} ({name}) {state} {parent} {group} {between}2 0 {start} 0 0");
            std::fs::write(directory.join("stat"), text).unwrap();
        }
        root
    }

    fn key(pid: u32, start_ticks: u64) -> ProcessKey {
        ProcessKey { pid, start_ticks }
    }

    #[test]
    fn a_worker_whose_leader_is_gone_says_so() {
        let root = tree(&[(1, "init", 'S', 0, 1, 1), (7, "python", 'S', 1, 5, 100)]);
        assert_eq!(
            Condition::read(root.path(), key(7, 100)),
            Condition {
                state: Reading::Value(ProcessState::Sleeping),
                parent: Reading::Value(1),
                parent_name: Reading::Value("init".into()),
                group: Reading::Value(5),
                group_leader_is_here: Reading::Value(false),
            }
        );
    }

    #[test]
    fn whoever_has_the_pid_later_is_not_it() {
        let root = tree(&[(7, "other", 'R', 1, 7, 900)]);
        let gone = Condition::unknown(&Reading::Failed("the process has ended".into()));
        assert_eq!(Condition::read(root.path(), key(7, 100)), gone);
        assert_eq!(Condition::read(root.path(), key(8, 100)), gone);
    }

    #[test]
    fn a_process_is_a_zombie_when_its_last_thread_has_ended() {
        let root = tree(&[(7, "python", 'Z', 1, 7, 100)]);
        let state = || Condition::read(root.path(), key(7, 100)).state;
        assert_eq!(state(), Reading::Value(ProcessState::Sleeping));
        let file = root.path().join("7/stat");
        let alone = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, alone.replace(" 2 0 100 ", " 1 0 100 ")).unwrap();
        assert_eq!(state(), Reading::Value(ProcessState::Zombie));
    }

    #[test]
    fn a_process_that_is_stuck_says_what_it_waits_on() {
        let root = tree(&[(7, "python", 'D', 1, 7, 100)]);
        let said = |text: &str| {
            std::fs::write(root.path().join("7/wchan"), text).unwrap();
            Condition::read(root.path(), key(7, 100)).state
        };
        let stuck =
            |on: Option<&str>| Reading::Value(ProcessState::Uninterruptible(on.map(str::to_owned)));
        assert_eq!(said("nv_wait\x1b[31m"), stuck(Some("nv_wait\\x1b[31m")));
        assert_eq!(said("0"), stuck(None));
    }
}
