//! `holders` and `explain`: which processes hold a GPU, and why its memory is not free. One
//! file for each cause.

use gpukill_tests::harness::{Daemon, FakeProcess, FakeProcessDetails, FakeProcfs, TestBox};
use serde_json::{Value, json};
use std::process::Command;

mod concurrent_requests;
mod descriptor_passing;
mod drm_cards;
mod ended;
mod explain;
mod incomplete_scans;
mod namespaces;
mod orphans;
mod shared_buffers;
mod shared_clients;
mod shared_services;
mod stuck;
mod unlisted;
mod visibility;

const GIB: u64 = 1 << 30;

/// A box on which the device files of NVIDIA GPUs are known: `/dev/full` (1:7) is
/// `/dev/nvidia7`, `/dev/random` (1:8) is `/dev/nvidia8`, and `/dev/tty` (5:0) is
/// `/dev/nvidia-uvm`, which all of them share. The daemon sees only the processes that the
/// test adds.
struct HoldersBox {
    test_box: TestBox,
    procfs: FakeProcfs,
}

impl HoldersBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        let procfs = FakeProcfs::new(test_box.path("proc"));
        let write = |file: &str, text: &str| {
            std::fs::write(procfs.root().join(file), text).unwrap();
        };
        write(
            "devices",
            "Character devices:\n  1 nvidia\n  5 nvidia-uvm\n",
        );
        write("meminfo", "MemTotal:       16777216 kB\n");
        Self { test_box, procfs }
    }

    /// The daemon of this box, not yet started.
    fn daemon_command(&self) -> Command {
        let mut command = self.test_box.daemon_command();
        command
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            // The name lists of the test machine do not apply to this box.
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.test_box.path("home"));
        command
    }

    fn start(&self) -> Daemon {
        self.test_box.start_with(&mut self.daemon_command())
    }

    /// Sets the used memory of the GPU with the file `/dev/nvidia7`, and the processes that
    /// its driver lists.
    fn set_driver_state(&self, used: u64, processes: &Value) {
        self.test_box
            .set_driver_state(&json!({"gpus": [gpu_state(7, used, processes)]}));
    }

    /// Adds a process of user 1 that leads its own group and session and has these files
    /// open.
    fn add_process(&self, pid: u32, name: &str, files: &[&str]) {
        self.add_process_with_parent(pid, name, 1, files);
    }

    fn add_process_with_parent(&self, pid: u32, name: &str, parent: u32, files: &[&str]) {
        let process = FakeProcess {
            pid,
            name,
            uid: 1,
            start_ticks: 100,
            cmdline: &format!("{name}\0"),
            cgroup: "0::/\n",
        };
        let related = FakeProcessDetails {
            parent,
            group: pid,
            session: pid,
            ..FakeProcessDetails::default()
        };
        self.procfs.add_process_with_details(process, related);
        for (fd, file) in (5..).zip(files) {
            self.procfs.add_descriptor(pid, fd, file, "pos:\t0\n");
        }
    }

    /// Sets the state of a simulated process, as the letter that the kernel uses.
    fn set_process_state(&self, pid: u32, letter: &str) {
        let stat = std::fs::read_to_string(self.procfs.root().join(format!("{pid}/stat")));
        let stat = stat.unwrap();
        let (name, fields) = stat.split_once(") ").unwrap();
        let (_, fields) = fields.split_once(' ').unwrap();
        let stat = format!("{name}) {letter} {fields}");
        self.procfs.write(pid, "stat", &stat);
    }

    /// The first GPU of the JSON document of `holders`.
    fn first_gpu_document(&self) -> Value {
        let document = self.test_box.json(&["holders", "--gpu", "0", "-o", "json"]);
        document["held_gpus"][0].clone()
    }

    /// The causes that `holders` finds: cause, processes, remedy, and the pids that the
    /// remedy ends.
    fn findings(&self) -> Value {
        let fields = ["cause", "pids", "remedy", "remedy_pids"];
        select_fields(&self.first_gpu_document()["findings"], &fields)
    }

    fn roles(&self) -> Value {
        select_fields(&self.first_gpu_document()["holders"], &["pid", "role"])
    }

    /// The output of `holders` for the GPU, without the first line, which has its name.
    fn screen(&self) -> String {
        let ran = self.test_box.ctl(&["holders", "--gpu", "0"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let (_, rest) = ran.stdout.split_once("\n\n").expect("a heading");
        rest.to_owned()
    }

    /// The last line about an unlisted process: its command for a caller who may end it, else
    /// these people to ask. The rights depend on the user who runs the test.
    fn end_hint(&self, pid: u32, people: &str) -> String {
        let explained = ["explain", &pid.to_string(), "-o", "json"];
        match self.test_box.json(&explained)["you_may_end"] == json!(true) {
            true => format!("If it is no longer needed: gpukillctl kill {pid}\n"),
            false => format!("If it is no longer needed, ask {people} to end it\n"),
        }
    }

    fn text_below_table(&self) -> String {
        let screen = self.screen();
        let (_, verdict) = screen.split_once("\n\n").unwrap_or_default();
        verdict.to_owned()
    }
}

/// A GPU with the device file `/dev/nvidiaN` of this number.
fn gpu_state(minor: u32, used: u64, processes: &Value) -> Value {
    json!({
        "minor": minor,
        "memory": {"total": 80 * GIB, "used": used},
        "processes": processes,
    })
}

fn select_fields(rows: &Value, fields: &[&str]) -> Value {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| -> Value { fields.iter().map(|field| row[*field].clone()).collect() })
        .collect()
}

/// The name that `ps` shows for this user; its number where it has no name.
fn user_name(uid: u32) -> String {
    let id = Command::new("id").args(["-nu", &uid.to_string()]).output();
    let name = id.ok().filter(|id| id.status.success());
    let name = name.and_then(|id| String::from_utf8(id.stdout).ok());
    name.map_or_else(|| uid.to_string(), |name| name.trim().to_owned())
}

fn own_user_name() -> String {
    user_name(rustix::process::geteuid().as_raw())
}
