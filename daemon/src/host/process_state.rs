//! The state and the relatives of a process, read for a request about unreleased memory.

use crate::procfs::stat::Stat;
use crate::procfs::{read_at_most, read_failure};
use gpukill_proto::holders::ProcessState;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessStateInfo {
    pub(crate) state: Reading<ProcessState>,
    /// 0 where the parent is in another PID namespace.
    pub(crate) parent: Reading<u32>,
    pub(crate) parent_name: Reading<String>,
    pub(crate) group: Reading<u32>,
    pub(crate) group_leader_is_here: Reading<bool>,
}

impl ProcessStateInfo {
    /// Reads the process with this key below `root`, and no other with its PID.
    pub(crate) fn read(root: &Path, key: ProcessKey) -> Self {
        let directory = root.join(key.pid.to_string());
        let stat = match Stat::read(&directory) {
            Ok(stat) if stat.start_ticks == key.start_ticks => stat,
            Err(error) if error.kind() != ErrorKind::InvalidData => {
                return Self::unknown(&read_failure(error));
            }
            // The PID was reused, or the process shows garbage while it ends.
            Ok(_) | Err(_) => {
                return Self::unknown(&Reading::Failed("the process has ended".into()));
            }
        };
        let parent = read_stat(root, stat.parent);
        Self {
            state: Reading::Value(process_state(&stat, &directory)),
            parent: Reading::Value(stat.parent),
            parent_name: parent.map_or_else(
                || Reading::Failed("the process has ended".into()),
                |parent| Reading::Value(parent.name),
            ),
            group: Reading::Value(stat.group),
            group_leader_is_here: Reading::Value(
                stat.group == key.pid || read_stat(root, stat.group).is_some(),
            ),
        }
    }

    /// Reads the process that has this PID now; `None` where none has.
    pub(crate) fn read_pid(root: &Path, pid: u32) -> Option<Self> {
        match Stat::read(&root.join(pid.to_string())) {
            Ok(Stat { start_ticks, .. }) => Some(Self::read(root, ProcessKey { pid, start_ticks })),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Self::unknown(&read_failure(error))),
        }
    }

    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            state: why.as_unknown(),
            parent: why.as_unknown(),
            parent_name: why.as_unknown(),
            group: why.as_unknown(),
            group_leader_is_here: why.as_unknown(),
        }
    }
}

fn read_stat(root: &Path, pid: u32) -> Option<Stat> {
    Stat::read(&root.join(pid.to_string())).ok()
}

pub(super) fn process_state(stat: &Stat, directory: &Path) -> ProcessState {
    match stat.state {
        // Its first thread has ended and others run; the state of those is not read.
        'Z' if stat.threads > 1 => ProcessState::Sleeping,
        'R' => ProcessState::Running,
        'S' | 'I' => ProcessState::Sleeping,
        'D' => ProcessState::Uninterruptible(wait_channel(directory)),
        'T' | 't' => ProcessState::Stopped,
        'Z' | 'X' => ProcessState::Zombie,
        other => ProcessState::Other(other),
    }
}

/// The kernel function that it waits in. The kernel reports `0` to readers without permission.
fn wait_channel(directory: &Path) -> Option<String> {
    let bytes = read_at_most(&directory.join("wchan"), 128).ok()?;
    let text = sanitize(bytes.trim_ascii(), 64);
    (!text.is_empty() && text != "0").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process tree with these processes: PID, name, state, parent, group, start.
    fn tree(processes: &[(u32, &str, char, u32, u32, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (pid, name, state, parent, group, start) in processes {
            let directory = root.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            // The twentieth field is the number of threads: two in all of them.
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
    fn missing_group_leader_is_reported() {
        let root = tree(&[(1, "init", 'S', 0, 1, 1), (7, "python", 'S', 1, 5, 100)]);
        assert_eq!(
            ProcessStateInfo::read(root.path(), key(7, 100)),
            ProcessStateInfo {
                state: Reading::Value(ProcessState::Sleeping),
                parent: Reading::Value(1),
                parent_name: Reading::Value("init".into()),
                group: Reading::Value(5),
                group_leader_is_here: Reading::Value(false),
            }
        );
    }

    #[test]
    fn reused_pid_is_another_process() {
        let root = tree(&[(7, "other", 'R', 1, 7, 900)]);
        let gone = ProcessStateInfo::unknown(&Reading::Failed("the process has ended".into()));
        assert_eq!(ProcessStateInfo::read(root.path(), key(7, 100)), gone);
        assert_eq!(ProcessStateInfo::read(root.path(), key(8, 100)), gone);
    }

    #[test]
    fn zombie_when_the_last_thread_ended() {
        let root = tree(&[(7, "python", 'Z', 1, 7, 100)]);
        let state = || ProcessStateInfo::read(root.path(), key(7, 100)).state;
        assert_eq!(state(), Reading::Value(ProcessState::Sleeping));
        let file = root.path().join("7/stat");
        let alone = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, alone.replace(" 2 0 100 ", " 1 0 100 ")).unwrap();
        assert_eq!(state(), Reading::Value(ProcessState::Zombie));
    }

    #[test]
    fn stuck_process_shows_its_wait_channel() {
        let root = tree(&[(7, "python", 'D', 1, 7, 100)]);
        let read = |text: &str| {
            std::fs::write(root.path().join("7/wchan"), text).unwrap();
            ProcessStateInfo::read(root.path(), key(7, 100)).state
        };
        let stuck =
            |on: Option<&str>| Reading::Value(ProcessState::Uninterruptible(on.map(str::to_owned)));
        assert_eq!(read("nv_wait\x1b[31m"), stuck(Some("nv_wait\\x1b[31m")));
        assert_eq!(read("0"), stuck(None));
    }
}
