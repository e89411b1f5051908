//! Daemons that are older than the client, and newer: who is, and what to do.

use crate::daemon::{Daemon, Script};
use crate::{run, stderr, stdout};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};

fn speaking(version: ProtocolVersion) -> Script {
    Script {
        version,
        ..Script::default()
    }
}

#[test]
fn where_client_and_daemon_cannot_understand_each_other_the_older_is_named() {
    let newer = "gpukillctl: this gpukillctl is older than gpukilld: it speaks protocol 1.0, \
                 gpukilld 9.1\n\
                 hint: upgrade the package gpukill here; if it is new, another gpukillctl is \
                 found first: type -a gpukillctl\n";
    let older = "gpukillctl: gpukilld is older than this gpukillctl: it speaks protocol 0.7, \
                 gpukillctl 1.0\n\
                 hint: upgrade gpukilld where it runs, and start it anew\n";
    for (major, minor, expected) in [(9, 1, newer), (0, 7, older)] {
        let directory = tempfile::tempdir().expect("a directory");
        let script = speaking(ProtocolVersion { major, minor });
        let daemon = Daemon::start(directory.path(), script);
        for command in ["list", "status", "kill 7"] {
            let output = run(&daemon.socket, command);
            assert_eq!(output.status.code(), Some(6), "{command}");
            assert_eq!(stderr(&output), expected, "{command}");
        }
    }
}

#[test]
fn a_daemon_of_a_higher_minor_version_is_understood() {
    let directory = tempfile::tempdir().expect("a directory");
    let ProtocolVersion { major, minor } = PROTOCOL_VERSION;
    let minor = minor + 1;
    let daemon = Daemon::start(directory.path(), speaking(ProtocolVersion { major, minor }));
    for command in ["list", "status", "audit"] {
        let output = run(&daemon.socket, command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// The lines of `status` that speak of releases, against a daemon of this one.
fn of_release(release: &'static str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Script {
        release,
        ..Script::default()
    };
    let daemon = Daemon::start(directory.path(), script);
    let output = run(&daemon.socket, "status");
    assert_eq!(output.status.code(), Some(0));
    let shown = stdout(&output);
    let lines = shown.lines().filter(|line| line.contains("gpukillctl"));
    lines.map(str::to_owned).collect()
}

#[test]
fn status_says_in_one_line_that_the_daemon_is_of_another_release() {
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(of_release(own), Vec::<String>::new());
    assert_eq!(
        of_release("0.0.9"),
        [format!(
            "gpukilld 0.0.9 is older than this gpukillctl, {own}: systemctl restart gpukilld"
        )]
    );
    assert_eq!(
        of_release("99.0.0"),
        [format!(
            "this gpukillctl, {own}, is older than gpukilld 99.0.0: upgrade the package gpukill here"
        )]
    );
}

#[test]
fn a_report_of_a_bug_is_made_whatever_the_daemon_speaks() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(
        directory.path(),
        speaking(ProtocolVersion { major: 9, minor: 1 }),
    );
    let output = run(&daemon.socket, "status --report");
    assert_eq!(output.status.code(), Some(6));
    let line = "- **gpukilld does not answer: it speaks another protocol, 9.1** (exit code 6)";
    let shown = stdout(&output);
    assert!(shown.lines().any(|it| it == line), "{shown}");
    assert_eq!(stderr(&output), stderr(&run(&daemon.socket, "status")));
    let daemon = Daemon::start(directory.path(), Script::default());
    let output = run(&daemon.socket, "status --report");
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    let shown = stdout(&output);
    // The stand-in's person, box and pids.
    for name in ["alice", "GPU-", "train"] {
        assert!(!shown.contains(name), "{name} is in:\n{shown}");
    }
    assert!(shown.contains("\n- GPU 0: nvidia"), "{shown}");
}
