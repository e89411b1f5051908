//! A box with systemd as PID 1, in namespaces of its own: tests install the package there and
//! reboot the box.

use super::{CommandOutput, eventually, has_program, skip};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a box may take to boot on a slow, shared test machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// The environment variable for the root directory of another distribution, to run the
/// scenarios there: a debootstrap of it with dbus, libpam-systemd and systemd-sysv. If it is
/// not set, the root directory is the machine's own.
const TREE_VARIABLE: &str = "GPUKILL_TREE";

/// A box that boots from a root directory and leaves it unchanged. When it is dropped, all its
/// processes end and its files are removed.
pub struct BootedBox {
    /// The script that boots the box, and systemd's pid in the namespace of this machine.
    boot: Child,
    init: u32,
    namespaces: BoxNamespaces,
}

/// The namespaces that outlive a reboot (`tests/systemd/ground`).
struct BoxNamespaces {
    holder: Child,
    /// PID 1 of the namespace, as a pid of this machine.
    pid: u32,
    /// The mount point of the box's tmpfs, in the box's mount namespace; here it is an empty
    /// directory.
    state: tempfile::TempDir,
}

impl BootedBox {
    /// Boots a box. Returns `None` and reports the skip where no box can be booted.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can boot a box");
            return None;
        }
        let tools = ["unshare", "nsenter", "setpriv", "systemctl", "journalctl"];
        let lacks = tools.into_iter().find(|tool| !has_program(tool));
        if lacks.is_some() || !Path::new("/lib/systemd/systemd").exists() {
            skip("this machine has no systemd, or not the tools to boot one");
            return None;
        }
        let ground = BoxNamespaces::create()?;
        let Some((boot, init)) = ground.boot() else {
            skip("systemd cannot boot in a test box here");
            return None;
        };
        Some(Self {
            boot,
            init,
            namespaces: ground,
        })
    }

    /// The path of a file of the box, as seen from this machine.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// The root directory of the box.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init))
    }

    /// Writes a file of the box. Root owns it and every user may read it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, text).expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(path, mode).expect("the file is ours");
    }

    /// A command in the box as this user, not yet started.
    #[must_use]
    pub fn command(&self, user: &str, command: &[&str]) -> Command {
        let mut enter = nsenter_command(self.init);
        enter.args(["setpriv", "--reuid", user, "--regid", user]);
        enter.args(["--init-groups", "--reset-env", "env", "LANG=C.UTF-8"]);
        enter.args(command).stdin(Stdio::null());
        enter
    }

    /// Runs a command in the box to its end.
    #[must_use]
    pub fn run(&self, user: &str, command: &[&str]) -> CommandOutput {
        CommandOutput::run(&mut self.command(user, command))
    }

    /// Runs a command as root in the box and returns its output.
    ///
    /// # Panics
    /// When the command fails.
    pub fn run_as_root(&self, command: &[&str]) -> String {
        let ran = self.run("root", command);
        assert_eq!(ran.code, 0, "{command:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs a client that prints JSON.
    ///
    /// # Panics
    /// When the client fails or prints something else.
    #[must_use]
    pub fn json(&self, user: &str, arguments: &[&str]) -> Value {
        let ran = self.run(user, &[&["gpukillctl"], arguments].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// A property of a unit, from `systemctl show`.
    #[must_use]
    pub fn unit_property(&self, unit: &str, name: &str) -> String {
        let shown = self.run_as_root(&["systemctl", "show", "--value", "--property", name, unit]);
        shown.trim_end().to_owned()
    }

    /// The journal entries of this boot with these fields, the oldest first.
    ///
    /// # Panics
    /// When journalctl fails or prints something else.
    #[must_use]
    pub fn journal(&self, matches: &[&str]) -> Vec<Value> {
        let all = ["journalctl", "--boot", "--output", "json"];
        let text = self.run_as_root(&[&all, matches].concat());
        let entry = |line| serde_json::from_str(line).expect("JSON");
        text.lines().map(entry).collect()
    }

    /// Shuts the box down and boots it again.
    ///
    /// # Panics
    /// When the box does not stop or does not boot.
    pub fn reboot(&mut self) {
        self.run_as_root(&["systemctl", "--no-block", "poweroff"]);
        eventually("the box is down", || {
            self.boot.try_wait().expect("a child can be waited for")
        });
        (self.boot, self.init) = self.namespaces.boot().expect("the box comes up");
    }
}

impl BoxNamespaces {
    fn create() -> Option<Self> {
        let state = tempfile::Builder::new().prefix("gpukill-box-").tempdir();
        let state = state.expect("a directory");
        let mut holder = Command::new(script_path("ground"))
            .arg(state.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a script starts");
        let mut line = String::new();
        let output = holder.stdout.take().expect("it is piped");
        // The script prints nothing when it fails.
        let _ = BufReader::new(output).read_line(&mut line);
        let pid = children(holder.id()).into_iter().next();
        let ground = Self {
            pid: pid.unwrap_or_default(),
            holder,
            state,
        };
        if line != "ready\n" || pid.is_none() {
            skip("no namespaces and cgroups can be made here");
            return None;
        }
        Some(ground)
    }

    /// Boots the box. Returns systemd's pid when all units are started.
    fn boot(&self) -> Option<(Child, u32)> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid));
        command.args(["--mount", "--pid"]).arg(script_path("boot"));
        let tree = std::env::var_os(TREE_VARIABLE);
        command.arg(tree.unwrap_or("/".into()));
        command.arg(self.state.path());
        for part in [Command::stdin, Command::stdout, Command::stderr] {
            part(&mut command, Stdio::null());
        }
        let mut boot = command.spawn().expect("nsenter starts");
        let deadline = Instant::now() + BOOT_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(init) = find_systemd_below(boot.id())
                && has_booted(init)
            {
                return Some((boot, init));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = boot.kill();
        let _ = boot.wait();
        None
    }
}

/// A command in all namespaces of a box; the caller adds the program.
fn nsenter_command(init: u32) -> Command {
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--target={init}")).arg("--all");
    enter
}

/// Finds systemd in a chain of processes that have one child each.
fn find_systemd_below(pid: u32) -> Option<u32> {
    let mut next = Some(pid);
    while let Some(pid) = next {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        if name.is_ok_and(|name| name == "systemd\n") {
            return Some(pid);
        }
        next = children(pid).into_iter().next();
    }
    None
}

/// Whether systemd has finished booting, with or without failed units.
fn has_booted(init: u32) -> bool {
    let mut asks = nsenter_command(init);
    asks.args(["systemctl", "is-system-running"]);
    let output = asks.stderr(Stdio::null()).output().expect("nsenter starts");
    matches!(output.stdout.as_slice(), b"running\n" | b"degraded\n")
}

/// The children of a process that has one thread.
fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let pids = std::fs::read_to_string(file).unwrap_or_default();
    let pids = pids.split_whitespace().map(str::parse);
    pids.filter_map(Result::ok).collect()
}

fn script_path(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    directory.join(name)
}

impl Drop for BoxNamespaces {
    fn drop(&mut self) {
        // The script ends with its input and removes everything.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

impl Drop for BootedBox {
    fn drop(&mut self) {
        // No orderly shutdown: the journal of a failed test is removed anyway.
        let _ = self.boot.kill();
        let _ = self.boot.wait();
    }
}
