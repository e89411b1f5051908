//! `list --watch`, on a stream and on a terminal.

use crate::client;
use crate::fake_daemon::{FakeDaemon, Script};
use crate::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).expect("a pid");
    kill_process(Pid::from_raw(pid).expect("not 0"), signal).expect("sent");
}

fn lines(source: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

#[test]
fn stream_has_one_object_per_poll_across_restarts() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let mut child = client(&daemon.socket, "list --watch 1 -o ndjson")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let ticks = lines(child.stdout.take().expect("piped"));
    let errors = lines(child.stderr.take().expect("piped"));
    let polls = || {
        let line = ticks.recv_timeout(TEST_TIMEOUT).expect("a line");
        let document: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        document["polls"].as_u64()
    };
    assert_eq!(polls(), Some(1));
    daemon.script.polls.store(5, SeqCst);
    assert_eq!(polls(), Some(5));
    drop(daemon);
    let message = errors.recv_timeout(TEST_TIMEOUT).expect("it says so");
    assert!(message.ends_with(": trying again for 30 s"), "{message}");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    assert_eq!(polls(), Some(1));
    assert!(ticks.recv_timeout(Duration::from_millis(200)).is_err());
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    drop(daemon);
}

#[test]
fn csv_header_is_printed_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let mut child = client(&daemon.socket, "list --watch 1 -o csv")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let rows = lines(child.stdout.take().expect("piped"));
    let begins = |with: &str| {
        let row = rows.recv_timeout(TEST_TIMEOUT).expect("a row");
        assert!(row.starts_with(with), "{row}");
    };
    begins("ts,gpu_index,");
    begins("2026-11-21T14:02:31.250Z,0,");
    daemon.script.polls.store(2, SeqCst);
    begins("2026-11-21T14:02:31.250Z,0,");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
const LEAVE: &str = "\x1b[?2026l\x1b[?7h\x1b[?25h\x1b[?1049l";
const END: &str = "\x1b[?2026l";

#[test]
fn terminal_is_taken_over_and_restored() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let (mut terminal, slave) = Terminal::open();
    let mut child = client(&daemon.socket, "list --watch 1 --details --color never")
        .env("TERM", "xterm")
        .stdout(slave)
        .spawn()
        .expect("it runs");
    assert_eq!(terminal.read_until(ENTER), ENTER);
    // The terminal's driver adds a return to each newline.
    let frame = terminal.read_until(END).replace("\r\r\n", "\r\n");
    let frame = frame.strip_prefix("\x1b[?2026h\x1b[Hbox · 1 GPU · ");
    let (_, rows) = frame
        .and_then(|rest| rest.split_once("\r\n"))
        .expect("a frame");
    assert_eq!(
        rows,
        "\x1b[K\r\n GPU  PID  USER   MEMORY  SM  ON GPU  COMMAND\x1b[K\
         \r\n   0  100  alice    1.0G  9%      0s  python train.py\x1b[K\
         \r\n   0  101  alice    1.0G  9%      0s  python train.py\x1b[K\
         \r\n   0  102  alice    1.0G  9%      0s  python train.py\x1b[K\x1b[?2026l"
    );

    terminal.resize(30, 4);
    signal(&child, Signal::WINCH);
    assert!(
        terminal
            .read_until(END)
            .ends_with("\n… 3 more lines\x1b[K\x1b[?2026l")
    );

    signal(&child, Signal::TSTP);
    assert_eq!(terminal.read_until(LEAVE), LEAVE);
    wait_for_state(&child, 'T');
    signal(&child, Signal::CONT);
    assert_eq!(terminal.read_until(ENTER), ENTER);
    terminal.read_until(END);

    drop(daemon);
    terminal.read_until("trying again for 30 s");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(terminal.read_until(LEAVE).ends_with(LEAVE));
}

fn wait_for_state(child: &Child, state: char) {
    let path = format!("/proc/{}/stat", child.id());
    let start = std::time::Instant::now();
    loop {
        let stat = std::fs::read_to_string(&path).expect("it lives");
        if stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(state))
        {
            return;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "it never came to {state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
