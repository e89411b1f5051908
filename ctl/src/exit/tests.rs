//! Every error has its exit code and message.

use super::*;
use gpukill_proto::ProtocolVersion;

fn socket() -> PathBuf {
    PathBuf::from("/run/gpukill/gpukilld.sock")
}

#[test]
fn closed_socket_names_the_directories_to_check() {
    let closed = Error::Connect(socket(), ConnectError::NotPermitted);
    let expected =
        "see who may open it, and each directory above it: namei -l /run/gpukill/gpukilld.sock";
    assert_eq!(closed.hint(DaemonKind::Service).as_deref(), Some(expected));
}

#[test]
fn every_error_has_its_exit_code() {
    let connect = |error| Error::Connect(socket(), error);
    let version = ProtocolVersion { major: 2, minor: 0 };
    let denied = Refusal::Denied {
        asked: "look".into(),
        ask: "root".into(),
    };
    let unknown = DeviceSelectorError::Unknown {
        typed: "9".into(),
        known: vec![0],
    };
    let unmatched = DeviceSelectorError::Unmatched {
        typed: "*9".into(),
        known: vec![0],
    };
    let ambiguous = DeviceSelectorError::Ambiguous {
        typed: "8f".into(),
        matches: vec![],
    };
    let backwards = DeviceSelectorError::ReversedRange { first: 5, last: 2 };
    let io_error = || io::Error::from(io::ErrorKind::StorageFull);
    let cases = [
        (Error::Usage("x".into()), 3),
        (
            Error::Settings {
                file: None,
                mistakes: vec![],
            },
            3,
        ),
        (Error::SettingsFile(socket(), io_error()), 3),
        (Error::UnsafeSocket(socket(), "x"), 6),
        (connect(ConnectError::NoDaemon), 6),
        (connect(ConnectError::NotPermitted), 4),
        (connect(ConnectError::Busy), 6),
        (connect(ConnectError::Version(version)), 6),
        (connect(ConnectError::Refused(7)), 6),
        (connect(ConnectError::NotGpukilld), 6),
        (connect(ConnectError::Io(io_error())), 6),
        (Error::TimedOut { seconds: 5 }, 6),
        (Error::NothingPolled, 6),
        (Error::ConnectionLost("x".into()), 6),
        (Error::OlderDaemon(version), 6),
        (Error::Refused(denied), 4),
        (Error::Refused(Refusal::Invalid("x".into())), 3),
        (Error::Refused(Refusal::NoMatch("x".into())), 8),
        (Error::Refused(Refusal::Busy), 6),
        (Error::Refused(Refusal::Unavailable("x".into())), 1),
        (Error::Refused(Refusal::TooSlow("x".into())), 1),
        (Error::Refused(Refusal::Expired), 1),
        (Error::Refused(Refusal::Internal), 1),
        (Error::NoSuchDevice(unknown), 3),
        (Error::NoSuchDevice(unmatched), 8),
        (Error::NoSuchDevice(ambiguous), 3),
        (Error::NoSuchDevice(backwards), 3),
        (Error::NoMatch("x".into()), 8),
        (Error::Vendor("x".into()), 2),
        (
            Error::NotDone {
                what: "x".into(),
                hint: None,
                exit: Exit::NotPermitted,
            },
            4,
        ),
        (Error::System(io_error()), 1),
        (Error::from(io_error()), 1),
        (Error::from(io::Error::from(io::ErrorKind::BrokenPipe)), 0),
    ];
    for (failure, code) in cases {
        assert_eq!(failure.exit_code() as u8, code, "{failure:?}");
    }
}

#[test]
fn kill_success_maps_to_an_exit_code() {
    for (success, code) in [
        (KillCompletion::All, 0),
        (KillCompletion::Failed, 1),
        (KillCompletion::Refused, 4),
        (KillCompletion::Partial, 7),
        (KillCompletion::NothingToEnd, 8),
    ] {
        assert_eq!(Exit::from(success) as u8, code, "{success:?}");
    }
}

#[test]
fn missing_daemon_has_a_hint() {
    let failure = Error::Connect(socket(), ConnectError::NoDaemon);
    assert_eq!(
        failure.to_string(),
        "no gpukilld at /run/gpukill/gpukilld.sock"
    );
    assert_eq!(
        failure.hint(DaemonKind::Service).as_deref(),
        Some("see why: systemctl status gpukilld; or run one for yourself: gpukilld --user")
    );
}

#[test]
fn missing_sockets_are_both_named() {
    let own = PathBuf::from("/run/user/7/gpukill/gpukilld.sock");
    let failure = Error::NoDaemon([socket(), own]);
    assert_eq!(
        (failure.to_string().as_str(), failure.exit_code()),
        (
            "no gpukilld at /run/gpukill/gpukilld.sock or /run/user/7/gpukill/gpukilld.sock",
            Exit::Unreachable
        )
    );
    assert_eq!(
        failure.hint(DaemonKind::Service).as_deref(),
        Some("see why: systemctl status gpukilld; or run one for yourself: gpukilld --user")
    );
}

#[test]
fn untrusted_directory_names_both_sockets() {
    let failure = Error::UnsafeSocket("/tmp/gpukill-7".into(), "it belongs to another user");
    assert_eq!(
        failure.to_string(),
        "no gpukilld at /run/gpukill/gpukilld.sock, and /tmp/gpukill-7 is not trusted: it belongs \
        to another user"
    );
    assert_eq!(
        failure.hint(DaemonKind::Manual).as_deref(),
        Some("see why: systemctl status gpukilld; or remove /tmp/gpukill-7, as root")
    );
}

#[test]
fn hint_depends_on_how_the_daemon_runs() {
    let hints = |at: &str| {
        let runs = DaemonKind::from_socket(Path::new(at));
        let version = ConnectError::Version(ProtocolVersion { major: 0, minor: 1 });
        [
            Error::ConnectionLost("it went away".into()).hint(runs),
            Error::Refused(Refusal::Internal).hint(runs),
            Error::Connect(at.into(), version).hint(runs),
        ]
        .map(Option::unwrap_or_default)
    };
    let status = "see its messages: systemctl status gpukilld";
    let restart = "after an upgrade the old one runs on: systemctl restart gpukilld; else upgrade \
    the package gpukill";
    let host_socket = hints("/run/gpukill/gpukilld.sock");
    assert_eq!(host_socket, [status, status, restart]);
    let there = "see its messages where it runs";
    let upgrade = "upgrade gpukilld where it runs, and restart it";
    let own = hints("/run/user/7/gpukill/gpukilld.sock");
    assert_eq!(own, [there, there, upgrade]);
}

#[test]
fn system_errors_have_no_number() {
    let denied = || io::Error::from_raw_os_error(13);
    let cases = [
        (
            Error::Connect(socket(), ConnectError::NotPermitted),
            "cannot open /run/gpukill/gpukilld.sock: permission denied",
        ),
        (
            Error::Connect(socket(), ConnectError::Io(denied())),
            "cannot connect to /run/gpukill/gpukilld.sock: permission denied",
        ),
        (
            Error::SettingsFile("/etc/x.toml".into(), denied()),
            "cannot read the settings /etc/x.toml: permission denied",
        ),
        (Error::System(denied()), "cannot run: permission denied"),
        (
            Error::Output(io::Error::from_raw_os_error(28)),
            "cannot write the output: no space left on device",
        ),
        (
            Error::Output(io::Error::other("Column pid is of another kind")),
            "cannot write the output: Column pid is of another kind",
        ),
    ];
    for (failure, expected) in cases {
        assert_eq!(failure.to_string(), expected);
    }
}

#[test]
fn every_settings_mistake_is_listed() {
    let mistakes = vec![
        SettingMistake {
            line: Some(3),
            what: "unknown key colour".into(),
        },
        SettingMistake {
            line: None,
            what: "GPUKILL_TABLE_WIDTH: \"wide\" is not a number".into(),
        },
    ];
    let failure = Error::Settings {
        file: Some("/home/alice/config.toml".into()),
        mistakes,
    };
    assert_eq!(
        failure.to_string(),
        "2 mistakes in the settings\n  /home/alice/config.toml, line 3: unknown key colour\n  \
        GPUKILL_TABLE_WIDTH: \"wide\" is not a number"
    );
}
