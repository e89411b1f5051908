//! GPUs of every vendor, read from the kernel's files alone.

use gpukill_tests::harness::{Daemon, FakeProcess, FakeProcfs, TestBox};
use serde_json::Value;

mod apple;
mod captures;
mod drm_cards;
mod mixed;

/// A box with simulated `/sys` and `/proc`.
struct DrmBox {
    test_box: TestBox,
    procfs: FakeProcfs,
}

impl DrmBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        let procfs = FakeProcfs::new(test_box.path("proc"));
        let meminfo = "MemTotal:       16777216 kB\n";
        std::fs::write(procfs.root().join("meminfo"), meminfo).unwrap();
        Self { test_box, procfs }
    }

    fn start(&self) -> Daemon {
        self.start_with_interval("100ms")
    }

    fn start_with_interval(&self, interval: &str) -> Daemon {
        let mut command = self.test_box.daemon_command();
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", interval)
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            // The name lists of the test machine do not apply to this box.
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.test_box.path("home"));
        self.test_box.start_with(&mut command)
    }

    /// Adds a process of user 1 that has this file open as descriptor 5.
    fn add_holder(&self, pid: u32, file: &str, fdinfo: &str) {
        self.procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid: 1,
            start_ticks: 100,
            cmdline: "python\0",
            cgroup: "0::/\n",
        });
        self.procfs.add_descriptor(pid, 5, file, fdinfo);
    }

    fn gpus(&self, fields: &[&str]) -> Vec<Value> {
        select_fields(&self.test_box.list()["gpus"], fields)
    }

    fn processes(&self, fields: &[&str]) -> Vec<Value> {
        select_fields(&self.test_box.list()["procs"], fields)
    }
}

fn select_fields(rows: &Value, fields: &[&str]) -> Vec<Value> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| fields.iter().map(|field| row[*field].clone()).collect())
        .collect()
}
