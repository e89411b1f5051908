//! How the client ends: quietly, or with a code, a reason and a hint.

use super::box_of_five;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use gpukill_tests::harness::{Ran, Stage};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

fn said(code: i32, stderr: &str) -> Ran {
    Ran {
        code,
        stdout: String::new(),
        stderr: stderr.to_owned(),
    }
}

#[test]
fn without_a_daemon_every_command_says_where_it_looked_and_what_to_do() {
    let stage = Stage::new();
    let socket = stage.socket();
    let expected = said(
        6,
        &format!(
            "gpukillctl: no gpukilld at {}\nhint: see why: systemctl status gpukilld; or run one for yourself: gpukilld --user\n",
            socket.display()
        ),
    );
    for command in ["list", "status", "audit"] {
        assert_eq!(stage.ctl(&[command]), expected, "{command}");
    }
    // The same where a daemon was, and was killed.
    let daemon = stage.start();
    daemon.kill();
    assert!(socket.exists());
    assert_eq!(stage.ctl(&["list"]), expected);
    let without_hint = stage.ctl(&["list", "--log-level", "error"]);
    assert_eq!(without_hint.stderr.lines().count(), 1);
}

/// A socket of ours where a daemon should be.
fn listen(stage: &Stage) -> UnixListener {
    std::fs::create_dir_all(stage.socket().parent().unwrap()).unwrap();
    UnixListener::bind(stage.socket()).unwrap()
}

#[test]
fn a_socket_that_nobody_answers_is_given_up_when_patience_ends() {
    let stage = Stage::new();
    let _listener = listen(&stage);
    let expected = said(
        6,
        "gpukillctl: gpukilld did not answer within 1 s\nhint: wait longer: --request-timeout 30\n",
    );
    assert_eq!(stage.ctl(&["list", "--request-timeout", "1"]), expected);
    let mut client = stage.client(&["status"]);
    client.env("GPUKILL_DEFAULT_TIMEOUT", "1");
    assert_eq!(Ran::of(&mut client), expected);
    let directory = stage.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    let seconds = |number: u32| {
        let file = format!("default_timeout_secs = {number}\n");
        std::fs::write(directory.join("config.toml"), file).unwrap();
    };
    seconds(1);
    assert_eq!(stage.ctl(&["status"]), expected);
    // The nearest source counts.
    seconds(3000);
    let mut client = stage.client(&["list", "--request-timeout", "1"]);
    client.env("GPUKILL_DEFAULT_TIMEOUT", "2000");
    assert_eq!(Ran::of(&mut client), expected);
}

#[test]
fn what_is_no_daemon_or_one_of_another_version_is_told_in_a_sentence() {
    let newer = Preface {
        version: ProtocolVersion {
            major: 99,
            minor: 2,
        },
        status: Status::Welcome,
        max_frame: 1 << 20,
    };
    let unknown = Preface {
        status: Status::Other(7),
        ..newer
    };
    let busy = Preface::ours(Status::Busy, 1 << 20);
    let older = Preface {
        version: ProtocolVersion { major: 0, minor: 7 },
        ..newer
    };
    let odd = Preface {
        version: PROTOCOL_VERSION,
        ..unknown
    };
    let renew_client = "hint: upgrade the package gpukill here; if it is new, another \
                        gpukillctl is found first: type -a gpukillctl\n";
    let is_newer = format!(
        "gpukillctl: this gpukillctl is older than gpukilld: it speaks protocol \
         {PROTOCOL_VERSION}, gpukilld 99.2\n{renew_client}"
    );
    let is_older = format!(
        "gpukillctl: gpukilld is older than this gpukillctl: it speaks protocol 0.7, \
         gpukillctl {PROTOCOL_VERSION}\n\
         hint: upgrade gpukilld where it runs, and start it anew\n"
    );
    let turned_away = format!(
        "gpukillctl: gpukilld turns this client away, for a reason that only newer ones know \
         (7)\n{renew_client}"
    );
    let stranger = "gpukillctl: what answers at SOCKET is no gpukilld\n\
                    hint: is it the right socket? name another with --socket PATH\n";
    let too_busy = "gpukillctl: gpukilld at SOCKET is busy\n\
                    hint: try again, or wait longer: --request-timeout 30\n";
    let cases: [(&[u8], &str); 7] = [
        (&newer.encode(), &is_newer),
        (&unknown.encode(), &is_newer),
        (&older.encode(), &is_older),
        (&odd.encode(), &turned_away),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", stranger),
        (b"", stranger),
        (&busy.encode(), too_busy),
    ];
    for (greeting, expected) in cases {
        let stage = Stage::new();
        let listener = listen(&stage);
        let greeting = greeting.to_vec();
        // Ends with the process: nothing connects any more after the client.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A client that has read enough may be gone.
                let _ = client.unwrap().write_all(&greeting);
            }
        });
        let expected = expected.replace("SOCKET", stage.socket().to_str().unwrap());
        let ran = stage.ctl(&["list", "--request-timeout", "1"]);
        assert_eq!(ran, said(6, &expected));
    }
}

#[test]
fn a_reader_that_goes_away_early_ends_it_quietly() {
    let (stage, daemon) = box_of_five::start();
    for arguments in [
        &["list"][..],
        &["list", "-d"],
        &["list", "-o", "json"],
        &["list", "-o", "csv"],
        &["list", "--watch", "1", "-o", "ndjson"],
        &["list", "--watch", "1"],
        &["status"],
        &["audit"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut client = stage.client(arguments);
        client.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = client.spawn().unwrap();
        drop(client.stdout.take());
        let mut complaints = String::new();
        let mut stderr = client.stderr.take().unwrap();
        stderr.read_to_string(&mut complaints).unwrap();
        let code = client.wait().unwrap().code();
        assert_eq!((code, complaints.as_str()), (Some(0), ""), "{arguments:?}");
    }
    daemon.stop();
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let (stage, daemon) = box_of_five::start();
    for arguments in [
        &["list"][..],
        &["list", "-o", "json"],
        &["status"],
        &["--help"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut client = stage.client(arguments);
        let output = client.stdout(full.unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
    daemon.stop();
}

#[test]
fn wrong_arguments_end_with_3_and_say_which() {
    let stage = Stage::new();
    for (arguments, named) in [
        (&["list", "--bogus"][..], "'--bogus'"),
        (&["lsit"], "'lsit'"),
        (&["list", "--vendor", "matrox"], "'matrox'"),
        (&["list", "--width", "3"], "'3'"),
        (&["list", "-o", "xml"], "'xml'"),
        // A variable of a script that is not set chooses neither all nor nothing.
        (&["list", "--gpu", ""], "'--gpu <SEL>'"),
        (&["list", "--user", ""], "'--user <USER>'"),
        (&["list", "--filter", ""], "'--filter <REGEX>'"),
        (&["audit", "--process", ""], "'--process <REGEX>'"),
        (&["list", "--watch", "0"], "'0'"),
        (&["list", "--request-timeout", "0"], "'0'"),
        (&["status", "-o", "csv"], "'csv'"),
        (&["completions", "tcsh"], "'tcsh'"),
        (
            &["--config", "/nonexistent/c.toml", "list"],
            "/nonexistent/c.toml",
        ),
    ] {
        let ran = stage.ctl(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{arguments:?}");
        let first = ran.stderr.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("gpukillctl: ") && first.contains(named),
            "{arguments:?}: {first}"
        );
    }
}

#[test]
fn a_wrong_value_is_told_with_what_is_expected_and_an_example() {
    let stage = Stage::new();
    let whole = |least: &str, most: &str, example: &str| {
        format!("expected a whole number from {least} to {most}, like {example}")
    };
    let process =
        "expected the number of a process, like 4182: gpukillctl list --details shows them";
    let cases: [(&[&str], &str, &str, &str); 9] = [
        (
            &["list", "--width"],
            "--width <N>",
            "wide",
            &whole("20", "1000", "100"),
        ),
        (
            &["list", "--request-timeout"],
            "--request-timeout <SECS>",
            "5s",
            &whole("1", "3600", "30"),
        ),
        (
            &["list", "--max-processes"],
            "--max-processes <N>",
            "all",
            &whole("0", "10000000", "20"),
        ),
        (
            &["list", "-w"],
            "--watch [<SECS>]",
            "0.5",
            &whole("1", "86400", "5"),
        ),
        (
            &["audit", "--hours"],
            "--hours <N>",
            "1.5",
            &whole("1", "4294967295", "24"),
        ),
        (
            &["audit", "--limit"],
            "--limit <N>",
            "many",
            &whole("0", "4294967295", "100"),
        ),
        (
            &["quiesce", "--minutes"],
            "--minutes <N>",
            "1441",
            &whole("1", "1440", "30"),
        ),
        (&["explain"], "<PID>", "python", process),
        (&["explain"], "<PID>", "99999999999", process),
    ];
    for (arguments, option, typed, expected) in cases {
        let ran = stage.ctl(&[arguments, &[typed]].concat());
        let stderr = format!(
            "gpukillctl: invalid value '{typed}' for '{option}': {expected}\n\
             hint: gpukillctl --help, or --help after a command\n"
        );
        assert_eq!(ran, said(3, &stderr));
    }
}
