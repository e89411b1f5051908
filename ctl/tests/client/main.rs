//! Runs the real binary against a fake daemon over the real protocol.
//!
//! - `answers`: output and exit codes.
//! - `confirmation`, `kill`, `kill_follow`, `progress`: `kill`, from the question to the end;
//!   `fake_kill` answers it.
//! - `reset`: `reset` while it is followed; `fake_reset` answers it.
//! - `holders`: `holders` and `explain`; `fake_holders` answers them.
//! - `audit`: `audit`; `fake_audit` answers it.
//! - `archive`, `archive_interrupted`: `audit archive`; `fake_store` answers it.
//! - `guard`: `guard violations`; `fake_guard` answers it.
//! - `rogue`: `rogue scan`; `fake_rogue` answers it.
//! - `quiesce`: `quiesce` and `resume`.
//! - `versions`: older and newer daemons.
//! - `availability`: busy, silent, missing and foreign daemons.
//! - `watch`: `list --watch`, on a stream and on a `terminal`.

mod answers;
mod archive;
mod archive_interrupted;
mod audit;
mod availability;
mod confirmation;
mod fake_audit;
mod fake_daemon;
mod fake_guard;
mod fake_holders;
mod fake_kill;
mod fake_reset;
mod fake_rogue;
mod fake_server;
mod fake_snapshot;
mod fake_store;
mod guard;
mod holders;
mod kill;
mod kill_follow;
mod progress;
mod quiesce;
mod reset;
mod rogue;
mod script;
mod terminal;
mod versions;
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
