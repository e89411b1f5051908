//! The progress line of `kill` on a terminal, and the line while any answer is waited for.

use crate::client;
use crate::fake_daemon::FakeDaemon;
use crate::fake_kill::{ended_outcome, plan, planned_end, report};
use crate::kill::{daemon, three_ended_report, three_targets};
use crate::terminal::Terminal;
use crate::watch::signal;
use gpukill_proto::kill::{KillReport, Stage};
use rustix::process::Signal;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::SeqCst;

/// A report in which these processes have ended.
fn report_with_ended(version: u64, stage: Stage, ended_ones: &[u32]) -> KillReport {
    let outcomes: Vec<_> = ended_ones
        .iter()
        .map(|pid| (*pid, ended_outcome()))
        .collect();
    let mut report = KillReport {
        version,
        stage,
        ..report(&outcomes)
    };
    for memory in &mut report.memory {
        memory.after_ms = None;
    }
    report
}

fn push_report(daemon: &FakeDaemon, report: KillReport) {
    daemon
        .script
        .killed
        .reports
        .lock()
        .expect("not poisoned")
        .push(report);
}

/// Runs `kill` with only stderr on a terminal.
fn run_on_terminal(daemon: &FakeDaemon, arguments: &str) -> (Terminal, Child) {
    let (terminal, slave) = Terminal::open();
    let child = client(&daemon.socket, arguments)
        .env("TERM", "xterm")
        .stderr(slave)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    (terminal, child)
}

#[test]
fn progress_line_is_updated_and_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = report_with_ended(1, Stage::Ending, &[7]);
    let daemon = daemon(directory.path(), three_targets(), vec![first]);
    let (mut terminal, child) = run_on_terminal(&daemon, "kill 7 8 9 --yes");
    // Nothing is printed before the first line.
    assert_eq!(
        terminal.read_until("\x1b[K"),
        "\r1 of 3 ended, waiting for 8 (python)\x1b[K"
    );
    terminal.resize(20, 6);
    push_report(&daemon, report_with_ended(2, Stage::Ending, &[7, 8]));
    // The line may have been redrawn for the new width before.
    terminal.read_until("\r2 of 3 ended, wait…\x1b[K");
    terminal.resize(80, 6);
    push_report(&daemon, report_with_ended(3, Stage::Reclaiming, &[7, 8]));
    // More outcomes than one page of the report.
    terminal.read_until("\r2 of 3 ended, waiting for the memory of GPU 0\x1b[K");
    push_report(&daemon, three_ended_report());
    assert_eq!(terminal.read_until("\x1b[K"), "\r\x1b[K");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(terminal.read_to_end(), "");
}

#[test]
fn silent_daemon_is_waited_for_with_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("x.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let (mut terminal, slave) = Terminal::open();
    let child = client(&socket, "audit --request-timeout 60")
        .env("TERM", "xterm")
        .stderr(slave)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    assert_eq!(
        terminal.read_until("\x1b[K"),
        "\rwaiting for gpukilld\x1b[K"
    );
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), None);
}

#[test]
fn progress_line_is_removed_before_messages() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = report_with_ended(1, Stage::Ending, &[]);
    let daemon = daemon(
        directory.path(),
        plan(&[(4182, planned_end())]),
        vec![first],
    );
    let (mut terminal, child) = run_on_terminal(&daemon, "kill 4182");
    let line = "\r0 of 1 ended, waiting for 4182 (python)\x1b[K";
    assert_eq!(terminal.read_until("\x1b[K"), line);
    daemon.script.killed.hang_ups.store(1, SeqCst);
    push_report(&daemon, report_with_ended(2, Stage::Ending, &[]));
    assert_eq!(
        terminal.read_until("  kill\r\n"),
        "\r\x1b[Kwarning: gpukilld ended the connection: it went away; reconnecting to follow the\r\n  \
        kill\r\n"
    );
    assert_eq!(terminal.read_until("\x1b[K"), line);
    signal(&child, Signal::INT);
    assert_eq!(
        terminal.read_until("list --details\r\n"),
        "\r\x1b[Kgpukillctl: no longer followed: it continues in gpukilld\r\n\
         hint: see who is left: gpukillctl list --details\r\n"
    );
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn no_progress_line_for_programs_and_dumb_terminals() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = report_with_ended(1, Stage::Ending, &[7]);
    let daemon = daemon(directory.path(), three_targets(), vec![first]);
    let (json, of_json) = run_on_terminal(&daemon, "kill 7 8 9 --yes -o json");
    let (dumb, slave) = Terminal::open();
    let of_dumb = client(&daemon.socket, "kill 7 8 9 --yes")
        .env("TERM", "dumb")
        .stderr(slave)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let of_pipe = client(&daemon.socket, "kill 7 8 9 --yes")
        .env("TERM", "xterm")
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    // A client started after them draws the line.
    let (mut terminal, child) = run_on_terminal(&daemon, "kill 7 8 9 --yes");
    terminal.read_until("waiting for 8 (python)\x1b[K");
    push_report(&daemon, three_ended_report());
    for child in [of_json, of_dumb, of_pipe, child] {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(crate::stderr(&output), "");
    }
    assert_eq!([json.read_to_end(), dumb.read_to_end()], ["", ""]);
}
