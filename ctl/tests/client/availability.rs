//! Busy, silent, missing and foreign daemons.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{run, stderr};
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

#[test]
fn busy_daemon_is_retried_until_timeout() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    daemon.script.busy_connections.store(2, SeqCst);
    daemon.script.busy_calls.store(2, SeqCst);
    let output = run(&daemon.socket, "list --log-level debug");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output).matches("busy: ").count(), 4);
    daemon.script.busy_connections.store(u32::MAX, SeqCst);
    let output = run(&daemon.socket, "list --request-timeout 4");
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
    let output = run(&daemon.socket, "list --request-timeout 4 --log-level error");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(stderr(&output), "gpukillctl: gpukilld is busy\n");
}

#[test]
fn missing_daemon_is_reported_at_once() {
    let start = Instant::now();
    let output = run(std::path::Path::new("/nowhere/x.sock"), "list");
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(
        stderr(&output),
        "gpukillctl: no gpukilld at /nowhere/x.sock\n\
         hint: see why: systemctl status gpukilld; or run one for yourself: gpukilld --user\n"
    );
}

#[test]
fn silent_daemon_times_out() {
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
fn foreign_listener_is_not_gpukilld() {
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
    assert!(stderr(&output).contains("is not gpukilld\nhint: "));
}

#[test]
fn first_poll_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    daemon.script.polls.store(0, SeqCst);
    let output = run(&daemon.socket, "list --request-timeout 4");
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr(&output).starts_with("gpukillctl: gpukilld has just started"));
    let script = std::sync::Arc::clone(&daemon.script);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        script.polls.store(1, SeqCst);
    });
    let output = run(&daemon.socket, "list");
    thread.join().expect("it ends well");
    assert_eq!(output.status.code(), Some(0));
}
