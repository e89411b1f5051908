//! A box of its own with systemd as PID 1: what a package does there, and what becomes of
//! it when the box boots again.

use super::{Ran, eventually, has, skip};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a box may take to come up, on a test machine that is slow and shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tree of another distribution, to run the stories there: a debootstrap of it with
/// dbus, libpam-systemd and systemd-sysv. Not set, it is the machine's own.
const TREE: &str = "GPUKILL_TREE";

/// A box that runs over a tree, which stays as it is. When dropped, all of it ends, and
/// nothing is left.
pub struct Booted {
    /// The script that boots it, and systemd's own pid as this machine counts.
    boot: Child,
    init: u32,
    ground: Ground,
}

/// What it stands on from one boot to the next (`tests/systemd/ground`).
struct Ground {
    holder: Child,
    /// PID 1 of its namespace, as this machine counts.
    pid: u32,
    /// Where its tmpfs is, in its own mount namespace; here it is an empty directory.
    state: tempfile::TempDir,
}

impl Booted {
    /// `None` where no box can be booted, which is said.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can boot a box");
            return None;
        }
        let tools = ["unshare", "nsenter", "setpriv", "systemctl", "journalctl"];
        let lacks = tools.into_iter().find(|tool| !has(tool));
        if lacks.is_some() || !Path::new("/lib/systemd/systemd").exists() {
            skip("this machine has no systemd, or not the tools to boot one");
            return None;
        }
        let ground = Ground::lay()?;
        let Some((boot, init)) = ground.boot() else {
            skip("systemd does not boot in a box here");
            return None;
        };
        Some(Self { boot, init, ground })
    }

    /// A file of the box.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// The root directory of the box.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init))
    }

    /// Writes a file of the box, which root owns and everybody may read.
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

    /// A command inside, as one of the users of the box, not yet started.
    #[must_use]
    pub fn command(&self, user: &str, command: &[&str]) -> Command {
        let mut enter = inside(self.init);
        enter.args(["setpriv", "--reuid", user, "--regid", user]);
        enter.args(["--init-groups", "--reset-env", "env", "LANG=C.UTF-8"]);
        enter.args(command).stdin(Stdio::null());
        enter
    }

    /// Runs a command inside to its end.
    #[must_use]
    pub fn run(&self, user: &str, command: &[&str]) -> Ran {
        Ran::of(&mut self.command(user, command))
    }

    /// Runs a command of root's that must succeed; what it printed.
    ///
    /// # Panics
    /// When it does not.
    pub fn does(&self, command: &[&str]) -> String {
        let ran = self.run("root", command);
        assert_eq!(ran.code, 0, "{command:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// What a client prints that prints JSON.
    ///
    /// # Panics
    /// When it fails or prints something else.
    #[must_use]
    pub fn json(&self, user: &str, arguments: &[&str]) -> Value {
        let ran = self.run(user, &[&["gpukillctl"], arguments].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// What systemd says of a unit.
    #[must_use]
    pub fn property(&self, unit: &str, name: &str) -> String {
        let shown = self.does(&["systemctl", "show", "--value", "--property", name, unit]);
        shown.trim_end().to_owned()
    }

    /// The entries of this boot that have these fields, the oldest first.
    ///
    /// # Panics
    /// When journalctl fails or prints something else.
    #[must_use]
    pub fn journal(&self, matches: &[&str]) -> Vec<Value> {
        let all = ["journalctl", "--boot", "--output", "json"];
        let text = self.does(&[&all, matches].concat());
        let entry = |line| serde_json::from_str(line).expect("JSON");
        text.lines().map(entry).collect()
    }

    /// Shuts the box down in order, and boots it again.
    ///
    /// # Panics
    /// When it does not go down or not come up.
    pub fn reboot(&mut self) {
        self.does(&["systemctl", "--no-block", "poweroff"]);
        eventually("the box is down", || {
            self.boot.try_wait().expect("a child can be waited for")
        });
        (self.boot, self.init) = self.ground.boot().expect("the box comes up");
    }
}

impl Ground {
    fn lay() -> Option<Self> {
        let state = tempfile::Builder::new().prefix("gpukill-box-").tempdir();
        let state = state.expect("a directory");
        let mut holder = Command::new(script("ground"))
            .arg(state.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a script starts");
        let mut said = String::new();
        let output = holder.stdout.take().expect("it is piped");
        // Nothing is said where it ends.
        let _ = BufReader::new(output).read_line(&mut said);
        let pid = children(holder.id()).into_iter().next();
        let ground = Self {
            pid: pid.unwrap_or_default(),
            holder,
            state,
        };
        if said != "ready\n" || pid.is_none() {
            skip("no namespaces and cgroups can be made here");
            return None;
        }
        Some(ground)
    }

    /// Boots the box; its systemd's pid, once all is started.
    fn boot(&self) -> Option<(Child, u32)> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid));
        command.args(["--mount", "--pid"]).arg(script("boot"));
        let tree = std::env::var_os(TREE);
        command.arg(tree.unwrap_or("/".into()));
        command.arg(self.state.path());
        for part in [Command::stdin, Command::stdout, Command::stderr] {
            part(&mut command, Stdio::null());
        }
        let mut boot = command.spawn().expect("nsenter starts");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(init) = init_below(boot.id())
                && is_up(init)
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

/// A command in all namespaces of a box, not yet said.
fn inside(init: u32) -> Command {
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--target={init}")).arg("--all");
    enter
}

/// The systemd that a chain of processes, each with one child, has become by now.
fn init_below(pid: u32) -> Option<u32> {
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

/// Whether all is started, well or not.
fn is_up(init: u32) -> bool {
    let mut asks = inside(init);
    asks.args(["systemctl", "is-system-running"]);
    let said = asks.stderr(Stdio::null()).output().expect("nsenter starts");
    matches!(said.stdout.as_slice(), b"running\n" | b"degraded\n")
}

/// The children of a process that has one thread.
fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let pids = std::fs::read_to_string(file).unwrap_or_default();
    let pids = pids.split_whitespace().map(str::parse);
    pids.filter_map(Result::ok).collect()
}

fn script(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    directory.join(name)
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Its input ends, and it takes everything with it.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        // In order where it can: the journal of a test that failed is gone anyway.
        let _ = self.boot.kill();
        let _ = self.boot.wait();
    }
}
