//! The Debian package on a box with its own systemd: installed, run, upgraded and removed
//! as on any other box, with the stand-in NVML in place of the driver.

mod device_nodes;
mod gateway;
mod privilege_separation;
mod reset;
mod restarts;
mod rights;
mod service;
mod settings;
mod shutdown;
mod versions;

use gpukill_tests::harness::{BootedBox, CommandOutput, Packages, binaries, eventually, packages};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The directory of the stand-ins in the box.
const STAND_IN: &str = "/usr/lib/stand-in";

/// Two plain users, an operator and an admin.
const ALICE_UID: u32 = 2001;
const BOB_UID: u32 = 2002;
const OPERATOR_UID: u32 = 2003;
const ADMIN_UID: u32 = 2004;

/// A box on which the package is installed and an admin has written settings.
struct InstalledBox {
    booted: BootedBox,
    package: &'static Packages,
}

impl InstalledBox {
    /// Installs the package, adds these lines to the settings and restarts the daemon.
    /// `None` where no box can be booted.
    fn with_settings(more: &str) -> Option<Self> {
        let it = Self::without_package()?;
        it.install(&it.package.first);
        it.create_users();
        it.configure(more);
        it.run_as_root(&["systemctl", "restart", "gpukilld"]);
        Some(it)
    }

    /// A box with everything but the package.
    fn without_package() -> Option<Self> {
        let booted = BootedBox::start()?;
        let package = packages()?;
        let it = Self { booted, package };
        it.write(&format!("{STAND_IN}/state.json"), "{}");
        it.copy_into_box(&binaries().nvml, &format!("{STAND_IN}/libnvidia-ml.so.1"));
        it.write(
            "/etc/systemd/system/gpukilld.service.d/stand-in.conf",
            &format!("[Service]\nEnvironment=FAKE_NVML_STATE={STAND_IN}/state.json\n"),
        );
        it.set_driver_state(&json!({"gpus": []}));
        Some(it)
    }

    fn install(&self, package: &Path) {
        self.copy_into_box(package, "/root/gpukill.deb");
        self.dpkg(&["--install", "/root/gpukill.deb"]);
    }

    /// Runs dpkg without triggers: other packages react to them whenever a file is added or
    /// removed.
    fn dpkg(&self, arguments: &[&str]) {
        let dpkg = ["dpkg", "--no-triggers"];
        self.run_as_root(&[&dpkg[..], arguments].concat());
    }

    fn create_users(&self) {
        let users = [
            ("alice", ALICE_UID),
            ("bob", BOB_UID),
            ("olga", OPERATOR_UID),
            ("ada", ADMIN_UID),
        ];
        let mut lines: Vec<String> = users.map(|(name, uid)| format!("u {name} {uid}")).into();
        lines.push("m olga gpukill-operators".into());
        lines.push("m ada gpukill-admin".into());
        let mut command = vec!["systemd-sysusers", "--inline"];
        command.extend(lines.iter().map(String::as_str));
        self.run_as_root(&command);
    }

    /// Writes settings: the paths of the stand-ins, short poll and sample intervals, and
    /// these lines.
    fn configure(&self, more: &str) {
        self.write(
            "/etc/gpukill/gpukilld.toml",
            &format!(
                "[daemon]\npoll_interval = \"100ms\"\nforeign_pids = true\n\
                 [backends]\nnvidia_library = \"{STAND_IN}/libnvidia-ml.so.1\"\n\
                 sysfs_root = \"{STAND_IN}/sys\"\n[audit]\nsample_interval = \"1s\"\n{more}\n"
            ),
        );
    }

    fn copy_into_box(&self, file: &Path, path: &str) {
        let path = self.booted.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(file, path).unwrap();
    }

    fn set_driver_state(&self, state: &Value) {
        let new = format!("{STAND_IN}/state.new");
        self.write(&new, &state.to_string());
        let file = self.booted.path(&format!("{STAND_IN}/state.json"));
        std::fs::rename(self.booted.path(&new), file).unwrap();
    }

    /// Sets one GPU that these processes use.
    fn list_processes(&self, pids: &[u32]) {
        let rows = pids
            .iter()
            .map(|pid| json!({"pid": pid, "memory": 1_u64 << 30}));
        let rows: Vec<Value> = rows.collect();
        self.set_driver_state(&json!({"gpus": [{"processes": rows}]}));
    }

    /// Starts a service of this user and returns the pid of its process.
    fn start_job(&self, user: &str, unit: &str) -> u32 {
        let (uid, unit) = (format!("--uid={user}"), format!("--unit={unit}"));
        let program = ["bash", "-c", "exec -a python sleep 1000"];
        let run = ["systemd-run", "--quiet", &uid, &unit];
        self.run_as_root(&[&run[..], &program].concat());
        let unit = unit.trim_start_matches("--unit=");
        self.unit_property(unit, "MainPID").parse().unwrap()
    }

    fn process_exists(&self, pid: u32) -> bool {
        self.booted.path(&format!("/proc/{pid}")).exists()
    }

    fn main_pid(&self) -> u32 {
        self.unit_property("gpukilld", "MainPID").parse().unwrap()
    }

    fn wait_for_property(&self, unit: &str, name: &str, value: &str) {
        eventually(&format!("{unit} has {name}={value}"), || {
            (self.unit_property(unit, name) == value).then_some(())
        });
    }

    /// Waits for a journal entry of gpukilld of this kind with these fields, and returns
    /// the first.
    fn wait_for_entry(&self, kind: &str, fields: &[&str]) -> Value {
        let id = format!(
            "MESSAGE_ID={}",
            gpukill_tests::harness::Journald::message_id(kind)
        );
        let unit = "_SYSTEMD_UNIT=gpukilld.service";
        let all = [&[unit, &id], fields].concat();
        eventually(&format!("{kind} in the journal"), || {
            self.journal(&all).into_iter().next()
        })
    }

    /// The recorded rule edits, the newest first.
    fn recorded_edits(&self) -> Vec<Value> {
        let record = self.json("root", &["audit", "actions", "-o", "json"]);
        let actions = record["actions"].as_array().unwrap().iter();
        actions
            .filter(|action| action["kind"] == "rules_edit")
            .cloned()
            .collect()
    }
}

impl std::ops::Deref for InstalledBox {
    type Target = BootedBox;

    fn deref(&self) -> &BootedBox {
        &self.booted
    }
}

fn run_timed(command: &mut Command) -> (CommandOutput, std::time::Duration) {
    let started_at = std::time::Instant::now();
    (CommandOutput::run(command), started_at.elapsed())
}
