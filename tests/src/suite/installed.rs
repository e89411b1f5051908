//! The package on a box with a systemd of its own: installed, run, upgraded and removed as
//! on any other, with the stand-in NVML in place of the driver.

mod apart;

mod endings;

mod nodes;

mod reset;

mod restarts;

mod rights;

mod service;

mod settings;

mod versions;

use gpukill_tests::harness::{Booted, Package, Ran, built, eventually, package};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Where the stand-ins lie in the box.
const STAND_IN: &str = "/usr/lib/stand-in";

/// Two plain users, one who is an operator, and one who is an admin.
const ALICE: u32 = 2001;
const BOB: u32 = 2002;
const OLGA: u32 = 2003;
const ADA: u32 = 2004;

/// A box on which the package is installed, and an admin has written settings.
struct Installed {
    booted: Booted,
    package: &'static Package,
}

impl Installed {
    /// With these lines of settings besides.
    fn with(more: &str) -> Option<Self> {
        let it = Self::bare()?;
        it.install(&it.package.first);
        it.settle();
        it.configure(more);
        it.does(&["systemctl", "restart", "gpukilld"]);
        Some(it)
    }

    /// A box with all but the package.
    fn bare() -> Option<Self> {
        let booted = Booted::start()?;
        let package = package()?;
        let it = Self { booted, package };
        it.write(&format!("{STAND_IN}/state.json"), "{}");
        it.put(&built().nvml, &format!("{STAND_IN}/libnvidia-ml.so.1"));
        it.write(
            "/etc/systemd/system/gpukilld.service.d/stand-in.conf",
            &format!("[Service]\nEnvironment=FAKE_NVML_STATE={STAND_IN}/state.json\n"),
        );
        it.play(&json!({"gpus": []}));
        Some(it)
    }

    /// As an admin does.
    fn install(&self, package: &Path) {
        self.put(package, "/root/gpukill.deb");
        self.dpkg(&["--install", "/root/gpukill.deb"]);
    }

    /// Runs dpkg, without what other packages do whenever a file comes or goes.
    fn dpkg(&self, arguments: &[&str]) {
        let dpkg = ["dpkg", "--no-triggers"];
        self.does(&[&dpkg[..], arguments].concat());
    }

    /// Lets the people of the box be there.
    fn settle(&self) {
        let users = [("alice", ALICE), ("bob", BOB), ("olga", OLGA), ("ada", ADA)];
        let mut lines: Vec<String> = users.map(|(name, uid)| format!("u {name} {uid}")).into();
        lines.push("m olga gpukill-operators".into());
        lines.push("m ada gpukill-admin".into());
        let mut command = vec!["systemd-sysusers", "--inline"];
        command.extend(lines.iter().map(String::as_str));
        self.does(&command);
    }

    /// Writes settings: the stand-ins' places, fast polls and samples, and these lines.
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

    /// Copies a file into the box.
    fn put(&self, file: &Path, path: &str) {
        let path = self.booted.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(file, path).unwrap();
    }

    /// Makes the stand-in NVML play this.
    fn play(&self, state: &Value) {
        let new = format!("{STAND_IN}/state.new");
        self.write(&new, &state.to_string());
        let file = self.booted.path(&format!("{STAND_IN}/state.json"));
        std::fs::rename(self.booted.path(&new), file).unwrap();
    }

    /// One GPU that these processes use.
    fn lists(&self, pids: &[u32]) {
        let rows = pids
            .iter()
            .map(|pid| json!({"pid": pid, "memory": 1_u64 << 30}));
        let rows: Vec<Value> = rows.collect();
        self.play(&json!({"gpus": [{"processes": rows}]}));
    }

    /// A service that this user runs for themselves: the pid of its process.
    fn job(&self, user: &str, unit: &str) -> u32 {
        let (uid, unit) = (format!("--uid={user}"), format!("--unit={unit}"));
        let program = ["bash", "-c", "exec -a python sleep 1000"];
        let run = ["systemd-run", "--quiet", &uid, &unit];
        self.does(&[&run[..], &program].concat());
        let unit = unit.trim_start_matches("--unit=");
        self.property(unit, "MainPID").parse().unwrap()
    }

    /// Whether this process is there.
    fn has(&self, pid: u32) -> bool {
        self.booted.path(&format!("/proc/{pid}")).exists()
    }

    fn main_pid(&self) -> u32 {
        self.property("gpukilld", "MainPID").parse().unwrap()
    }

    /// Waits until a unit has a property.
    fn gets(&self, unit: &str, name: &str, value: &str) {
        eventually(&format!("{unit} has {name}={value}"), || {
            (self.property(unit, name) == value).then_some(())
        });
    }

    /// The first entry of gpukilld's of this kind with these fields, as soon as it is there.
    fn told(&self, kind: &str, fields: &[&str]) -> Value {
        let id = format!(
            "MESSAGE_ID={}",
            gpukill_tests::harness::Journald::id_of(kind)
        );
        let unit = "_SYSTEMD_UNIT=gpukilld.service";
        let all = [&[unit, &id], fields].concat();
        eventually(&format!("{kind} in the journal"), || {
            self.journal(&all).into_iter().next()
        })
    }

    /// The edits of the rules that are recorded, the newest first.
    fn edits(&self) -> Vec<Value> {
        let record = self.json("root", &["audit", "actions", "-o", "json"]);
        let actions = record["actions"].as_array().unwrap().iter();
        actions
            .filter(|act| act["kind"] == "rules_edit")
            .cloned()
            .collect()
    }
}

impl std::ops::Deref for Installed {
    type Target = Booted;

    fn deref(&self) -> &Booted {
        &self.booted
    }
}

/// Sets a command's limit of time by the clock of whoever waits.
fn timed(command: &mut Command) -> (Ran, std::time::Duration) {
    let began = std::time::Instant::now();
    (Ran::of(command), began.elapsed())
}
