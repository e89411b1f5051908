//! Daemons older and newer than the client: which is older, and what to do.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{run, stderr, stdout};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};

fn script_with_protocol(version: ProtocolVersion) -> Script {
    Script {
        version,
        ..Script::default()
    }
}

#[test]
fn protocol_mismatch_names_the_older() {
    let newer = "gpukillctl: this gpukillctl is older than gpukilld: it speaks protocol 1.0, \
                 gpukilld 9.1\n\
                 hint: upgrade the package gpukill here; if it is new, another gpukillctl is \
                 found first: type -a gpukillctl\n";
    let older = "gpukillctl: gpukilld is older than this gpukillctl: it speaks protocol 0.7, \
                 gpukillctl 1.0\n\
                 hint: upgrade gpukilld where it runs, and restart it\n";
    for (major, minor, expected) in [(9, 1, newer), (0, 7, older)] {
        let directory = tempfile::tempdir().expect("a directory");
        let script = script_with_protocol(ProtocolVersion { major, minor });
        let daemon = FakeDaemon::start(directory.path(), script);
        for command in ["list", "status", "kill 7"] {
            let output = run(&daemon.socket, command);
            assert_eq!(output.status.code(), Some(6), "{command}");
            assert_eq!(stderr(&output), expected, "{command}");
        }
    }
}

#[test]
fn higher_minor_version_is_understood() {
    let directory = tempfile::tempdir().expect("a directory");
    let ProtocolVersion { major, minor } = PROTOCOL_VERSION;
    let minor = minor + 1;
    let daemon = FakeDaemon::start(
        directory.path(),
        script_with_protocol(ProtocolVersion { major, minor }),
    );
    for command in ["list", "status", "audit"] {
        let output = run(&daemon.socket, command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// The lines of `status` about releases, for a daemon of this release.
fn release_lines(release: &'static str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Script {
        release,
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), script);
    let output = run(&daemon.socket, "status");
    assert_eq!(output.status.code(), Some(0));
    let shown = stdout(&output);
    let lines = shown.lines().filter(|line| line.contains("gpukillctl"));
    lines.map(str::to_owned).collect()
}

#[test]
fn status_names_another_release() {
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(release_lines(own), Vec::<String>::new());
    assert_eq!(
        release_lines("0.0.9"),
        [format!(
            "gpukilld 0.0.9 is older than this gpukillctl, {own}: systemctl restart gpukilld"
        )]
    );
    assert_eq!(
        release_lines("99.0.0"),
        [format!(
            "this gpukillctl, {own}, is older than gpukilld 99.0.0: upgrade the package gpukill \
            here"
        )]
    );
}

#[test]
fn report_works_with_any_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(
        directory.path(),
        script_with_protocol(ProtocolVersion { major: 9, minor: 1 }),
    );
    let output = run(&daemon.socket, "status --report");
    assert_eq!(output.status.code(), Some(6));
    let line = "- **gpukilld does not answer: it speaks another protocol, 9.1** (exit code 6)";
    let shown = stdout(&output);
    assert!(shown.lines().any(|it| it == line), "{shown}");
    assert_eq!(stderr(&output), stderr(&run(&daemon.socket, "status")));
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let output = run(&daemon.socket, "status --report");
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    let shown = stdout(&output);
    // The user, the host and the pids of the fake daemon.
    for name in ["alice", "GPU-", "train"] {
        assert!(!shown.contains(name), "{name} is in:\n{shown}");
    }
    assert!(shown.contains("\n- GPU 0: nvidia"), "{shown}");
}
