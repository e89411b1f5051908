//! A real cgroup, where the machine lets a test make one.

use super::{one_gpu, row_when};
use gpukill_tests::harness::{Actor, Stage, skip};
use std::path::{Path, PathBuf};

/// A cgroup of the test's own. Removed when dropped, and then it must be empty.
struct Group(PathBuf);

impl Group {
    /// Of this name, in the first hierarchy that lets itself be changed.
    fn make(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let hierarchies = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let named = kind == "cgroup" && options.contains("name=systemd");
            (kind == "cgroup2" || named).then(|| Path::new(place).join(name))
        });
        let mut made = hierarchies.filter(|place| std::fs::create_dir(place).is_ok());
        made.next().map(Self)
    }

    /// Whether this process is in it now.
    fn take(&self, pid: u32) -> bool {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to empty it.
        gpukill_tests::harness::eventually("the group is removed", || {
            std::fs::remove_dir(&self.0).ok()
        });
    }
}

#[test]
fn a_process_in_a_real_cgroup_is_in_that_unit_or_container() {
    let stage = Stage::new();
    let me = std::process::id();
    let service = format!("gpukill-test-{me}.service");
    let hash = format!("{me:064x}");
    let (Some(unit), Some(container)) = (
        Group::make(&service),
        Group::make(&format!("docker-{hash}.scope")),
    ) else {
        return skip("no cgroup can be made here");
    };
    // After the groups: they end before those are removed.
    let actors = [Actor::start("a"), Actor::start("b")];
    if !unit.take(actors[0].pid()) || !container.take(actors[1].pid()) {
        return skip("no process can be moved to another cgroup here");
    }
    stage.play(&one_gpu(&actors.each_ref().map(Actor::pid)));
    let daemon = stage.start();
    let row = row_when(&stage, actors[0].pid(), |row| {
        row["unit"] == service.as_str()
    });
    assert_eq!(row["job"], service.as_str());
    let row = row_when(&stage, actors[1].pid(), |row| {
        row["container_id"] == hash.as_str()
    });
    assert_eq!(row["job"], format!("docker/{}", &hash[..12]));
    assert_eq!(row["container_runtime"], "docker");
    daemon.stop();
}
