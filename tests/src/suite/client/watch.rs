//! `list --watch`, as a stream and on a terminal.

use super::five_gpu_box;
use gpukill_tests::harness::{RunningProgram, Terminal, TestBox, eventually, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

fn polls(line: &str) -> u64 {
    let document: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    document["polls"].as_u64().unwrap()
}

#[test]
fn stream_is_ndjson_and_ends_on_signal() {
    let (test_box, daemon) = five_gpu_box::start();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let stream = RunningProgram::start(
            &mut test_box.client_command(&["list", "--watch", "1", "-o", "ndjson"]),
        );
        let ticks = [(); 3].map(|()| polls(&stream.next_line()));
        assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
        stream.signal(signal);
        let (code, rest, complaints) = stream.wait();
        assert_eq!((code, complaints), (0, Vec::new()), "{signal:?}");
        // Every line that was started is complete.
        assert!(rest.iter().all(|line| polls(line) > ticks[2]), "{rest:?}");
    }
    daemon.stop();
}

#[test]
fn stream_survives_a_daemon_restart() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = test_box.start();
    let temperature = |line: &str| {
        let document: Value = serde_json::from_str(line).unwrap();
        document["gpus"][0]["temp_c"].as_u64()
    };
    let stream = RunningProgram::start(
        &mut test_box.client_command(&["list", "--watch", "1", "-o", "ndjson"]),
    );
    assert!(stream.next_line().starts_with('{'));
    daemon.stop();
    let complaint = stream.next_error_line();
    assert!(
        complaint.ends_with(": trying again for 30 s"),
        "{complaint}"
    );
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 42}]}));
    let daemon = test_box.start();
    eventually("news of the new daemon", || {
        (temperature(&stream.next_line()) == Some(42)).then_some(())
    });
    stream.signal(Signal::INT);
    assert_eq!(stream.wait().0, 0);
    daemon.stop();
}

#[test]
fn unknown_user_waits_unknown_gpu_fails() {
    let (test_box, daemon) = five_gpu_box::start();
    let watch = |arguments: &[&str]| {
        let whole = [&["list", "--watch", "1", "-o", "ndjson"], arguments].concat();
        RunningProgram::start(&mut test_box.client_command(&whole))
    };
    let nobody = watch(&["--user", "no-such-person"]);
    let document: Value = serde_json::from_str(&nobody.next_line()).unwrap();
    assert_eq!(document["procs"], json!([]));
    assert_eq!(
        nobody.next_error_line(),
        "warning: no GPU here is used by processes of no-such-person: no user is called \
         no-such-person"
    );
    nobody.signal(Signal::INT);
    assert_eq!(nobody.wait().0, 0);
    let (code, lines, complaints) = watch(&["--gpu", "9"]).wait();
    assert_eq!((code, lines), (3, Vec::new()));
    assert_eq!(
        complaints,
        ["gpukillctl: no GPU matches \"9\": this host has GPU 0, 1, 2, 3, 4"]
    );
    daemon.stop();
}

/// The output of `list --watch` before the first frame and after the last.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const END_OF_FRAME: &str = "\x1b[?2026l";

#[test]
fn terminal_is_restored_and_frames_fit() {
    let (test_box, daemon) = five_gpu_box::start();
    let client = test_box.client_command(&["list", "--watch", "1", "--details"]);
    let Some(mut terminal) = Terminal::start(&client, 72, 20) else {
        return skip("there is no setsid here");
    };
    terminal.read_until(ENTER);
    let mut frames = Vec::new();
    for _ in 0..2 {
        frames.push(terminal.read_until(END_OF_FRAME));
    }
    for frame in &frames {
        let rows = rows(frame);
        let widest = rows.iter().map(|row| row.chars().count()).max();
        assert_eq!(widest, Some(72), "{rows:#?}");
        assert!(rows.len() <= 20, "{rows:#?}");
        assert!(rows[2].starts_with(" GPU    PID  USER"), "{rows:#?}");
        assert!(rows[3].starts_with("   0  48213  root"), "{rows:#?}");
    }
    // Ctrl-C, as the terminal driver receives it.
    terminal.type_keys("\x03");
    let ran = terminal.wait();
    assert_eq!(ran.code, 0);
    let (_, after) = ran.stdout.rsplit_once(LEAVE).unwrap();
    // Only the terminal driver's own echo of the key.
    assert!(after.trim_start_matches("^C").is_empty(), "{after:?}");
    daemon.stop();
}

/// The rows of a frame, without terminal control sequences.
fn rows(frame: &str) -> Vec<String> {
    let mut text = String::new();
    let mut chars = frame.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // A control sequence ends with the first letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            text.push(c);
        }
    }
    text.lines().map(|row| row.trim_end().to_owned()).collect()
}

#[test]
fn terminal_shows_daemon_outage_and_recovery() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"name": "before"}]}));
    let daemon = test_box.start();
    let Some(mut terminal) =
        Terminal::start(&test_box.client_command(&["list", "-w", "1"]), 100, 30)
    else {
        return skip("there is no setsid here");
    };
    terminal.read_until("before");
    daemon.kill();
    terminal.read_until("trying again for ");
    test_box.set_driver_state(&json!({"gpus": [{"name": "afterwards"}]}));
    let daemon = test_box.start();
    terminal.read_until("afterwards");
    terminal.type_keys("\x03");
    let ran = terminal.wait();
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains(LEAVE));
    daemon.stop();
}
