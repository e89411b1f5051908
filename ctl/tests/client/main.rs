//! Runs the real binary against a stand-in daemon over the real protocol.
//!
//! - `answers`: output and exit codes.
//! - `confirmation`, `kill`, `kill_follow`, `progress`: `kill`, from the question to the end;
//!   `fake_kill` answers it.
//! - `reset`: `reset` while it is followed; `fake_reset` answers it.
//! - `holders`: `holders` and `explain`; `fake_holders` answers them.
//! - `audit`: `audit`; `fake_audit` answers it.
//! - `guard`: `guard violations`; `fake_guard` answers it.
//! - `rogue`: `rogue scan`; `fake_rogue` answers it.
//! - `quiesce`: `quiesce` and `resume`.
//! - `versions`: older and newer daemons.
//! - `availability`: busy, silent, missing and foreign daemons.
//! - `watch`: `list --watch`, on a stream and on a `terminal`.

mod answers;

mod confirmation;

mod fake_daemon;

mod kill_follow;

mod guard;

mod fake_holders;

mod holders;

mod fake_kill;

mod kill;

mod fake_audit;

mod progress;

mod quiesce;

mod audit;

mod fake_reset;

mod reset;

mod fake_snapshot;

mod script;

mod fake_server;

mod rogue;

mod fake_rogue;

mod terminal;

mod fake_guard;

mod versions;

mod availability;

mod watch;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The client, without this user's environment and settings.
fn client(socket: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpukillctl"));
    command
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("TZ", "UTC")
        .arg("--socket")
        .arg(socket)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

fn run(socket: &Path, arguments: &str) -> Output {
    client(socket, arguments).output().expect("it runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}
