//! `kill` when it cannot follow the operation that it started.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::fake_kill::{ended_outcome, plan, planned_end, report, unfinished_report};
use crate::kill::{daemon, output_parts, started_count};
use crate::watch::{TEST_TIMEOUT, signal};
use crate::{client, run, stderr};
use gpukill_proto::kill::Outcome;
use gpukill_proto::refusal::Refusal;
use rustix::process::Signal;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

#[test]
fn broken_connection_is_restored_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let reports = vec![unfinished_report(1), report(&[(4182, ended_outcome())])];
    let daemon = daemon(directory.path(), plan(&[(4182, planned_end())]), reports);
    daemon.script.killed.hang_ups.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let broke = "gpukillctl: gpukilld ended the connection: it went away";
    let warned = broke.replace("gpukillctl: ", "warning: ");
    let expected = format!("{warned}; reconnecting to follow the kill\n");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), expected.clone())
    );
    daemon.script.killed.hang_ups.store(2, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let lost = format!(
        "{expected}{broke}: the outcome for them is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), lost));
    // The operation may have started, so it is never started twice.
    daemon.script.killed.hang_ups_at_begin.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    let unknown = format!(
        "{broke}: whether anything was ended is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), unknown));
    assert_eq!(started_count(&daemon), 3);
    // A restarted daemon does not know the operation.
    daemon.script.killed.known_calls.store(1, SeqCst);
    let output = run(&daemon.socket, "kill 4182");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "gpukillctl: gpukilld was restarted meanwhile: the outcome for them is not known\n\
         hint: see who is left: gpukillctl list --details\n"
    );
    assert_eq!(started_count(&daemon), 4);
}

#[test]
fn expired_plan_ends_no_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
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
fn ctrl_c_leaves_the_kill_running() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = daemon(
            directory.path(),
            plan(&[(4182, planned_end())]),
            vec![unfinished_report(1)],
        );
        let child = client(&daemon.socket, "kill 4182")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        // That it was started is not enough: the client may not know it yet.
        let since = Instant::now();
        while daemon.script.killed.followed.load(SeqCst) == 0 {
            assert!(since.elapsed() < TEST_TIMEOUT);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(&child, number);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            output_parts(&output),
            (
                Some(1),
                "alice's process 4182 on GPU 0, 1.0 GiB: python train.py\n".into(),
                "gpukillctl: no longer followed: it continues in gpukilld\n\
                 hint: see who is left: gpukillctl list --details\n"
                    .into()
            )
        );
    }
}

#[test]
fn blocked_report_does_not_stop_signals() {
    let directory = tempfile::tempdir().expect("a directory");
    // More than a pipe holds.
    let long = || Outcome::Failed("x".repeat(15_000));
    let (targets, outcomes): (Vec<_>, Vec<_>) = (1..=8)
        .map(|pid| ((pid, planned_end()), (pid, long())))
        .unzip();
    let daemon = daemon(directory.path(), plan(&targets), vec![report(&outcomes)]);
    for end in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = client(&daemon.socket, "kill 1 2 3 4 5 6 7 8 --yes -o json")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut reader = child.stdout.take().expect("piped");
        reader.read_exact(&mut [0]).expect("it prints");
        signal(&child, end);
        let deadline = Instant::now() + TEST_TIMEOUT;
        let status = loop {
            match child.try_wait().expect("known") {
                None if Instant::now() < deadline => std::thread::yield_now(),
                status => break status,
            }
        };
        // A client that did not end ends now.
        drop(reader);
        child.wait().expect("it ends");
        let by = status.and_then(|status| status.signal());
        assert_eq!(by, Some(end.as_raw()));
    }
}
