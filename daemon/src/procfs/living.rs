//! Which processes live.

use super::stat::Stat;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The processes below a `/proc`.
#[derive(Debug, Clone)]
pub(crate) struct Living(PathBuf);

impl Living {
    pub(crate) fn below(procfs: &Path) -> Self {
        Self(procfs.to_owned())
    }

    /// Whether the process with this pid, and this start in ticks, lives.
    pub(crate) fn has(&self, pid: u32, start_ticks: u64) -> bool {
        self.start_ticks(pid) == Some(start_ticks)
    }

    /// Every process that lives.
    pub(crate) fn all(&self) -> BTreeSet<(u32, u64)> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| Some((pid, self.start_ticks(pid)?)))
            .collect()
    }

    fn start_ticks(&self, pid: u32) -> Option<u64> {
        let stat = Stat::read(&self.0.join(pid.to_string())).ok()?;
        // One that nobody has waited for yet has ended all the same.
        let has_ended = stat.threads <= 1 && matches!(stat.state, 'Z' | 'X');
        (!has_ended).then_some(stat.start_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_lives_until_it_has_ended_also_where_nobody_waited_for_it() {
        let living = Living::below(Path::new("/proc"));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let ticks = living.start_ticks(pid).unwrap();
        assert!(living.has(pid, ticks) && living.all().contains(&(pid, ticks)));
        assert!(!living.has(pid, ticks + 1));
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
        assert!(!living.has(pid, ticks) && !living.all().contains(&(pid, ticks)));
        child.wait().unwrap();
    }
}
