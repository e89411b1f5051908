//! A journald for a test, and the entries of its journal.

use super::{Daemon, TestBox, TestProcess, has_program, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The document that lists all journal entries.
const JOURNAL_DOCUMENT: &str = include_str!("../../../docs/journal.md");

/// A journald with its own `/run`. It receives the messages of the test alone. When it is
/// dropped it is killed, and its mounts and files disappear.
pub struct Journald(TestProcess);

impl Journald {
    /// Starts journald. Returns `None` and reports the skip where it cannot run.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can run a journald");
            return None;
        }
        let program = Path::new("/lib/systemd/systemd-journald");
        let named = std::fs::read_to_string("/etc/machine-id");
        if !program.exists()
            || !["unshare", "nsenter", "journalctl"]
                .into_iter()
                .all(has_program)
            || named.is_ok_and(|name| name.trim().is_empty())
        {
            skip("this machine has no journald, no unshare, or no machine id");
            return None;
        }
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal && exec \
            {}",
            program.display()
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "/bin/sh", "-c"]);
        let journald = Self(TestProcess::spawn(unshare.arg(script)));
        let socket = journald.path_in_namespace("/run/systemd/journal/socket");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !journald.has_started(program) || !socket.exists() {
            if Instant::now() > deadline {
                skip("journald does not start here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(journald)
    }

    /// Whether the process executes journald already. Until all is mounted it is a shell, and
    /// the socket that it sees may be the machine's own.
    fn has_started(&self, program: &Path) -> bool {
        let executable = std::fs::read_link(format!("/proc/{}/exe", self.0.pid()));
        executable.is_ok_and(|it| it.file_name() == program.file_name())
    }

    /// A path in the mount namespace of journald.
    fn path_in_namespace(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.0.pid()))
    }

    /// The directory of its journal.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.path_in_namespace("/run/log/journal")
    }

    /// Sends a signal to journald.
    ///
    /// # Panics
    /// When journald has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it runs");
    }

    /// Starts a box's daemon with its standard error connected to this journal.
    ///
    /// # Panics
    /// When the daemon does not start.
    #[must_use]
    pub fn start_daemon(&self, test_box: &TestBox, daemon: &Command) -> Daemon {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.0.pid()));
        // `JOURNAL_STREAM` names the device and inode of the log file, as it names those of
        // standard error under systemd.
        let log = std::fs::File::create(test_box.path("daemon.log")).expect("a log file");
        let file = log.metadata().expect("it is open");
        let environment = daemon.get_envs();
        enter
            .arg(daemon.get_program())
            .args(daemon.get_args())
            .env_clear()
            .envs(environment.filter_map(|(name, value)| Some((name, value?))))
            .env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino()));
        test_box.start_with(&mut enter)
    }

    /// The daemon's entries with these fields, the oldest first.
    ///
    /// # Panics
    /// When journalctl prints something else.
    #[must_use]
    pub fn entries(&self, matches: &[&str]) -> Vec<Value> {
        let mut journalctl = Command::new("journalctl");
        journalctl.arg("--directory").arg(self.directory());
        journalctl.args(["--output", "json", "SYSLOG_IDENTIFIER=gpukilld"]);
        let output = journalctl.args(matches).output().expect("it is there");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let entry = |line| serde_json::from_str(line).expect("JSON");
        text.lines().map(entry).collect()
    }

    /// The `MESSAGE_ID` that `docs/journal.md` gives for a kind of entry.
    ///
    /// # Panics
    /// When the document has no such kind.
    #[must_use]
    pub fn message_id(kind: &str) -> &'static str {
        let row = |line: &&str| line.starts_with(&format!("| {kind} | "));
        let row = JOURNAL_DOCUMENT.lines().find(row);
        let id = row.and_then(|row| row.split('`').nth(1));
        id.expect("it is documented")
    }
}
