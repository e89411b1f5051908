//! A real cgroup, where the machine lets a test create one.

use super::{gpu_with_processes, row_when};
use gpukill_tests::harness::{TestBox, TestProcess, skip};
use std::path::{Path, PathBuf};

/// A cgroup of the test. Dropping it removes it, and it must be empty then.
struct TestCgroup(PathBuf);

impl TestCgroup {
    /// Creates a cgroup of this name in the first hierarchy that permits it.
    fn create(name: &str) -> Option<Self> {
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

    /// Moves a process into the cgroup. False where that is not permitted.
    fn add_process(&self, pid: u32) -> bool {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // The kernel takes a moment to empty the cgroup.
        gpukill_tests::harness::eventually("the group is removed", || {
            std::fs::remove_dir(&self.0).ok()
        });
    }
}

#[test]
fn process_in_real_cgroup_has_unit_or_container() {
    let test_box = TestBox::new();
    let me = std::process::id();
    let service = format!("gpukill-test-{me}.service");
    let hash = format!("{me:064x}");
    let (Some(unit), Some(container)) = (
        TestCgroup::create(&service),
        TestCgroup::create(&format!("docker-{hash}.scope")),
    ) else {
        return skip("no cgroup can be made here");
    };
    // Declared after the cgroups, so that the processes end before the cgroups are removed.
    let processes = [TestProcess::start("a"), TestProcess::start("b")];
    if !unit.add_process(processes[0].pid()) || !container.add_process(processes[1].pid()) {
        return skip("no process can be moved to another cgroup here");
    }
    test_box.set_driver_state(&gpu_with_processes(
        &processes.each_ref().map(TestProcess::pid),
    ));
    let daemon = test_box.start();
    let row = row_when(&test_box, processes[0].pid(), |row| {
        row["unit"] == service.as_str()
    });
    assert_eq!(row["job"], service.as_str());
    let row = row_when(&test_box, processes[1].pid(), |row| {
        row["container_id"] == hash.as_str()
    });
    assert_eq!(row["job"], format!("docker/{}", &hash[..12]));
    assert_eq!(row["container_runtime"], "docker");
    daemon.stop();
}
