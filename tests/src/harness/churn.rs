//! Made-up processes that come to GPUs and go.

use super::{Invented, Procfs, Stage};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::process::Command;

/// How many GPUs they use.
const GPUS: u32 = 8;

/// The first pid, above those that Linux gives.
const FIRST: u32 = 5_000_000;

/// Processes of a box, one generation after the other.
pub struct Churn<'a> {
    stage: &'a Stage,
    procfs: Procfs,
    next: u32,
    live: VecDeque<u32>,
}

impl<'a> Churn<'a> {
    /// Nobody yet, on eight GPUs of this box.
    ///
    /// # Panics
    /// When the tree for them cannot be made.
    #[must_use]
    pub fn on(stage: &'a Stage) -> Self {
        let churn = Self {
            stage,
            procfs: Procfs::at(stage.path("proc")),
            next: FIRST,
            live: VecDeque::new(),
        };
        churn.play();
        churn
    }

    /// The daemon that sees them, not yet started.
    #[must_use]
    pub fn daemon(&self) -> Command {
        let mut command = self.stage.daemon();
        command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root());
        command
    }

    /// Lets so many come; and then the oldest go, so that so many stay.
    ///
    /// # Panics
    /// When their files cannot be written.
    pub fn turn_over(&mut self, come: usize, stay: usize) {
        for _ in 0..come {
            self.invent();
        }
        let go = self.live.len().saturating_sub(stay);
        let gone: Vec<u32> = self.live.drain(..go).collect();
        // The driver knows of them before and after they are there.
        self.play();
        for pid in gone {
            self.procfs.forget(pid);
        }
    }

    /// How many came until now.
    #[must_use]
    pub const fn came(&self) -> u32 {
        self.next - FIRST
    }

    fn invent(&mut self) {
        let pid = self.next;
        let (nth, uid) = (pid - FIRST, 1_000 + pid % 20);
        let cmdline = format!(
            "python3\0/home/user{uid}/train.py\0--config\0runs/{nth}.yaml\0--epochs\0100\0"
        );
        self.procfs.invent(Invented {
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

    fn play(&self) {
        let of_gpu = |gpu: u32| -> Vec<Value> {
            let pids = self.live.iter().filter(|pid| *pid % GPUS == gpu);
            pids.map(|pid| json!({"pid": pid, "memory": 1 << 30, "sm": 12}))
                .collect()
        };
        let gpus = (0..GPUS).map(|gpu| json!({"processes": of_gpu(gpu)}));
        let gpus: Vec<Value> = gpus.collect();
        self.stage.play(&json!({"gpus": gpus}));
    }
}
