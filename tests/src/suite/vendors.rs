//! GPUs of every vendor, read from the kernel's files alone.

use gpukill_tests::harness::{Daemon, Invented, Procfs, Stage};
use serde_json::Value;

mod apple;

mod captures;

mod cards;

mod mixed;

/// A box whose `/sys` and `/proc` are made up.
struct Box {
    stage: Stage,
    procfs: Procfs,
}

impl Box {
    fn new() -> Self {
        let stage = Stage::new();
        let procfs = Procfs::at(stage.path("proc"));
        let meminfo = "MemTotal:       16777216 kB\n";
        std::fs::write(procfs.root().join("meminfo"), meminfo).unwrap();
        Self { stage, procfs }
    }

    fn start(&self) -> Daemon {
        self.start_polling_every("100ms")
    }

    fn start_polling_every(&self, interval: &str) -> Daemon {
        let mut command = self.stage.daemon();
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", interval)
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            // The lists of names that the test machine has are not this box's.
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.stage.path("home"));
        self.stage.start_with(&mut command)
    }

    /// A process of user 1 that has this file open as descriptor 5.
    fn holder(&self, pid: u32, file: &str, fdinfo: &str) {
        self.procfs.invent(Invented {
            pid,
            name: "python",
            uid: 1,
            start_ticks: 100,
            cmdline: "python\0",
            cgroup: "0::/\n",
        });
        self.procfs.open(pid, 5, file, fdinfo);
    }

    /// These fields of each GPU.
    fn gpus(&self, fields: &[&str]) -> Vec<Value> {
        pick(&self.stage.list()["gpus"], fields)
    }

    /// These fields of each process.
    fn processes(&self, fields: &[&str]) -> Vec<Value> {
        pick(&self.stage.list()["procs"], fields)
    }
}

fn pick(rows: &Value, fields: &[&str]) -> Vec<Value> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| fields.iter().map(|field| row[*field].clone()).collect())
        .collect()
}
