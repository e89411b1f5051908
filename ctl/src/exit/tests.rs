//! Every failure has its exit code and its words.

use super::*;
use gpukill_proto::ProtocolVersion;

fn socket() -> PathBuf {
    PathBuf::from("/run/gpukill/gpukilld.sock")
}

#[test]
fn every_failure_ends_with_its_exit_code() {
    let connect = |error| Failure::Connect(socket(), error);
    let version = ProtocolVersion { major: 2, minor: 0 };
    let denied = Refusal::Denied {
        asked: "look".into(),
        ask: "root".into(),
    };
    let unknown = NoSuchDevice::Unknown {
        typed: "9".into(),
        known: vec![0],
    };
    let ambiguous = NoSuchDevice::Ambiguous { typed: "8f".into() };
    let backwards = NoSuchDevice::Backwards { first: 5, last: 2 };
    let io_error = || io::Error::from(io::ErrorKind::StorageFull);
    let cases = [
        (Failure::Usage("x".into()), 3),
        (
            Failure::Settings {
                file: None,
                mistakes: vec![],
            },
            3,
        ),
        (Failure::SettingsFile(socket(), io_error()), 3),
        (Failure::UnsafeSocket(socket(), "x"), 6),
        (connect(ConnectError::NoDaemon), 6),
        (connect(ConnectError::NotPermitted), 4),
        (connect(ConnectError::Busy), 6),
        (connect(ConnectError::Version(version)), 6),
        (connect(ConnectError::TurnedAway(7)), 6),
        (connect(ConnectError::NotGpukilld), 6),
        (connect(ConnectError::Io(io_error())), 6),
        (Failure::TimedOut { seconds: 5 }, 6),
        (Failure::NothingPolled, 6),
        (Failure::Broken("x".into()), 6),
        (Failure::OlderDaemon(version), 6),
        (Failure::Refused(denied), 4),
        (Failure::Refused(Refusal::Invalid("x".into())), 3),
        (Failure::Refused(Refusal::NoMatch("x".into())), 8),
        (Failure::Refused(Refusal::Busy), 6),
        (Failure::Refused(Refusal::Unavailable("x".into())), 1),
        (Failure::Refused(Refusal::TooSlow("x".into())), 1),
        (Failure::Refused(Refusal::Expired), 1),
        (Failure::Refused(Refusal::Internal), 1),
        (Failure::NoSuchDevice(unknown), 8),
        (Failure::NoSuchDevice(ambiguous), 3),
        (Failure::NoSuchDevice(backwards), 3),
        (Failure::NoMatch("x".into()), 8),
        (Failure::Vendor("x".into()), 2),
        (
            Failure::NotDone {
                what: "x".into(),
                hint: None,
                exit: Exit::NotPermitted,
            },
            4,
        ),
        (Failure::System(io_error()), 1),
        (Failure::from(io_error()), 1),
        (Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), 0),
    ];
    for (failure, code) in cases {
        assert_eq!(failure.exit() as u8, code, "{failure:?}");
    }
}

#[test]
fn a_kill_ends_with_the_code_of_how_it_went() {
    for (success, code) in [
        (Success::All, 0),
        (Success::Failed, 1),
        (Success::Refused, 4),
        (Success::Part, 7),
        (Success::Nobody, 8),
    ] {
        assert_eq!(Exit::from(success) as u8, code, "{success:?}");
    }
}

#[test]
fn a_missing_daemon_is_said_with_what_to_do_next() {
    let failure = Failure::Connect(socket(), ConnectError::NoDaemon);
    assert_eq!(
        failure.to_string(),
        "no gpukilld at /run/gpukill/gpukilld.sock"
    );
    assert_eq!(
        failure.hint(Runs::AsService).as_deref(),
        Some("see why: systemctl status gpukilld; or run one for yourself: gpukilld --user")
    );
}

#[test]
fn where_no_socket_is_both_places_are_named() {
    let own = PathBuf::from("/run/user/7/gpukill/gpukilld.sock");
    let failure = Failure::NoDaemon([socket(), own]);
    assert_eq!(
        (failure.to_string().as_str(), failure.exit()),
        (
            "no gpukilld at /run/gpukill/gpukilld.sock or /run/user/7/gpukill/gpukilld.sock",
            Exit::Unreachable
        )
    );
    assert_eq!(
        failure.hint(Runs::AsService).as_deref(),
        Some("see why: systemctl status gpukilld; or run one for yourself: gpukilld --user")
    );
}

#[test]
fn where_somebody_made_the_directory_of_ones_own_socket_the_boxs_is_missed_too() {
    let failure = Failure::UnsafeSocket("/tmp/gpukill-7".into(), "it belongs to another user");
    assert_eq!(
        failure.to_string(),
        "no gpukilld at /run/gpukill/gpukilld.sock, and none is believed in /tmp/gpukill-7: \
         it belongs to another user"
    );
    assert_eq!(
        failure.hint(Runs::ByHand).as_deref(),
        Some("see why: systemctl status gpukilld; or remove /tmp/gpukill-7, as root")
    );
}

#[test]
fn what_the_daemon_says_is_looked_for_where_it_runs() {
    let said = |at: &str| {
        let runs = Runs::at(Path::new(at));
        let version = ConnectError::Version(ProtocolVersion { major: 0, minor: 1 });
        [
            Failure::Broken("it went away".into()).hint(runs),
            Failure::Refused(Refusal::Internal).hint(runs),
            Failure::Connect(at.into(), version).hint(runs),
        ]
        .map(Option::unwrap_or_default)
    };
    let status = "see its messages: systemctl status gpukilld";
    let restart = "after an upgrade the old one runs on: systemctl restart gpukilld; else upgrade the package gpukill";
    let of_the_box = said("/run/gpukill/gpukilld.sock");
    assert_eq!(of_the_box, [status, status, restart]);
    let there = "see its messages where it runs";
    let anew = "upgrade gpukilld where it runs, and start it anew";
    let own = said("/run/user/7/gpukill/gpukilld.sock");
    assert_eq!(own, [there, there, anew]);
}

#[test]
fn every_mistake_in_the_settings_is_listed_with_its_place() {
    let mistakes = vec![
        Mistake {
            line: Some(3),
            what: "unknown key colour".into(),
        },
        Mistake {
            line: None,
            what: "GPUKILL_TABLE_WIDTH: \"wide\" is no number".into(),
        },
    ];
    let failure = Failure::Settings {
        file: Some("/home/alice/config.toml".into()),
        mistakes,
    };
    assert_eq!(
        failure.to_string(),
        "2 mistakes in the settings\n  /home/alice/config.toml, line 3: unknown key colour\n  GPUKILL_TABLE_WIDTH: \"wide\" is no number"
    );
}
