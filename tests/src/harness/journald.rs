//! A journald of the test's own, and what an admin finds in its journal.

use super::{Actor, Daemon, Stage, has, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What the journal has.
const DOCUMENT: &str = include_str!("../../../docs/journal.md");

/// A journald with its own `/run`, and nobody else's messages. Killed when dropped;
/// whatever it mounted and wrote goes with it.
pub struct Journald(Actor);

impl Journald {
    /// `None` where it cannot run, which is said.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can run a journald");
            return None;
        }
        let program = Path::new("/lib/systemd/systemd-journald");
        let named = std::fs::read_to_string("/etc/machine-id");
        if !program.exists()
            || !["unshare", "nsenter", "journalctl"].into_iter().all(has)
            || named.is_ok_and(|name| name.trim().is_empty())
        {
            skip("this machine has no journald, no unshare, or no name");
            return None;
        }
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal && exec {}",
            program.display()
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "/bin/sh", "-c"]);
        let journald = Self(Actor::of(unshare.arg(script)));
        let socket = journald.inside("/run/systemd/journal/socket");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !journald.runs(program) || !socket.exists() {
            if Instant::now() > deadline {
                skip("journald does not start here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(journald)
    }

    /// Whether it is journald by now, which it becomes when all is mounted: until then
    /// the socket that it sees may be the machine's own.
    fn runs(&self, program: &Path) -> bool {
        let executable = std::fs::read_link(format!("/proc/{}/exe", self.0.pid()));
        executable.is_ok_and(|it| it.file_name() == program.file_name())
    }

    /// A path as it sees it.
    fn inside(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.0.pid()))
    }

    /// Where its journal lies.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.inside("/run/log/journal")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it runs");
    }

    /// Starts this daemon of a box so that its standard error goes to this journal.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn starts(&self, stage: &Stage, daemon: &Command) -> Daemon {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.0.pid()));
        // The log file, so that systemd's promise is kept by a file.
        let log = std::fs::File::create(stage.path("daemon.log")).expect("a log file");
        let file = log.metadata().expect("it is open");
        let environment = daemon.get_envs();
        enter
            .arg(daemon.get_program())
            .args(daemon.get_args())
            .env_clear()
            .envs(environment.filter_map(|(name, value)| Some((name, value?))))
            .env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino()));
        stage.start_with(&mut enter)
    }

    /// The entries of the daemon so far that have these fields, the oldest first.
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

    /// The identifier that `docs/journal.md` has for a kind of entry.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn id_of(kind: &str) -> &'static str {
        let row = |line: &&str| line.starts_with(&format!("| {kind} | "));
        let row = DOCUMENT.lines().find(row);
        let id = row.and_then(|row| row.split('`').nth(1));
        id.expect("it is documented")
    }
}
