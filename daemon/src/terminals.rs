//! People's terminals: a text is written to all that are theirs, and to nothing else.
//!
//! What is opened may be anything by then: it is looked at before, so that no other device
//! is opened, and again when it is open, which counts. Nothing is waited for: a terminal
//! that takes nothing at once is not told. The rest is as wall(1) and write(1) do it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::termios::{InputModes, tcgetattr};

#[cfg(test)]
mod tests;

/// So many names below `/dev/pts` are looked at: twice as many terminals as Linux has,
/// unless an admin raises kernel.pty.max.
const MOST_NAMES: usize = 8_192;

/// So many terminals of one person are written to: those that were typed at last.
const MOST_OF_ONE: usize = 64;

/// Everybody's terminals, at one look.
pub(crate) struct Terminals {
    /// By user; those that were typed at last come first.
    of: BTreeMap<u32, Vec<PathBuf>>,
}

impl Terminals {
    /// Those below a directory like `/dev`.
    pub(crate) fn below(dev: &Path) -> Self {
        Self::among(candidates(dev).into_iter())
    }

    /// Those of these paths that are terminals.
    fn among(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut of: BTreeMap<u32, Vec<(i64, PathBuf)>> = BTreeMap::new();
        for path in paths {
            // The link's own, where it is one.
            if let Ok(known) = path.symlink_metadata()
                && kind(&known).is_some()
            {
                let theirs = of.entry(known.uid()).or_default();
                theirs.push((known.atime(), path));
            }
        }
        let latest = |mut theirs: Vec<(i64, PathBuf)>| {
            theirs.sort_unstable_by(|one, other| other.cmp(one));
            theirs.truncate(MOST_OF_ONE);
            theirs.into_iter().map(|(_, path)| path).collect()
        };
        let of = of.into_iter().map(|(uid, theirs)| (uid, latest(theirs)));
        Self { of: of.collect() }
    }

    /// Writes a text to all of this user's that take messages. How many took all of it:
    /// consoles do not count, for who sits at a graphical one sees nothing of it.
    pub(crate) fn write(&self, uid: u32, text: &str) -> u32 {
        let theirs = self.of.get(&uid).into_iter().flatten();
        let kinds = theirs.filter_map(|path| write(path, uid, text));
        let reached = kinds.filter(|kind| *kind == Kind::Pseudo).count();
        u32::try_from(reached).unwrap_or(u32::MAX)
    }
}

/// What may be a terminal, by its name.
fn candidates(dev: &Path) -> Vec<PathBuf> {
    let is_number = |name: &str| name.len() <= 10 && name.bytes().all(|it| it.is_ascii_digit());
    let pts = std::fs::read_dir(dev.join("pts")).into_iter().flatten();
    let pts = pts.take(MOST_NAMES).filter_map(|entry| {
        let entry = entry.ok()?;
        is_number(entry.file_name().to_str()?).then(|| entry.path())
    });
    let consoles = CONSOLES.map(|number| dev.join(format!("tty{number}")));
    pts.chain(consoles).collect()
}

/// The numbers of the virtual consoles. 0 is whichever is shown, whosever that is, and
/// from 64 on they are serial lines (devices.txt of Linux, 4).
const CONSOLES: std::ops::RangeInclusive<u32> = 1..=63;

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The near side of a pseudoterminal: of ssh, of a window, of tmux.
    Pseudo,
    /// A virtual console.
    Console,
}

/// Which of the two it is, if either.
fn kind(known: &Metadata) -> Option<Kind> {
    let device = known.rdev();
    known
        .file_type()
        .is_char_device()
        .then(|| kind_of(major(device), minor(device)))?
}

/// By the numbers of its device (devices.txt of Linux): 136 to 143 are UNIX98's
/// pseudoterminals, the near sides.
fn kind_of(major: u32, minor: u32) -> Option<Kind> {
    match major {
        136..=143 => Some(Kind::Pseudo),
        4 if CONSOLES.contains(&minor) => Some(Kind::Console),
        _ => None,
    }
}

/// Writes a text to a terminal of this user's that takes messages. What it is, where it
/// took all of it.
fn write(path: &Path, uid: u32, text: &str) -> Option<Kind> {
    let mut terminal = open(path).ok()?;
    let known = terminal.metadata().ok()?;
    let kind = kind(&known)?;
    if known.uid() != uid || !takes_messages(&known) {
        return None;
    }
    let bytes = encoded(text, is_utf8(&terminal));
    // At once or not: what is written again after a part of it comes in pieces.
    let written = terminal.write(&bytes).ok()?;
    (written == bytes.len()).then_some(kind)
}

/// Neither waits for a carrier, nor becomes the daemon's own terminal, nor follows a link.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// `mesg n` takes the group's right to write: that is how write(1) knows.
fn takes_messages(known: &Metadata) -> bool {
    const GROUP_WRITES: u32 = 0o020;
    known.mode() & GROUP_WRITES != 0
}

/// Whether it says that it is one. To another that has eight bits a byte from 0x80 to 0x9f
/// is a control character, and may begin an escape sequence (0x9b).
fn is_utf8(terminal: &File) -> bool {
    tcgetattr(terminal).is_ok_and(|it| it.input_modes.contains(InputModes::IUTF8))
}

/// Lines of its own, whatever stands on the terminal. No control character but the ends
/// of lines passes here.
fn encoded(text: &str, is_utf8: bool) -> Vec<u8> {
    // Most that do not say it are in UTF-8 all the same, and show umlauts.
    let is_control = |byte: u8| (0x80..0xa0).contains(&byte);
    let has_control = |c: char| c.encode_utf8(&mut [0; 4]).bytes().any(is_control);
    let is_shown = |c: char| !c.is_control() && (is_utf8 || !has_control(c));
    let plain = |c: char| if is_shown(c) { c } else { '?' };
    let mut encoded = "\r\n".to_owned();
    for line in text.lines() {
        encoded.extend(line.chars().map(plain));
        encoded.push_str("\r\n");
    }
    encoded.into_bytes()
}
