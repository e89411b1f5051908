//! Finds out which processes are alive.

use super::stat::Stat;
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The processes below a `/proc`.
#[derive(Debug, Clone)]
pub(crate) struct LiveProcesses(PathBuf);

impl LiveProcesses {
    pub(crate) fn new(procfs: &Path) -> Self {
        Self(procfs.to_owned())
    }

    /// Whether the process with this pid and this start time in ticks is alive.
    pub(crate) fn is_alive(&self, pid: u32, start_ticks: u64) -> bool {
        self.start_ticks(pid) == Some(start_ticks)
    }

    /// All processes that are alive, as pid and start time.
    pub(crate) fn all(&self) -> BTreeSet<(u32, u64)> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| Some((pid, self.start_ticks(pid)?)))
            .into_set()
    }

    fn start_ticks(&self, pid: u32) -> Option<u64> {
        let stat = Stat::read(&self.0.join(pid.to_string())).ok()?;
        // A zombie counts as ended, although its parent has not waited for it yet.
        let has_ended = stat.threads <= 1 && matches!(stat.state, 'Z' | 'X');
        (!has_ended).then_some(stat.start_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn zombie_is_not_alive() {
        let processes = LiveProcesses::new(Path::new("/proc"));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let ticks = processes.start_ticks(pid).unwrap();
        assert!(processes.is_alive(pid, ticks) && processes.all().contains(&(pid, ticks)));
        assert!(!processes.is_alive(pid, ticks + 1));
        child.kill().unwrap();
        let wait = |id| {
            use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
            let child = Pid::from_raw(id).unwrap();
            waitid(
                WaitId::Pid(child),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            )
        };
        wait(i32::try_from(pid).unwrap()).unwrap();
        assert!(!processes.is_alive(pid, ticks) && !processes.all().contains(&(pid, ticks)));
        child.wait().unwrap();
    }
}
