//! Who holds a GPU, and why its memory is not free: a story for each cause.

use gpukill_tests::harness::{Daemon, Invented, Procfs, Related, Stage};
use serde_json::{Value, json};
use std::process::Command;

mod fleeting;

mod orphans;

mod namespaces;

mod ended;

mod stuck;

mod everybodys;

mod unlisted;

mod unseen;

mod explained;

mod whose;

mod cards;

mod shared_clients;

mod shared_buffers;

mod crowd;

const GIB: u64 = 1 << 30;

/// A box of which the device files of NVIDIA GPUs are known: `/dev/full` (1:7) is
/// `/dev/nvidia7`, `/dev/random` (1:8) is `/dev/nvidia8`, and `/dev/tty` (5:0) is
/// `/dev/nvidia-uvm`, which all of them share. Only processes that the test lets
/// in are seen.
struct Box {
    stage: Stage,
    procfs: Procfs,
}

impl Box {
    fn new() -> Self {
        let stage = Stage::new();
        let procfs = Procfs::at(stage.path("proc"));
        let write = |file: &str, text: &str| {
            std::fs::write(procfs.root().join(file), text).unwrap();
        };
        write(
            "devices",
            "Character devices:\n  1 nvidia\n  5 nvidia-uvm\n",
        );
        write("meminfo", "MemTotal:       16777216 kB\n");
        Self { stage, procfs }
    }

    /// The daemon of this box, not yet started.
    fn daemon(&self) -> Command {
        let mut command = self.stage.daemon();
        command
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            // The lists of names that the test machine has are not this box's.
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.stage.path("home"));
        command
    }

    fn start(&self) -> Daemon {
        self.stage.start_with(&mut self.daemon())
    }

    /// Of the GPU whose file is `/dev/nvidia7` so much is used, and its driver
    /// lists these.
    fn play(&self, used: u64, processes: &Value) {
        self.stage.play(&json!({"gpus": [gpu(7, used, processes)]}));
    }

    /// A process of user 1 that leads itself and has these files open.
    fn invent(&self, pid: u32, name: &str, files: &[&str]) {
        self.invent_related(pid, name, 1, files);
    }

    /// The same with another parent.
    fn invent_related(&self, pid: u32, name: &str, parent: u32, files: &[&str]) {
        let process = Invented {
            pid,
            name,
            uid: 1,
            start_ticks: 100,
            cmdline: &format!("{name}\0"),
            cgroup: "0::/\n",
        };
        let related = Related {
            parent,
            group: pid,
            session: pid,
            ..Related::default()
        };
        self.procfs.invent_related(process, related);
        for (fd, file) in (5..).zip(files) {
            self.procfs.open(pid, fd, file, "pos:\t0\n");
        }
    }

    /// Changes the state of a made-up process, in the kernel's letter.
    fn turn(&self, pid: u32, letter: &str) {
        let stat = std::fs::read_to_string(self.procfs.root().join(format!("{pid}/stat")));
        let stat = stat.unwrap();
        let (name, fields) = stat.split_once(") ").unwrap();
        let (_, fields) = fields.split_once(' ').unwrap();
        let stat = format!("{name}) {letter} {fields}");
        self.procfs.write(pid, "stat", &stat);
    }

    /// What programs read of the first GPU.
    fn held(&self) -> Value {
        let document = self.stage.json(&["holders", "--gpu", "0", "-o", "json"]);
        document["held_gpus"][0].clone()
    }

    /// Whose its memory is: cause, processes, and what frees it.
    fn findings(&self) -> Value {
        let fields = ["cause", "pids", "remedy", "remedy_pids"];
        pick(&self.held()["findings"], &fields)
    }

    /// What its holders are.
    fn roles(&self) -> Value {
        pick(&self.held()["holders"], &["pid", "role"])
    }

    /// What people read of it, without its first line, which has its name.
    fn screen(&self) -> String {
        let ran = self.stage.ctl(&["holders", "--gpu", "0"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let (_, rest) = ran.stdout.split_once("\n\n").expect("a heading");
        rest.to_owned()
    }

    /// What is said below the table of its holders.
    fn verdict(&self) -> String {
        let screen = self.screen();
        let (_, verdict) = screen.split_once("\n\n").unwrap_or_default();
        verdict.to_owned()
    }
}

/// A GPU whose file is `/dev/nvidiaN` with this number.
fn gpu(minor: u32, used: u64, processes: &Value) -> Value {
    json!({
        "minor": minor,
        "memory": {"total": 80 * GIB, "used": used},
        "processes": processes,
    })
}

/// These fields of each row.
fn pick(rows: &Value, fields: &[&str]) -> Value {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| -> Value { fields.iter().map(|field| row[*field].clone()).collect() })
        .collect()
}

/// What `ps` calls this user; its number where it has no name.
fn user_called(uid: u32) -> String {
    let id = Command::new("id").args(["-nu", &uid.to_string()]).output();
    let name = id.ok().filter(|id| id.status.success());
    let name = name.and_then(|id| String::from_utf8(id.stdout).ok());
    name.map_or_else(|| uid.to_string(), |name| name.trim().to_owned())
}

/// Whoever runs this test.
fn us() -> String {
    user_called(rustix::process::geteuid().as_raw())
}
