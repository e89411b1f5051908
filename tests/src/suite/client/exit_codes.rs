//! How the client exits: without output, or with an exit code, a reason and a hint.

use super::five_gpu_box;
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use gpukill_tests::harness::{CommandOutput, TestBox};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

fn output_with_error(code: i32, stderr: &str) -> CommandOutput {
    CommandOutput {
        code,
        stdout: String::new(),
        stderr: stderr.to_owned(),
    }
}

#[test]
fn every_command_explains_a_missing_daemon() {
    let test_box = TestBox::new();
    let socket = test_box.socket();
    let expected = output_with_error(
        6,
        &format!(
            "gpukillctl: no gpukilld at {}\nhint: see why: systemctl status gpukilld; or run one \
            for yourself: gpukilld --user\n",
            socket.display()
        ),
    );
    for command in ["list", "status", "audit"] {
        assert_eq!(test_box.ctl(&[command]), expected, "{command}");
    }
    // The same holds after a daemon was killed.
    let daemon = test_box.start();
    daemon.kill();
    assert!(socket.exists());
    assert_eq!(test_box.ctl(&["list"]), expected);
    let without_hint = test_box.ctl(&["list", "--log-level", "error"]);
    assert_eq!(without_hint.stderr.lines().count(), 1);
}

/// Binds a socket of the test where the daemon's socket should be.
fn listen(test_box: &TestBox) -> UnixListener {
    std::fs::create_dir_all(test_box.socket().parent().unwrap()).unwrap();
    UnixListener::bind(test_box.socket()).unwrap()
}

#[test]
fn silent_socket_times_out() {
    let test_box = TestBox::new();
    let _listener = listen(&test_box);
    let expected = output_with_error(
        6,
        "gpukillctl: gpukilld did not answer within 1 s\nhint: wait longer: --request-timeout 30\n",
    );
    assert_eq!(test_box.ctl(&["list", "--request-timeout", "1"]), expected);
    let mut client = test_box.client_command(&["status"]);
    client.env("GPUKILL_REQUEST_TIMEOUT", "1");
    assert_eq!(CommandOutput::run(&mut client), expected);
    let directory = test_box.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    let seconds = |number: u32| {
        let file = format!("request_timeout_secs = {number}\n");
        std::fs::write(directory.join("config.toml"), file).unwrap();
    };
    seconds(1);
    let mut client = test_box.client_command(&["status"]);
    client.env_remove("GPUKILL_REQUEST_TIMEOUT");
    assert_eq!(CommandOutput::run(&mut client), expected);
    // The nearest source of the setting wins.
    seconds(3000);
    let mut client = test_box.client_command(&["list", "--request-timeout", "1"]);
    client.env("GPUKILL_REQUEST_TIMEOUT", "2000");
    assert_eq!(CommandOutput::run(&mut client), expected);
}

#[test]
fn foreign_socket_or_version_is_explained() {
    let newer = Preface {
        version: ProtocolVersion {
            major: 99,
            minor: 2,
        },
        status: PrefaceStatus::Welcome,
        max_frame: 1 << 20,
    };
    let unknown = Preface {
        status: PrefaceStatus::Other(7),
        ..newer
    };
    let busy = Preface::new(PrefaceStatus::Busy, 1 << 20);
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
         hint: upgrade gpukilld where it runs, and restart it\n"
    );
    let turned_away = format!(
        "gpukillctl: gpukilld refuses this client for a reason that only newer clients know \
         (7)\n{renew_client}"
    );
    let stranger = "gpukillctl: the program at SOCKET is not gpukilld\n\
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
        let test_box = TestBox::new();
        let listener = listen(&test_box);
        let greeting = greeting.to_vec();
        // This thread ends with the process: nothing connects any more after the client.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A client that has read enough may already be gone.
                let _ = client.unwrap().write_all(&greeting);
            }
        });
        let expected = expected.replace("SOCKET", test_box.socket().to_str().unwrap());
        let ran = test_box.ctl(&["list", "--request-timeout", "1"]);
        assert_eq!(ran, output_with_error(6, &expected));
    }
}

#[test]
fn closed_pipe_ends_quietly() {
    let (test_box, daemon) = five_gpu_box::start();
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
        let mut client = test_box.client_command(arguments);
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
fn unwritable_output_is_an_error() {
    let (test_box, daemon) = five_gpu_box::start();
    for arguments in [
        &["list"][..],
        &["list", "-o", "json"],
        &["status"],
        &["--help"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut client = test_box.client_command(arguments);
        let output = client.stdout(full.unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
    daemon.stop();
}

#[test]
fn invalid_arguments_exit_3() {
    let test_box = TestBox::new();
    for (arguments, named) in [
        (&["list", "--bogus"][..], "'--bogus'"),
        (&["lsit"], "'lsit'"),
        (&["list", "--vendor", "matrox"], "'matrox'"),
        (&["list", "--width", "3"], "'3'"),
        (&["list", "-o", "xml"], "'xml'"),
        // An empty argument, as from an unset shell variable, selects neither everything
        // nor nothing.
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
        let ran = test_box.ctl(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{arguments:?}");
        let first = ran.stderr.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("gpukillctl: ") && first.contains(named),
            "{arguments:?}: {first}"
        );
    }
}

#[test]
fn invalid_values_show_an_example() {
    let test_box = TestBox::new();
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
        (&["explain"], "[PID]", "python", process),
        (&["explain"], "[PID]", "99999999999", process),
    ];
    for (arguments, option, typed, expected) in cases {
        let ran = test_box.ctl(&[arguments, &[typed]].concat());
        let stderr = format!(
            "gpukillctl: invalid value '{typed}' for '{option}': {expected}\n\
             hint: gpukillctl --help, or --help after a command\n"
        );
        assert_eq!(ran, output_with_error(3, &stderr));
    }
}
