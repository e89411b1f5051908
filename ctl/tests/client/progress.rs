//! The line that `kill` shows on a terminal while it waits.

use crate::client;
use crate::daemon::Daemon;
use crate::killed::{end, ended, plan, report};
use crate::killing::{daemon, three, three_ended};
use crate::terminal::Terminal;
use crate::watching::signal;
use gpukill_proto::kill::{KillReport, Stage};
use rustix::process::Signal;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::SeqCst;

/// How it stands when these have ended.
fn under_way(version: u64, stage: Stage, ended_ones: &[u32]) -> KillReport {
    let outcomes: Vec<_> = ended_ones.iter().map(|pid| (*pid, ended())).collect();
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

fn now_stands(daemon: &Daemon, report: KillReport) {
    daemon
        .script
        .killed
        .reports
        .lock()
        .expect("not poisoned")
        .push(report);
}

/// `kill` whose stderr alone is a terminal.
fn watched(daemon: &Daemon, arguments: &str) -> (Terminal, Child) {
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
fn a_person_sees_who_is_waited_for_on_one_line_that_is_gone_at_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = under_way(1, Stage::Ending, &[7]);
    let daemon = daemon(directory.path(), three(), vec![first]);
    let (mut terminal, child) = watched(&daemon, "kill 7 8 9 --yes");
    // Before it is drawn for the first time nothing is.
    assert_eq!(
        terminal.until("\x1b[K"),
        "\r1 of 3 ended, waiting for 8 (python)\x1b[K"
    );
    terminal.resize(20, 6);
    now_stands(&daemon, under_way(2, Stage::Ending, &[7, 8]));
    // It may have been drawn anew for its new width before.
    terminal.until("\r2 of 3 ended, wait…\x1b[K");
    terminal.resize(80, 6);
    now_stands(&daemon, under_way(3, Stage::Releasing, &[7, 8]));
    // More than a page of the report.
    terminal.until("\r2 of 3 ended, waiting for the memory of GPU 0\x1b[K");
    now_stands(&daemon, three_ended());
    assert_eq!(terminal.until("\x1b[K"), "\r\x1b[K");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(terminal.rest(), "");
}

#[test]
fn a_line_that_is_left_or_broken_off_is_gone_before_that_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = under_way(1, Stage::Ending, &[]);
    let daemon = daemon(directory.path(), plan(&[(4182, end())]), vec![first]);
    let (mut terminal, child) = watched(&daemon, "kill 4182");
    let line = "\r0 of 1 ended, waiting for 4182 (python)\x1b[K";
    assert_eq!(terminal.until("\x1b[K"), line);
    daemon.script.killed.hang_ups.store(1, SeqCst);
    now_stands(&daemon, under_way(2, Stage::Ending, &[]));
    assert_eq!(
        terminal.until("becomes of the kill\r\n"),
        "\r\x1b[Kgpukillctl: gpukilld ended the connection: it went away; asking again what \
         becomes of the kill\r\n"
    );
    assert_eq!(terminal.until("\x1b[K"), line);
    signal(&child, Signal::INT);
    assert_eq!(
        terminal.until("list --details\r\n"),
        "\r\x1b[Kgpukillctl: not followed any more: it goes on in gpukilld\r\n\
         hint: see who is left: gpukillctl list --details\r\n"
    );
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn programs_and_terminals_that_cannot_be_drawn_on_get_no_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = under_way(1, Stage::Ending, &[7]);
    let daemon = daemon(directory.path(), three(), vec![first]);
    let (json, of_json) = watched(&daemon, "kill 7 8 9 --yes -o json");
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
    // One that is begun after them has its line.
    let (mut terminal, child) = watched(&daemon, "kill 7 8 9 --yes");
    terminal.until("waiting for 8 (python)\x1b[K");
    now_stands(&daemon, three_ended());
    for child in [of_json, of_dumb, of_pipe, child] {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(crate::stderr(&output), "");
    }
    assert_eq!([json.rest(), dumb.rest()], ["", ""]);
}
