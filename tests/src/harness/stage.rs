//! A directory with all that one box needs: stand-in NVML, settings, socket,
//! store.

use super::daemon::Daemon;
use super::{PATIENCE, Sysfs, built, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};

/// One box of its own. Removed when dropped.
pub struct Stage {
    directory: tempfile::TempDir,
}

/// How the faults of a backend that is late begin.
const LATE: [&str; 3] = [
    "does not answer in time",
    "has not answered yet",
    "answers slowly",
];

/// How a client ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Stage {
    /// A box that has no GPU yet.
    ///
    /// # Panics
    /// When the directory cannot be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gpukill-")
            .tempdir()
            .expect("a directory");
        let stage = Self { directory };
        std::fs::create_dir(stage.path("lib")).expect("a directory");
        std::fs::create_dir(stage.path("home")).expect("a directory");
        std::os::unix::fs::symlink(&built().nvml, stage.library()).expect("a link");
        let _ = stage.sysfs();
        stage.configure("");
        stage.play(&serde_json::json!({"gpus": []}));
        stage
    }

    /// A path in its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its NVML.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.path("lib/libnvidia-ml.so.1")
    }

    /// Makes its NVML one of an older driver, without these functions.
    ///
    /// # Panics
    /// When the stand-in does not have one of them.
    pub fn older_library(&self, functions: &[&str]) {
        let library = std::fs::read(&built().nvml).expect("the stand-in is built");
        let older = super::older::without(&library, functions);
        std::fs::remove_file(self.library()).expect("a library");
        std::fs::write(self.library(), older).expect("a library");
    }

    /// Its `/sys`: no card of the test machine is in it.
    #[must_use]
    pub fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.path("sys"))
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("run/gpukilld.sock")
    }

    /// Makes the stand-in NVML play this state from now on; the format is told
    /// in `fake-nvml/src/state.rs`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn play(&self, state: &Value) {
        play(self.directory(), state);
    }

    /// Writes the daemon's settings: fast polls, leave to end processes where the
    /// tests have pids of their own, and these lines of TOML after
    /// them. A line that sets a section's key again needs `{section}` order, so
    /// give whole sections that are not `[daemon]`, `[backends]`, `[guard]`, `[rogue]` or `[audit]`,
    /// or `[access]`, which gets the groups of the suite where it names none,
    /// or override single keys with the environment.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn configure(&self, more: &str) {
        let text = format!(
            "[daemon]\nsocket = {:?}\nstate_dir = {:?}\npoll_interval = \"100ms\"\n\
             foreign_pids = true\n[backends]\nnvidia_library = {:?}\nsysfs_root = {:?}\n[guard]\nrules = {:?}\nterminals = \"\"\n[rogue]\nrules = {:?}\n[audit]\nsample_interval = \"1s\"\n{more}\n",
            self.socket(),
            self.path("state"),
            self.library(),
            self.path("sys"),
            self.path("guard.toml"),
            self.path("rogue.toml")
        );
        let text = with_own_groups(&text);
        let file = self.path("gpukilld.toml");
        std::fs::write(&file, text).expect("a settings file");
        // What others may write is not believed, whatever the test's umask.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(file, mode).expect("the file is ours");
    }

    /// The daemon of this box, not yet started.
    #[must_use]
    pub fn daemon(&self) -> Command {
        let mut command = Command::new(&built().gpukilld);
        command.arg("--config").arg(self.path("gpukilld.toml"));
        clean(&mut command);
        command
            .env("HOME", self.path("home"))
            .env("FAKE_NVML_STATE", self.path("state.json"));
        command
    }

    /// Starts the daemon and waits until it has polled.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(&self) -> Daemon {
        self.start_with(&mut self.daemon())
    }

    /// The daemon, on a host whose file of subordinate ids says this.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn daemon_with_subordinates(&self, subuid: &str) -> Command {
        let root = self.path("host");
        std::fs::create_dir_all(root.join("etc")).expect("a directory");
        std::fs::write(root.join("etc/subuid"), subuid).expect("a file");
        let mut daemon = self.daemon();
        daemon.env("GPUKILLD_BACKENDS_HOST_ROOT", root);
        daemon
    }

    /// Starts this command as the daemon and waits until it has polled.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with(&self, command: &mut Command) -> Daemon {
        let daemon = self.launch(command, &self.socket());
        eventually("the first poll", || {
            (self.ctl(&["list", "-o", "json"]).code != 6).then_some(())
        });
        daemon
    }

    /// Starts this command as a daemon that listens here, and waits until it
    /// answers.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn launch(&self, command: &mut Command, socket: &Path) -> Daemon {
        let mut daemon = Daemon::start(command, socket, self.path("daemon.log"));
        assert!(
            daemon.ended().is_none(),
            "the daemon ended:\n{}",
            daemon.log()
        );
        daemon
    }

    /// Lets every user reach what is in the directory.
    ///
    /// # Panics
    /// When the directory is gone.
    pub fn open_to_all(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.directory(), mode).expect("the directory is ours");
    }

    /// A client of this box, not yet started. Nothing of the environment of the
    /// test reaches it.
    #[must_use]
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&built().gpukillctl);
        clean(&mut command);
        command
            .env("HOME", self.path("home"))
            .env("GPUKILL_SOCKET", self.socket())
            .env("LANG", "C.UTF-8");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a client to its end.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.client(arguments))
    }

    /// What a client that prints JSON prints.
    ///
    /// # Panics
    /// When it fails or prints something else.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.ctl(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// The newest list as programs read it, whatever the client's exit code.
    ///
    /// # Panics
    /// When it is no JSON.
    #[must_use]
    pub fn list(&self) -> Value {
        let ran = self.ctl(&["list", "-o", "json"]);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// The parts and the words of all that is broken, as soon as no backend is late: on a
    /// busy machine each of them is at times.
    ///
    /// # Panics
    /// As [`Self::list`], and when a backend stays late.
    #[must_use]
    pub fn faults(&self) -> Vec<(String, String)> {
        eventually("backends answer in time", || {
            let faults = self.faults_now();
            let is_late = |(_, what): &(_, String)| LATE.iter().any(|late| what.starts_with(late));
            (!faults.iter().any(is_late)).then_some(faults)
        })
    }

    /// The parts and the words of all that is broken now.
    ///
    /// # Panics
    /// As [`Self::list`].
    #[must_use]
    pub fn faults_now(&self) -> Vec<(String, String)> {
        let list = self.list();
        let faults = list["faults"].as_array().expect("a list of faults");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        faults
            .iter()
            .map(|fault| (text(&fault["part"]), text(&fault["what"])))
            .collect()
    }

    /// A table for people, without its heading, which has the host and the time.
    ///
    /// # Panics
    /// When the client fails or prints no heading.
    #[must_use]
    pub fn table(&self, arguments: &[&str]) -> String {
        let ran = self.ctl(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        let (_, table) = ran.stdout.split_once("\n\n").expect("a heading");
        table.to_owned()
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Ran {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it cannot be started, does not end, is killed, or prints no UTF-8.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command starts");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (ended, wait) = mpsc::channel::<()>();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // What should have ended fails its test, and does not hang it.
                if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    let _ = kill_process(pid.expect("a pid"), Signal::KILL);
                }
            });
            let output = child.wait_with_output().expect("a child can be waited for");
            drop(ended);
            output
        });
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: output
                .status
                .code()
                .unwrap_or_else(|| panic!("{}", output.status)),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Makes the stand-in of the box in this directory play this.
pub(super) fn play(directory: &Path, state: &Value) {
    let new = directory.join("state.new");
    std::fs::write(&new, state.to_string()).expect("a state file");
    // In one step: the stand-in must never read half a state.
    std::fs::rename(new, directory.join("state.json")).expect("a state file");
}

/// The groups of operators and of admins, where a scenario names no others: no machine
/// has them, for a colon ends a name in `group(5)`.
const GROUPS: [(&str, &str); 2] = [
    ("operator_group", "suite:operators"),
    ("admin_group", "suite:admins"),
];

/// These settings, in which a group that the machine may have is none by default.
fn with_own_groups(settings: &str) -> String {
    const SECTION: &str = "[access]\n";
    let missing = GROUPS.iter().filter(|(key, _)| !settings.contains(key));
    let lines: String = missing
        .map(|(key, name)| format!("{key} = {name:?}\n"))
        .collect();
    match settings.split_once(SECTION) {
        Some((before, after)) => format!("{before}{SECTION}{lines}{after}"),
        None => format!("{settings}{SECTION}{lines}"),
    }
}

/// Leaves of the test's environment only what programs need to run.
pub(super) fn clean(command: &mut Command) {
    command.env_clear();
    for name in [
        "PATH",
        "LD_LIBRARY_PATH",
        "RUST_BACKTRACE",
        "LLVM_PROFILE_FILE",
        "TMPDIR",
    ] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}
