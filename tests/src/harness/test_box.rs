//! A temporary directory with all that one box needs: stand-in NVML, settings, socket, store.

use super::daemon::Daemon;
use super::{FakeSysfs, binaries, copy_program, eventually, gateway_uid, give_to_gateway};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A test box. Its directory is removed when dropped.
pub struct TestBox {
    directory: tempfile::TempDir,
}

/// How long clients wait for the daemon unless a test says otherwise, in seconds: longer than any
/// load of the machine delays an answer.
const REQUEST_TIMEOUT_SECS: &str = "110";

/// A list within seconds: while a driver has not answered yet, the client waits for it as long as
/// for the daemon.
const LIST_NOW: [&str; 5] = ["list", "-o", "json", "--request-timeout", "5"];

/// The first words of the faults of a slow backend.
const LATE_BACKEND_FAULTS: [&str; 3] = [
    "does not answer in time",
    "has not answered yet",
    "answers slowly",
];

/// The exit code and output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl TestBox {
    /// Creates a box without GPUs.
    ///
    /// # Panics
    /// When the directory cannot be created.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gpukill-")
            .tempdir()
            .expect("a directory");
        let test_box = Self { directory };
        std::fs::create_dir(test_box.path("lib")).expect("a directory");
        std::fs::create_dir(test_box.path("home")).expect("a directory");
        std::os::unix::fs::symlink(&binaries().nvml, test_box.library()).expect("a link");
        let _ = test_box.sysfs();
        test_box.configure("");
        test_box.set_driver_state(&serde_json::json!({"gpus": []}));
        test_box
    }

    /// A path in the directory of the box.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path of the stand-in NVML.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.path("lib/libnvidia-ml.so.1")
    }

    /// Replaces the stand-in NVML by one of an older driver, without these functions.
    ///
    /// # Panics
    /// When the stand-in has no such function.
    pub fn older_library(&self, functions: &[&str]) {
        let library = std::fs::read(&binaries().nvml).expect("the stand-in is built");
        let older = super::older::without(&library, functions);
        std::fs::remove_file(self.library()).expect("a library");
        std::fs::write(self.library(), older).expect("a library");
    }

    /// The box's `/sys`. It has no card of the test machine.
    #[must_use]
    pub fn sysfs(&self) -> FakeSysfs {
        FakeSysfs::new(self.path("sys"))
    }

    /// The path of the daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("run/gpukilld.sock")
    }

    /// Sets the state that the stand-in NVML reports from now on. `fake-nvml/src/state.rs`
    /// describes the format.
    ///
    /// # Panics
    /// When the state file cannot be written.
    pub fn set_driver_state(&self, state: &Value) {
        write_driver_state(self.directory(), state);
    }

    /// Writes the daemon's settings: fast polls, permission to end processes in the tests' own
    /// pid namespaces, and then the lines `more`. TOML allows each section once, so `more`
    /// consists of whole sections other than `[daemon]`, `[backends]`, `[guard]`, `[rogue]` and
    /// `[audit]`; override single keys of these with environment variables. `[access]` gets the
    /// groups of the suite unless `more` names groups.
    ///
    /// # Panics
    /// When the settings cannot be written.
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
        let text = add_test_groups(&text);
        let file = self.path("gpukilld.toml");
        std::fs::write(&file, text).expect("a settings file");
        // The daemon refuses a file that others may write, so the mode must not depend on the
        // test's umask.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(file, mode).expect("the file is ours");
    }

    /// The daemon's command, not yet started.
    #[must_use]
    pub fn daemon_command(&self) -> Command {
        let mut command = Command::new(&binaries().gpukilld);
        command.arg("--config").arg(self.path("gpukilld.toml"));
        clear_environment(&mut command);
        command
            .env("HOME", self.path("home"))
            .env("FAKE_NVML_STATE", self.path("state.json"));
        command
    }

    /// Starts the daemon and waits for its first poll.
    ///
    /// # Panics
    /// When the daemon does not start.
    #[must_use]
    pub fn start(&self) -> Daemon {
        self.start_with(&mut self.daemon_command())
    }

    /// The daemon's command, on a host with this `/etc/subuid`.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn daemon_command_with_subuid(&self, subuid: &str) -> Command {
        let root = self.path("host");
        std::fs::create_dir_all(root.join("etc")).expect("a directory");
        std::fs::write(root.join("etc/subuid"), subuid).expect("a file");
        let mut daemon = self.daemon_command();
        daemon.env("GPUKILLD_BACKENDS_HOST_ROOT", root);
        daemon
    }

    /// Starts this command as the daemon and waits for its first poll.
    ///
    /// # Panics
    /// When the daemon does not start.
    #[must_use]
    pub fn start_with(&self, command: &mut Command) -> Daemon {
        let daemon = self.launch(command, &self.socket());
        eventually("the first poll", || {
            let ran = self.ctl(&LIST_NOW);
            (ran.code != 6).then_some(())
        });
        daemon
    }

    /// Starts this command as a daemon that listens on `socket`, and waits until it answers.
    ///
    /// # Panics
    /// When the daemon does not start.
    #[must_use]
    pub fn launch(&self, command: &mut Command, socket: &Path) -> Daemon {
        let mut daemon = Daemon::start(command, socket, self.path("daemon.log"));
        assert!(
            daemon.exit_status().is_none(),
            "the daemon ended:\n{}",
            daemon.log()
        );
        daemon
    }

    /// Makes the directory accessible to every user.
    ///
    /// # Panics
    /// When the directory does not exist.
    pub fn make_world_accessible(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.directory(), mode).expect("the directory is ours");
    }

    /// The client's command, not yet started. It inherits none of the test's environment but
    /// the paths that programs need.
    #[must_use]
    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&binaries().gpukillctl);
        clear_environment(&mut command);
        command
            .env("HOME", self.path("home"))
            .env("GPUKILL_SOCKET", self.socket())
            .env("GPUKILL_REQUEST_TIMEOUT", REQUEST_TIMEOUT_SECS)
            .env("LANG", "C.UTF-8");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// The command of a gateway with these settings, not yet started.
    ///
    /// # Panics
    /// When the settings cannot be written.
    #[must_use]
    pub fn gateway_command(&self, settings: &str) -> Command {
        self.gateway_program(settings, &[])
    }

    /// The command of the unit that pushes metrics with these settings, not yet started.
    ///
    /// # Panics
    /// When the settings cannot be written.
    #[must_use]
    pub fn notify_command(&self, settings: &str) -> Command {
        self.gateway_program(settings, &["notify"])
    }

    fn gateway_program(&self, settings: &str, subcommand: &[&str]) -> Command {
        let file = self.path("gateway.toml");
        std::fs::write(&file, settings).expect("a settings file");
        // The gateway refuses a file that others may write, whatever the umask of the test.
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&file, mode).expect("the file is ours");
        let mut command = Command::new(self.gateway_path());
        clear_environment(&mut command);
        command.args(subcommand).arg("--config").arg(file);
        command.arg("--socket").arg(self.socket());
        command.env("GPUKILL_GATEWAY_TOKENS", self.path("tokens.toml"));
        if let Some(uid) = gateway_uid() {
            self.make_world_accessible();
            command.uid(uid).gid(uid);
        }
        command
    }

    /// The program of the gateway, where its user can execute it: root may have built it in a
    /// directory that is closed to others.
    fn gateway_path(&self) -> PathBuf {
        let built = &binaries().gateway;
        let is_open = |path: &Path| {
            let metadata = path.metadata();
            metadata.is_ok_and(|it| it.permissions().mode() & 0o001 != 0)
        };
        if gateway_uid().is_none() || built.ancestors().all(is_open) {
            return built.clone();
        }
        let copy = self.path("gpukill-gateway");
        if !copy.exists() && std::fs::hard_link(built, &copy).is_err() {
            copy_program(built, &copy);
        }
        copy
    }

    /// A directory of the user of the gateway.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn gateway_directory(&self) -> PathBuf {
        let path = self.path("gateway");
        std::fs::create_dir_all(&path).expect("a directory");
        give_to_gateway(&path);
        path
    }

    /// Runs the client to its end.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::run(&mut self.client_command(arguments))
    }

    /// Runs a client that prints JSON.
    ///
    /// # Panics
    /// When the client fails or prints something else.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.ctl(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// The newest list as JSON, whatever the exit code of the client.
    ///
    /// # Panics
    /// When the output is no JSON.
    #[must_use]
    pub fn list(&self) -> Value {
        let ran = self.ctl(&LIST_NOW);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// Returns the part and the text of each fault, as soon as no backend is slow: on a busy
    /// machine a backend is slow at times.
    ///
    /// # Panics
    /// As [`Self::list`], and when a backend stays slow.
    #[must_use]
    pub fn faults(&self) -> Vec<(String, String)> {
        eventually("backends answer in time", || {
            let faults = self.faults_now();
            let is_late = |(_, what): &(_, String)| {
                LATE_BACKEND_FAULTS
                    .iter()
                    .any(|late| what.starts_with(late))
            };
            (!faults.iter().any(is_late)).then_some(faults)
        })
    }

    /// Returns the part and the text of each fault now.
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

    /// A table for people without its heading, which contains the host and the time.
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

    /// The directory of the box.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// How long a command may run. It is longer than any takes, on a machine that is as busy as a
/// fork bomb makes it.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

impl CommandOutput {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it cannot be started, does not end, is killed, or prints no UTF-8.
    #[must_use]
    pub fn run(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command starts");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (ended, wait) = mpsc::channel::<()>();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // A command that does not end fails its test instead of blocking it.
                if wait.recv_timeout(COMMAND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
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

/// Writes the state that the stand-in NVML of this directory reports.
pub(super) fn write_driver_state(directory: &Path, state: &Value) {
    let new = directory.join("state.new");
    std::fs::write(&new, state.to_string()).expect("a state file");
    // In one step: the stand-in must never read half a state.
    std::fs::rename(new, directory.join("state.json")).expect("a state file");
}

/// The operator and admin groups where a scenario names no others. No machine has them, because
/// `group(5)` allows no colon in a name.
const TEST_GROUPS: [(&str, &str); 2] = [
    ("operator_group", "suite:operators"),
    ("admin_group", "suite:admins"),
];

/// Adds the test groups to the settings, because the machine may have the default groups.
fn add_test_groups(settings: &str) -> String {
    const SECTION: &str = "[access]\n";
    let missing = TEST_GROUPS
        .iter()
        .filter(|(key, _)| !settings.contains(key));
    let lines: String = missing
        .map(|(key, name)| format!("{key} = {name:?}\n"))
        .collect();
    match settings.split_once(SECTION) {
        Some((before, after)) => format!("{before}{SECTION}{lines}{after}"),
        None => format!("{settings}{SECTION}{lines}"),
    }
}

/// Clears the environment but for the variables that programs need to run.
pub(super) fn clear_environment(command: &mut Command) {
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
