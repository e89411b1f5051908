//! Tests with real terminals, and with files that only look like terminals.

use super::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, Timespec, mknodat};
use rustix::io::ioctl_fionread;
use rustix::process::getuid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, OptionalActions, tcflow, tcsetattr};
use std::fs::{FileTimes, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A terminal of the test that accepts messages and does not change the text.
struct TestTerminal {
    far: File,
    near: File,
    path: PathBuf,
}

impl TestTerminal {
    fn new() -> Self {
        let far = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&far).unwrap();
        unlockpt(&far).unwrap();
        let name = ptsname(&far, Vec::new()).unwrap();
        let path = PathBuf::from(name.to_str().unwrap());
        let mut options = OpenOptions::new();
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.read(true).write(true);
        options.custom_flags(flags.bits().cast_signed());
        let near = options.open(&path).unwrap();
        let mut settings = tcgetattr(&near).unwrap();
        settings.make_raw();
        settings.input_modes.remove(InputModes::IUTF8);
        tcsetattr(&near, OptionalActions::Now, &settings).unwrap();
        let terminal = Self {
            far: File::from(far),
            near,
            path,
        };
        terminal.mode(0o620);
        terminal
    }

    fn mode(&self, mode: u32) {
        std::fs::set_permissions(&self.path, Permissions::from_mode(mode)).unwrap();
    }

    fn enable_utf8(&self) {
        let mut settings = tcgetattr(&self.near).unwrap();
        settings.input_modes.insert(InputModes::IUTF8);
        tcsetattr(&self.near, OptionalActions::Now, &settings).unwrap();
    }

    /// Writes until it is full.
    fn fill(&self) {
        // The kernel moves data to the master side asynchronously, until that side is full: a page
        // minus one byte (n_tty.c of Linux).
        while ioctl_fionread(&self.far).unwrap() < 4_095 {
            self.fill_for_now();
        }
        self.fill_for_now();
    }

    fn fill_for_now(&self) {
        let blocks = loop {
            if let Err(error) = (&self.near).write(&[b'x'; 4_096]) {
                break error;
            }
        };
        assert_eq!(blocks.kind(), std::io::ErrorKind::WouldBlock);
    }

    /// All text that it shows.
    fn shown(mut self) -> String {
        const END: &str = "-- the end";
        (&self.near).write_all(END.as_bytes()).unwrap();
        let mut shown = Vec::new();
        while !shown.ends_with(END.as_bytes()) {
            let timeout = Timespec::try_from(TIMEOUT).unwrap();
            let mut ready = [PollFd::new(&self.far, PollFlags::IN)];
            assert_eq!(poll(&mut ready, Some(&timeout)), Ok(1));
            let mut buffer = [0; 4_096];
            let length = self.far.read(&mut buffer).unwrap();
            shown.extend_from_slice(&buffer[..length]);
        }
        let shown = String::from_utf8(shown).unwrap();
        shown.strip_suffix(END).unwrap().to_owned()
    }
}

/// The owner of the test's terminals.
fn us() -> u32 {
    getuid().as_raw()
}

/// The result of the call; fails when the call blocks.
fn at_once<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(what()));
    done.recv_timeout(TIMEOUT).expect("it blocks")
}

fn write_at_once(path: &Path, uid: u32, text: &str) -> Option<TerminalKind> {
    let (path, text) = (path.to_owned(), text.to_owned());
    at_once(move || write_message(&path, uid, &text))
}

#[test]
fn text_is_on_lines_of_its_own() {
    let terminal = TestTerminal::new();
    assert_eq!(
        write_message(&terminal.path, us(), "one\ntwo\n"),
        Some(TerminalKind::Pseudo)
    );
    assert_eq!(terminal.shown(), "\r\none\r\ntwo\r\n");
}

#[test]
fn control_characters_do_not_pass() {
    let text = "a\u{1b}[31m\r\u{7}\u{9b}b\tc…\u{db}\n";
    let plain = TestTerminal::new();
    assert_eq!(
        write_message(&plain.path, us(), text),
        Some(TerminalKind::Pseudo)
    );
    assert_eq!(plain.shown(), "\r\na?[31m???b?c??\r\n");
    let utf8 = TestTerminal::new();
    utf8.enable_utf8();
    assert_eq!(
        write_message(&utf8.path, us(), text),
        Some(TerminalKind::Pseudo)
    );
    assert_eq!(utf8.shown(), "\r\na?[31m???b?c…\u{db}\r\n");
}

#[test]
fn closed_terminal_gets_no_message() {
    let terminal = TestTerminal::new();
    terminal.mode(0o600);
    assert_eq!(write_message(&terminal.path, us(), "one"), None);
    // The write permission of others is irrelevant to mesg(1).
    terminal.mode(0o602);
    assert_eq!(write_message(&terminal.path, us(), "two"), None);
    assert_eq!(terminal.shown(), "");
}

#[test]
fn other_users_read_nothing() {
    let terminal = TestTerminal::new();
    assert_eq!(write_message(&terminal.path, us() + 1, "one"), None);
    let all = UserTerminals::from_paths(std::iter::once(terminal.path.clone()));
    assert_eq!(all.write(us() + 1, "two"), 0);
    // The owner may have changed since the check.
    if getuid().is_root() {
        chown(&terminal.path, Some(4_242), None).unwrap();
        assert_eq!(all.write(us(), "three"), 0);
        let all = UserTerminals::from_paths(std::iter::once(terminal.path.clone()));
        assert_eq!(all.write(us(), "four"), 0);
        assert_eq!(all.write(4_242, "five"), 1);
        assert_eq!(terminal.shown(), "\r\nfive\r\n");
    } else {
        assert_eq!(terminal.shown(), "");
    }
}

#[test]
fn unread_terminal_is_not_waited_for() {
    let terminal = TestTerminal::new();
    terminal.fill();
    assert_eq!(write_at_once(&terminal.path, us(), "one"), None);
}

#[test]
fn blocked_terminal_is_not_waited_for() {
    let terminal = TestTerminal::new();
    terminal.fill();
    let mut writer = OpenOptions::new().write(true).open(&terminal.path).unwrap();
    let (sender, thread) = channel();
    // The blocked program holds the kernel's lock of the terminal until its output is read.
    let writes = std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        sender
            .send(Path::new("/proc").join(own).join("stat"))
            .unwrap();
        writer.write(b"x").is_err()
    });
    let stat = thread.recv().unwrap();
    let is_waiting = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
    while !is_waiting() {
        std::thread::yield_now();
    }
    assert_eq!(write_at_once(&terminal.path, us(), "one"), None);
    drop(terminal);
    assert!(writes.join().unwrap(), "the client did not wait");
}

#[test]
fn stopped_terminal_is_not_waited_for() {
    let terminal = TestTerminal::new();
    tcflow(&terminal.near, Action::OOff).unwrap();
    assert_eq!(write_at_once(&terminal.path, us(), "one"), None);
    tcflow(&terminal.near, Action::OOn).unwrap();
    assert_eq!(
        write_message(&terminal.path, us(), "two"),
        Some(TerminalKind::Pseudo)
    );
    assert_eq!(terminal.shown(), "\r\ntwo\r\n");
}

#[test]
fn partial_write_does_not_count() {
    let terminal = TestTerminal::new();
    let long = "x".repeat(1 << 20);
    assert_eq!(write_at_once(&terminal.path, us(), &long), None);
}

#[test]
fn missing_terminal_does_not_count() {
    let locked = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    let name = ptsname(&locked, Vec::new()).unwrap();
    assert_eq!(
        write_at_once(Path::new(name.to_str().unwrap()), us(), "one"),
        None
    );
    // Another test may get the number of the closed terminal at once, and then it is not missing.
    const TRIES: usize = 20;
    let is_counted = || {
        let TestTerminal { far, near, path } = TestTerminal::new();
        let all = UserTerminals::from_paths(std::iter::once(path.clone()));
        drop((far, near));
        all.write(us(), "two") > 0
    };
    assert!((0..TRIES).any(|_| !is_counted()));
}

#[test]
fn non_terminal_is_not_written_to() {
    let directory = TempDir::new().unwrap();
    let pts = directory.path().join("pts");
    std::fs::create_dir(&pts).unwrap();
    let terminal = TestTerminal::new();
    symlink(&terminal.path, pts.join("0")).unwrap();
    std::fs::write(pts.join("1"), "a file").unwrap();
    std::fs::set_permissions(pts.join("1"), Permissions::from_mode(0o620)).unwrap();
    let mode = Mode::from_raw_mode(0o620);
    mknodat(CWD, pts.join("2"), FileType::Fifo, mode, 0).unwrap();
    std::fs::create_dir(pts.join("3")).unwrap();
    symlink("nowhere", pts.join("4")).unwrap();
    symlink(&terminal.path, directory.path().join("tty1")).unwrap();
    let all = UserTerminals::find_in(directory.path());
    assert_eq!(all.by_uid, BTreeMap::new());
    // The same where it was a terminal when it was checked.
    let names = ["pts/0", "pts/1", "pts/2", "pts/3", "pts/4", "tty1"];
    for name in names {
        assert_eq!(
            write_at_once(&directory.path().join(name), us(), "one"),
            None
        );
    }
    // With a reader a FIFO opens.
    let mut reader = OpenOptions::new();
    reader.read(true);
    reader.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut reader = reader.open(pts.join("2")).unwrap();
    assert_eq!(write_at_once(&pts.join("2"), us(), "one"), None);
    let mut piped = String::new();
    reader.read_to_string(&mut piped).unwrap();
    assert_eq!(piped, "");
    assert_eq!(std::fs::read(pts.join("1")).unwrap(), b"a file");
    assert_eq!(terminal.shown(), "");
}

#[test]
fn other_devices_are_not_opened() {
    let others = [
        "/dev/ptmx",
        "/dev/pts/ptmx",
        "/dev/tty",
        "/dev/null",
        "/dev/full",
    ];
    let all = UserTerminals::from_paths(others.into_iter().map(PathBuf::from));
    assert_eq!(all.by_uid, BTreeMap::new());
    for path in others {
        assert_eq!(write_at_once(Path::new(path), us(), "one"), None, "{path}");
    }
    assert_eq!(
        UserTerminals::find_in(Path::new("/nowhere")).by_uid,
        BTreeMap::new()
    );
}

#[test]
fn terminal_names_are_numbers() {
    let directory = TempDir::new().unwrap();
    let pts = directory.path().join("pts");
    std::fs::create_dir(&pts).unwrap();
    for name in ["0", "71", "ptmx", "-1", "1a", "٣", "12345678901"] {
        std::fs::write(pts.join(name), "").unwrap();
    }
    let mut found = candidate_paths(directory.path());
    found.sort_unstable();
    let mut expected = vec![pts.join("0"), pts.join("71")];
    expected.extend((1..=63).map(|number| directory.path().join(format!("tty{number}"))));
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn kinds_follow_device_numbers() {
    let cases = [
        ((136, 0), Some(TerminalKind::Pseudo)),
        ((143, 1_048_575), Some(TerminalKind::Pseudo)),
        ((4, 1), Some(TerminalKind::Console)),
        ((4, 63), Some(TerminalKind::Console)),
        // The active console, and serial lines.
        ((4, 0), None),
        ((4, 64), None),
        // Master sides, /dev/tty, /dev/ptmx, /dev/null, a watchdog.
        ((128, 0), None),
        ((135, 0), None),
        ((144, 0), None),
        ((5, 0), None),
        ((5, 2), None),
        ((1, 3), None),
        ((10, 130), None),
    ];
    for ((major, minor), expected) in cases {
        assert_eq!(kind_from_numbers(major, minor), expected, "{major}:{minor}");
    }
}

#[test]
fn latest_terminals_are_chosen() {
    let (one, other) = (TestTerminal::new(), TestTerminal::new());
    let typed = |terminal: &TestTerminal, seconds| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let times = FileTimes::new().set_accessed(at);
        terminal.near.set_times(times).unwrap();
    };
    let paths = [&one.path, &other.path];
    for (first, last) in [(&one, &other), (&other, &one)] {
        typed(first, 1_000_000);
        typed(last, 2_000_000);
        let all = UserTerminals::from_paths(paths.into_iter().cloned());
        let expected = vec![last.path.clone(), first.path.clone()];
        assert_eq!(all.by_uid, BTreeMap::from([(us(), expected)]));
    }
    let many = std::iter::repeat_n(one.path.clone(), 100);
    let all = UserTerminals::from_paths(std::iter::once(other.path.clone()).chain(many));
    let expected = vec![one.path.clone(); MAX_PER_USER];
    assert_eq!(all.by_uid, BTreeMap::from([(us(), expected)]));
    // Each takes it: a terminal that is not full gets it again.
    assert_eq!(all.write(us(), "one"), 64);
}

#[test]
fn umlauts_are_shown_where_safe() {
    // The last two contain one: 0x9f and 0x84.
    let shown = |is_utf8| String::from_utf8(encode_message("für später: ßÄ", is_utf8)).unwrap();
    assert_eq!(shown(true), "\r\nfür später: ßÄ\r\n");
    assert_eq!(shown(false), "\r\nfür später: ??\r\n");
}
