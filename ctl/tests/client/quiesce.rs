//! Quiescing and resuming the driver.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{run, stderr, stdout};
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// How a time of today is printed: to the minute, and with seconds when it is less than ten
/// minutes ahead, as the default is after a millisecond.
fn time_forms(moment: Timestamp) -> [String; 2] {
    let text = moment.to_rfc3339();
    [text[11..16].to_owned(), text[11..19].to_owned()]
}

#[test]
fn quiesce_prints_its_end_and_a_hint() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    for (arguments, minutes) in [("quiesce", 10), ("quiesce --minutes 1440", 1440)] {
        let before = Timestamp::from(std::time::SystemTime::now());
        let output = run(&daemon.socket, arguments);
        let until = daemon.script.quiesced.lock().expect("not poisoned");
        let until = until.expect("it was asked for");
        assert!(until >= before.plus_seconds(minutes * 60), "{arguments}");
        assert!(
            until < before.plus_seconds(minutes * 60 + 60),
            "{arguments}"
        );
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        let printed = stdout(&output);
        let time = printed
            .strip_prefix("the NVIDIA driver is released until ")
            .and_then(|printed| printed.strip_suffix("; the list shows the last readings\n"))
            .expect("one line");
        // With the date when it is tomorrow.
        let clock = time.rsplit(' ').next().expect("a time");
        assert!(time_forms(until).iter().any(|it| it == clock), "{time}");
        assert_eq!(
            stderr(&output),
            "hint: gpukillctl resume when you are done\n"
        );
    }
    let quiet = run(&daemon.socket, "quiesce --log-level error");
    assert_eq!(stderr(&quiet), "");
}

#[test]
fn slow_driver_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let slow = Script {
        letting_go: Duration::from_millis(1200),
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), slow);
    let output = run(&daemon.socket, "quiesce --request-timeout 1");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn resume_states_that_the_driver_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    run(&daemon.socket, "quiesce");
    for _ in 0..2 {
        let output = run(&daemon.socket, "resume");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(stdout(&output), "gpukilld reads the NVIDIA driver\n");
        assert_eq!(stderr(&output), "");
        assert_eq!(*daemon.script.quiesced.lock().expect("not poisoned"), None);
    }
}

#[test]
fn denied_quiesce_states_people_to_ask() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = Script {
        caller_is_operator: false,
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), plain);
    for arguments in ["quiesce", "resume"] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(4), "{arguments}");
        assert_eq!(stdout(&output), "");
        assert_eq!(
            stderr(&output),
            "gpukillctl: cannot release the driver\n\
             hint: ask someone in group gpukill-operators\n"
        );
    }
}

#[test]
fn denied_member_of_a_new_group_is_to_log_in_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let added = Script {
        caller_is_operator: false,
        new_group: Some("gpukill-operators"),
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), added);
    let output = run(&daemon.socket, "quiesce");
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(
        stderr(&output),
        "gpukillctl: cannot release the driver\n\
         hint: you were added to group gpukill-operators: log in again for its rights\n"
    );
}
