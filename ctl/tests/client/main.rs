//! The real binary against a stand-in daemon over the real wire.
//!
//! - `answers`: what it prints, and how it ends.
//! - `asking`, `killing`, `following`, `progress`: `kill`, from the question to the
//!   end; `killed` is what it is answered.
//! - `resetting`: `reset` while it is followed.
//! - `holding`: `holders` and `explain`; `held` is what they are answered.
//! - `remembering`: `audit`; `past` is what it is answered.
//! - `guarding`: `guard violations`; `verdicts` is what it is answered.
//! - `suspecting`: `rogue scan`; `suspects` is what it is answered.
//! - `quiescing`: `quiesce` and `resume`.
//! - `resetting`: `reset`.
//! - `versions`: daemons that are older and newer.
//! - `waiting`: busy, silent, absent and foreign daemons.
//! - `watching`: `list --watch`, on a stream and on a `terminal`.

mod answers;

mod asking;

mod daemon;

mod following;

mod guarding;

mod held;

mod holding;

mod killed;

mod killing;

mod past;

mod progress;

mod quiescing;

mod remembering;

mod resets;

mod resetting;

mod sample;

mod script;

mod serving;

mod suspecting;

mod suspects;

mod terminal;

mod verdicts;

mod versions;

mod waiting;

mod watching;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The client, with nothing of this user's environment or settings.
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
