//! Simulated processes that start and end on GPUs.

use super::{FakeProcess, FakeProcfs, TestBox};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::process::Command;

const GPUS: u32 = 8;

/// The first pid, above the pids that Linux assigns.
const FIRST_PID: u32 = 5_000_000;

/// The processes of a box, one generation after the other.
pub struct ProcessChurn<'a> {
    test_box: &'a TestBox,
    procfs: FakeProcfs,
    next: u32,
    live: VecDeque<u32>,
}

impl<'a> ProcessChurn<'a> {
    /// Simulates eight GPUs of this box, without processes.
    ///
    /// # Panics
    /// When the simulated `/proc` cannot be created.
    #[must_use]
    pub fn new(test_box: &'a TestBox) -> Self {
        let churn = Self {
            test_box,
            procfs: FakeProcfs::new(test_box.path("proc")),
            next: FIRST_PID,
            live: VecDeque::new(),
        };
        churn.write_driver_state();
        churn
    }

    /// The daemon that reads the simulated `/proc`, not yet started.
    #[must_use]
    pub fn daemon_command(&self) -> Command {
        let mut command = self.test_box.daemon_command();
        command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root());
        command
    }

    /// Adds `come` processes and then removes the oldest, so that `stay` remain.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn replace_processes(&mut self, come: usize, stay: usize) {
        for _ in 0..come {
            self.add_process();
        }
        let go = self.live.len().saturating_sub(stay);
        let gone: Vec<u32> = self.live.drain(..go).collect();
        // As on a real box, the driver lists a process before and after it exists.
        self.write_driver_state();
        for pid in gone {
            self.procfs.remove_process(pid);
        }
    }

    /// How many processes have been added.
    #[must_use]
    pub const fn started_count(&self) -> u32 {
        self.next - FIRST_PID
    }

    fn add_process(&mut self) {
        let pid = self.next;
        let (nth, uid) = (pid - FIRST_PID, 1_000 + pid % 20);
        let cmdline = format!(
            "python3\0/home/user{uid}/train.py\0--config\0runs/{nth}.yaml\0--epochs\0100\0"
        );
        self.procfs.add_process(FakeProcess {
            pid,
            name: "python3",
            uid,
            start_ticks: u64::from(nth) + 1_000,
            cmdline: &cmdline,
            cgroup: &format!("0::/user.slice/user-{uid}.slice/session-{nth}.scope\n"),
        });
        self.live.push_back(pid);
        self.next += 1;
    }

    fn write_driver_state(&self) {
        let of_gpu = |gpu: u32| -> Vec<Value> {
            let pids = self.live.iter().filter(|pid| *pid % GPUS == gpu);
            pids.map(|pid| json!({"pid": pid, "memory": 1 << 30, "sm": 12}))
                .collect()
        };
        let gpus = (0..GPUS).map(|gpu| json!({"processes": of_gpu(gpu)}));
        let gpus: Vec<Value> = gpus.collect();
        self.test_box.set_driver_state(&json!({"gpus": gpus}));
    }
}
