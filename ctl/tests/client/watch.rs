//! `list --watch`, on a stream and on a terminal.

use crate::client;
use crate::fake_daemon::{FakeDaemon, Script};
use crate::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
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

/// A client that watches on a terminal with a keyboard.
struct WatchedTerminal {
    terminal: Terminal,
    /// The side of the client.
    side: File,
    child: Child,
}

impl WatchedTerminal {
    /// Starts the client on a terminal of this size, and waits for its first frame.
    fn start(daemon: &FakeDaemon, columns: u16, rows: u16) -> (Self, String) {
        let command = client(&daemon.socket, "list --watch 1 --details --color never");
        Self::start_command(command, columns, rows)
    }

    fn start_command(mut command: Command, columns: u16, rows: u16) -> (Self, String) {
        let (terminal, side) = Terminal::open();
        terminal.resize(columns, rows);
        let child = command
            .env("TERM", "xterm")
            .stdin(side.try_clone().expect("cloned"))
            .stdout(side.try_clone().expect("cloned"))
            .spawn()
            .expect("it runs");
        let mut watched = Self {
            terminal,
            side,
            child,
        };
        watched.terminal.read_until(ENTER);
        let frame = watched.next_frame();
        (watched, frame)
    }

    fn next_frame(&mut self) -> String {
        self.terminal.read_until(END)
    }

    /// The frame after typing this.
    fn frame_after(&mut self, keys: &str) -> String {
        self.terminal.type_text(keys);
        self.next_frame()
    }

    /// Whether keys arrive by line and are echoed, as a shell wants them.
    fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.side).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end, and returns the text before the normal screen.
    fn wait_for_end(mut self) -> String {
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        assert!(self.is_restored());
        self.terminal.read_until(LEAVE)
    }
}

#[test]
fn q_ends_the_watch_and_keys_are_not_echoed() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let (mut watched, frame) = WatchedTerminal::start(&daemon, 80, 9);
    let hint = "\x1b[9;1Hq quit · space pause · ↑↓ scroll";
    assert!(frame.ends_with(&format!("{hint}{END}")), "{frame:?}");
    assert!(!watched.is_restored());
    watched.terminal.type_text("zz\x1b[1;5Czzq");
    assert_eq!(watched.wait_for_end(), LEAVE);
}

#[test]
fn ctrl_c_ends_the_watch() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    for key in ["\x03", "\x1c"] {
        let watch = client(&daemon.socket, "list --watch 1");
        // The terminal controls the client, so that the keys send signals.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(watch.get_program());
        command.args(watch.get_args()).env_clear();
        command.env("LANG", "C.UTF-8").env("PATH", "/usr/bin:/bin");
        let (mut watched, _) = WatchedTerminal::start_command(command, 80, 9);
        watched.terminal.type_text(key);
        assert!(watched.wait_for_end().ends_with(LEAVE));
    }
}

#[test]
fn space_pauses_and_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let (mut watched, _) = WatchedTerminal::start(&daemon, 80, 9);
    let paused = watched.frame_after(" ");
    let footer = "paused · q quit · space continue · ↑↓ scroll";
    assert!(paused.contains(footer), "{paused:?}");
    // The frame after the next poll still shows all three processes.
    daemon.script.processes.store(1, SeqCst);
    daemon.script.polls.store(2, SeqCst);
    assert_eq!(watched.next_frame(), paused);
    let live = watched.frame_after(" ");
    assert!(
        !live.contains("  102  ") && !live.contains("paused"),
        "{live:?}"
    );
    watched.terminal.type_text("q");
    watched.wait_for_end();
}

#[test]
fn long_frame_scrolls() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    // The frame has six lines, of which three fit.
    let (mut watched, frame) = WatchedTerminal::start(&daemon, 60, 4);
    let hint = " · q quit · space pause · ↑↓ scroll\x1b[K";
    let ends = |frame: &str, hidden: &str| {
        let last = format!("… {hidden}{hint}{END}");
        assert!(frame.ends_with(&last), "{frame:?}");
    };
    ends(&frame, "3 more lines");
    for (keys, hidden) in [
        ("k", "3 more lines"),
        ("j", "2 more lines"),
        ("\x1b[B", "1 more line"),
        ("\x1b[A", "2 more lines"),
        ("\x1bOB", "1 more line"),
        ("\x1b[6~", "3 lines above"),
        ("j", "3 lines above"),
        ("\x1b[5~", "2 more lines"),
        ("\x1b[5~", "3 more lines"),
    ] {
        ends(&watched.frame_after(keys), hidden);
    }
    let last = watched.frame_after("\x1b[6~\x1b[6~");
    assert!(
        last.contains("  102  ") && !last.contains("GPU"),
        "{last:?}"
    );
    watched.terminal.type_text("q");
    watched.wait_for_end();
}

#[test]
fn signals_restore_the_keyboard() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let (mut watched, _) = WatchedTerminal::start(&daemon, 80, 9);
    signal(&watched.child, Signal::TSTP);
    watched.terminal.read_until(LEAVE);
    wait_for_state(&watched.child, 'T');
    assert!(watched.is_restored());
    signal(&watched.child, Signal::CONT);
    watched.terminal.read_until(ENTER);
    watched.next_frame();
    assert!(!watched.is_restored());
    // The keys have an effect again.
    while !watched.frame_after(" ").contains("paused") {}
    signal(&watched.child, Signal::TERM);
    assert!(watched.wait_for_end().ends_with(LEAVE));
}
