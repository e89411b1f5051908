//! `kill` when it cannot follow what it began.

use crate::daemon::{Daemon, Script};
use crate::killed::{end, ended, plan, report, under_way};
use crate::killing::{begun, daemon, said};
use crate::watching::{PATIENCE, signal};
use crate::{client, run, stderr};
use gpukill_proto::kill::Ending;
use gpukill_proto::refusal::Refusal;
use rustix::process::Signal;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

#[test]
fn a_connection_that_breaks_is_made_anew_once_for_the_kill_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let reports = vec![under_way(1), report(&[(4182, ended())])];
    let daemon = daemon(directory.path(), plan(&[(4182, end())]), reports);
    daemon.script.killed.hang_ups.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let broke = "gpukillctl: gpukilld ended the connection: it went away";
    let expected = format!("{broke}; asking again what becomes of the kill\n");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), expected.clone())
    );
    daemon.script.killed.hang_ups.store(2, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let lost = format!(
        "{expected}{broke}: what became of them is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), lost));
    // It may have begun, and is never begun twice.
    daemon.script.killed.hang_ups_at_begin.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let unknown = format!(
        "{broke}: whether anything was ended is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), unknown));
    assert_eq!(begun(&daemon), 3);
    // A daemon that was started anew knows nothing of it.
    daemon.script.killed.forgets_after.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "gpukillctl: gpukilld was started anew meanwhile: what became of them is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!(begun(&daemon), 4);
}

#[test]
fn a_plan_that_grew_too_old_ends_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    *daemon.script.killed.refused.lock().expect("not poisoned") = Some(Refusal::Expired);
    let output = run(&daemon.socket, "kill 4182");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "gpukillctl: that took too long, and nothing was ended: gpukilld keeps a plan for ten \
         minutes\nhint: try again\n"
    );
}

#[test]
fn ctrl_c_leaves_and_says_that_it_goes_on() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = daemon(directory.path(), plan(&[(4182, end())]), vec![under_way(1)]);
        let child = client(&daemon.socket, "kill 4182")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        // Begun is not enough: the client may not have heard of it yet.
        let since = Instant::now();
        while daemon.script.killed.followed.load(SeqCst) == 0 {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(&child, number);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            said(&output),
            (
                Some(1),
                "alice's process 4182 on GPU 0, 1.0 GiB: python train.py\n".into(),
                "gpukillctl: not followed any more: it goes on in gpukilld\n\
                 hint: see who is left: gpukillctl list --details\n"
                    .into()
            )
        );
    }
}

#[test]
fn a_report_that_nobody_reads_keeps_nobody_from_ending_the_client() {
    let directory = tempfile::tempdir().expect("a directory");
    // More than a pipe holds.
    let long = || Ending::Failed("x".repeat(15_000));
    let (targets, outcomes): (Vec<_>, Vec<_>) =
        (1..=8).map(|pid| ((pid, end()), (pid, long()))).unzip();
    let daemon = daemon(directory.path(), plan(&targets), vec![report(&outcomes)]);
    for end in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = client(&daemon.socket, "kill 1 2 3 4 5 6 7 8 --yes -o json")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut reader = child.stdout.take().expect("piped");
        reader.read_exact(&mut [0]).expect("it prints");
        signal(&child, end);
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("known") {
                None if Instant::now() < deadline => std::thread::yield_now(),
                status => break status,
            }
        };
        // One that did not end does now.
        drop(reader);
        child.wait().expect("it ends");
        let by = status.and_then(|status| status.signal());
        assert_eq!(by, Some(end.as_raw()));
    }
}
