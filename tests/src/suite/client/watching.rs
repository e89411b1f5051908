//! `list --watch`, as a stream and on a terminal.

use super::box_of_five;
use gpukill_tests::harness::{Stage, Stream, Terminal, eventually, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

fn tick(line: &str) -> u64 {
    let document: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    document["tick"].as_u64().unwrap()
}

#[test]
fn a_stream_has_one_document_a_line_each_newer_and_ends_well_when_it_is_told_to() {
    let (stage, daemon) = box_of_five::start();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let stream = Stream::start(&mut stage.client(&["list", "--watch", "1", "-o", "ndjson"]));
        let ticks = [(); 3].map(|()| tick(&stream.line()));
        assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
        stream.signal(signal);
        let (code, rest, complaints) = stream.end();
        assert_eq!((code, complaints), (0, Vec::new()), "{signal:?}");
        // What was begun is whole.
        assert!(rest.iter().all(|line| tick(line) > ticks[2]), "{rest:?}");
    }
    daemon.stop();
}

#[test]
fn a_stream_goes_on_through_a_restart_of_the_daemon() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = stage.start();
    let temperature = |line: &str| {
        let document: Value = serde_json::from_str(line).unwrap();
        document["gpus"][0]["temp_c"].as_u64()
    };
    let stream = Stream::start(&mut stage.client(&["list", "--watch", "1", "-o", "ndjson"]));
    assert!(stream.line().starts_with('{'));
    daemon.stop();
    let complaint = stream.complaint();
    assert!(
        complaint.ends_with(": trying again for 30 s"),
        "{complaint}"
    );
    stage.play(&json!({"gpus": [{"temperature": 42}]}));
    let daemon = stage.start();
    eventually("news of the new daemon", || {
        (temperature(&stream.line()) == Some(42)).then_some(())
    });
    stream.signal(Signal::INT);
    assert_eq!(stream.end().0, 0);
    daemon.stop();
}

#[test]
fn a_stream_of_what_is_not_there_yet_goes_on_but_a_gpu_that_never_was_is_a_mistake() {
    let (stage, daemon) = box_of_five::start();
    let watch = |arguments: &[&str]| {
        let whole = [&["list", "--watch", "1", "-o", "ndjson"], arguments].concat();
        Stream::start(&mut stage.client(&whole))
    };
    let nobody = watch(&["--user", "zoe"]);
    let document: Value = serde_json::from_str(&nobody.line()).unwrap();
    assert_eq!(document["procs"], json!([]));
    assert_eq!(
        nobody.complaint(),
        "gpukillctl: no GPU here is used by processes of zoe"
    );
    nobody.signal(Signal::INT);
    assert_eq!(nobody.end().0, 0);
    let (code, lines, complaints) = watch(&["--gpu", "9"]).end();
    assert_eq!((code, lines), (8, Vec::new()));
    assert_eq!(
        complaints,
        ["gpukillctl: no GPU is called \"9\": there are 0, 1, 2, 3, 4"]
    );
    daemon.stop();
}

/// What `list --watch` writes before the first frame and after the last.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const END_OF_FRAME: &str = "\x1b[?2026l";

#[test]
fn a_terminal_is_given_back_as_it_was_and_no_frame_is_wider_than_it() {
    let (stage, daemon) = box_of_five::start();
    let client = stage.client(&["list", "--watch", "1", "--details"]);
    let Some(mut terminal) = Terminal::start(&client, 72, 20) else {
        return skip("there is no setsid here");
    };
    terminal.until(ENTER);
    let mut frames = Vec::new();
    for _ in 0..2 {
        frames.push(terminal.until(END_OF_FRAME));
    }
    for frame in &frames {
        let rows = rows(frame);
        let widest = rows.iter().map(|row| row.chars().count()).max();
        assert_eq!(widest, Some(72), "{rows:#?}");
        assert!(rows.len() <= 20, "{rows:#?}");
        assert!(rows[2].starts_with(" GPU    PID  USER"), "{rows:#?}");
        assert!(rows[3].starts_with("   0  48213  root"), "{rows:#?}");
    }
    // Ctrl-C, as the terminal's driver hears it.
    terminal.types("\x03");
    let ran = terminal.end();
    assert_eq!(ran.code, 0);
    let (_, after) = ran.stdout.rsplit_once(LEAVE).unwrap();
    // Nothing but what the driver shows of the key itself.
    assert!(after.trim_start_matches("^C").is_empty(), "{after:?}");
    daemon.stop();
}

/// The rows of a frame, without what steers the terminal.
fn rows(frame: &str) -> Vec<String> {
    let mut text = String::new();
    let mut chars = frame.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // A sequence ends with the first letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            text.push(c);
        }
    }
    text.lines().map(|row| row.trim_end().to_owned()).collect()
}

#[test]
fn a_watched_terminal_says_when_the_daemon_is_away_and_shows_it_when_it_is_back() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"name": "before"}]}));
    let daemon = stage.start();
    let Some(mut terminal) = Terminal::start(&stage.client(&["list", "-w", "1"]), 100, 30) else {
        return skip("there is no setsid here");
    };
    terminal.until("before");
    daemon.kill();
    terminal.until("trying again for ");
    stage.play(&json!({"gpus": [{"name": "afterwards"}]}));
    let daemon = stage.start();
    terminal.until("afterwards");
    terminal.types("\x03");
    let ran = terminal.end();
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains(LEAVE));
    daemon.stop();
}
