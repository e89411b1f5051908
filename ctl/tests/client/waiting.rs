//! Daemons that are busy, silent, absent or foreign.

use crate::daemon::{Daemon, Script};
use crate::{run, stderr};
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

#[test]
fn a_busy_daemon_is_asked_again_until_patience_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    daemon.script.busy_connections.store(2, SeqCst);
    daemon.script.busy_calls.store(2, SeqCst);
    let output = run(&daemon.socket, "list --log-level debug");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output).matches("busy: ").count(), 4);
    daemon.script.busy_connections.store(u32::MAX, SeqCst);
    let output = run(&daemon.socket, "list --request-timeout 1");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(
        stderr(&output),
        format!(
            "gpukillctl: gpukilld at {} is busy\nhint: try again, or wait longer: --request-timeout 30\n",
            daemon.socket.display()
        )
    );
    daemon.script.busy_connections.store(0, SeqCst);
    daemon.script.busy_calls.store(u32::MAX, SeqCst);
    let output = run(&daemon.socket, "list --request-timeout 1 --log-level error");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(stderr(&output), "gpukillctl: gpukilld is busy\n");
}

#[test]
fn a_missing_daemon_is_said_at_once() {
    let begun = Instant::now();
    let output = run(std::path::Path::new("/nowhere/x.sock"), "list");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(
        stderr(&output),
        "gpukillctl: no gpukilld at /nowhere/x.sock\n\
         hint: see why: systemctl status gpukilld; or run one for yourself: gpukilld --user\n"
    );
}

#[test]
fn what_listens_and_never_answers_is_given_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("x.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let output = run(&socket, "status --request-timeout 1");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(
        stderr(&output),
        "gpukillctl: gpukilld did not answer within 1 s\nhint: wait longer: --request-timeout 30\n"
    );
}

#[test]
fn what_is_no_gpukilld_is_not_taken_for_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("x.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n")
            .expect("sent");
    });
    let output = run(&socket, "list");
    thread.join().expect("it ends well");
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr(&output).contains("is no gpukilld\nhint: "));
}

#[test]
fn the_first_poll_of_a_new_daemon_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    daemon.script.tick.store(0, SeqCst);
    let output = run(&daemon.socket, "list --request-timeout 1");
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr(&output).starts_with("gpukillctl: gpukilld has just started"));
    let script = std::sync::Arc::clone(&daemon.script);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        script.tick.store(1, SeqCst);
    });
    let output = run(&daemon.socket, "list");
    thread.join().expect("it ends well");
    assert_eq!(output.status.code(), Some(0));
}
