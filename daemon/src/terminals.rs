//! Users' terminals: writes a text to all terminals of a user, and to nothing else.
//!
//! A path may change at any time: it is checked before it is opened, so that no other device is
//! opened, and again through the open file, which decides. Nothing blocks: a terminal that does not
//! accept the text at once does not get it. The rest is as in wall(1) and write(1).

use gpukill_proto::collect::SortIndirect as _;
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::termios::{InputModes, tcgetattr};

#[cfg(test)]
mod tests;

/// How many names below `/dev/pts` are read: twice as many terminals as Linux allows, unless an
/// admin raises kernel.pty.max.
const MAX_NAMES: usize = 8_192;

/// How many terminals of one user get the text: those with the latest input.
const MAX_PER_USER: usize = 64;

pub(crate) struct UserTerminals {
    /// By uid; the terminals with the latest input come first.
    by_uid: BTreeMap<u32, Vec<PathBuf>>,
}

impl UserTerminals {
    /// The terminals below a directory like `/dev`.
    pub(crate) fn find_in(dev: &Path) -> Self {
        Self::from_paths(candidate_paths(dev).into_iter())
    }

    fn from_paths(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut of: BTreeMap<u32, Vec<(i64, PathBuf)>> = BTreeMap::new();
        for path in paths {
            // The metadata of the link itself, where the path is one.
            if let Ok(known) = path.symlink_metadata()
                && terminal_kind(&known).is_some()
            {
                let paths = of.entry(known.uid()).or_default();
                paths.push((known.atime(), path));
            }
        }
        let latest = |mut paths: Vec<(i64, PathBuf)>| {
            paths.sort_indirect_by(|one, other| other.cmp(one));
            paths.truncate(MAX_PER_USER);
            paths.into_iter().map(|(_, path)| path).collect()
        };
        let of = of.into_iter().map(|(uid, paths)| (uid, latest(paths)));
        Self {
            by_uid: of.collect(),
        }
    }

    /// Writes a text to all terminals of this user that accept messages. Returns how many took all
    /// of it. Consoles do not count: a user of a graphical session does not see them.
    pub(crate) fn write(&self, uid: u32, text: &str) -> u32 {
        let paths = self.by_uid.get(&uid).into_iter().flatten();
        let kinds = paths.filter_map(|path| write_message(path, uid, text));
        let reached = kinds.filter(|kind| *kind == TerminalKind::Pseudo).count();
        u32::try_from(reached).unwrap_or(u32::MAX)
    }
}

/// Paths that have the name of a terminal.
fn candidate_paths(dev: &Path) -> Vec<PathBuf> {
    let is_number = |name: &str| name.len() <= 10 && name.bytes().all(|it| it.is_ascii_digit());
    let pts = std::fs::read_dir(dev.join("pts")).into_iter().flatten();
    let pts = pts.take(MAX_NAMES).filter_map(|entry| {
        let entry = entry.ok()?;
        is_number(entry.file_name().to_str()?).then(|| entry.path())
    });
    let consoles = CONSOLES.map(|number| dev.join(format!("tty{number}")));
    pts.chain(consoles).collect()
}

/// The numbers of the virtual consoles. 0 is the active console of any user, and numbers from 64 on
/// are serial lines (devices.txt of Linux, 4).
const CONSOLES: std::ops::RangeInclusive<u32> = 1..=63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalKind {
    /// The slave side of a pseudoterminal: of ssh, of a window, of tmux.
    Pseudo,
    Console,
}

/// The kind of terminal, if it is one.
fn terminal_kind(known: &Metadata) -> Option<TerminalKind> {
    let device = known.rdev();
    known
        .file_type()
        .is_char_device()
        .then(|| kind_from_numbers(major(device), minor(device)))?
}

/// The kind by device number (devices.txt of Linux): 136 to 143 are the slave sides of UNIX98
/// pseudoterminals.
fn kind_from_numbers(major: u32, minor: u32) -> Option<TerminalKind> {
    match major {
        136..=143 => Some(TerminalKind::Pseudo),
        4 if CONSOLES.contains(&minor) => Some(TerminalKind::Console),
        _ => None,
    }
}

/// Writes a text to a terminal of this user that accepts messages. Returns its kind where it took
/// all of the text.
fn write_message(path: &Path, uid: u32, text: &str) -> Option<TerminalKind> {
    let mut terminal = open_terminal(path).ok()?;
    let known = terminal.metadata().ok()?;
    let kind = terminal_kind(&known)?;
    if known.uid() != uid || !accepts_messages(&known) {
        return None;
    }
    let bytes = encode_message(text, is_utf8(&terminal));
    // All at once or not at all: a second write after a partial one would interleave.
    let written = terminal.write(&bytes).ok()?;
    (written == bytes.len()).then_some(kind)
}

/// Opens without waiting for a carrier, taking a controlling terminal, or following a link.
fn open_terminal(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// `mesg n` removes the group's write permission; write(1) checks the same.
fn accepts_messages(known: &Metadata) -> bool {
    const GROUP_WRITES: u32 = 0o020;
    known.mode() & GROUP_WRITES != 0
}

/// Whether the terminal is set to UTF-8. On an 8-bit terminal, a byte from 0x80 to 0x9f is a
/// control character and may begin an escape sequence (0x9b).
fn is_utf8(terminal: &File) -> bool {
    tcgetattr(terminal).is_ok_and(|it| it.input_modes.contains(InputModes::IUTF8))
}

/// Puts the text on lines of its own, wherever the cursor is. Line ends are the only control
/// characters that pass.
fn encode_message(text: &str, is_utf8: bool) -> Vec<u8> {
    // Most terminals without the flag use UTF-8, too, and show umlauts.
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
