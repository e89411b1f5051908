//! The keyboard of a full screen: keys arrive one by one and are not echoed. Ctrl-C and Ctrl-Z stay
//! signals. The modes of the terminal are restored however the run ends.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a person typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    /// Pause, or go on.
    Pause,
    Scroll(Scroll),
}

/// How far to scroll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scroll {
    LineUp,
    LineDown,
    PageUp,
    PageDown,
}

/// The modes of the terminal before the keyboard was taken; `None` while it is not. Global, because
/// a panic hook restores them.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether keys arrive: not after the end of the input.
static IS_READABLE: AtomicBool = AtomicBool::new(true);

/// Takes the keyboard, also again after another program changed the modes. False where stdin is no
/// terminal, or the process is in the background: the kernel would stop it.
pub(in crate::output) fn take() -> bool {
    let stdin = io::stdin();
    let Ok(modes) = tcgetattr(&stdin) else {
        return false;
    };
    if is_in_background() {
        return false;
    }
    let mut before = modes_before();
    let by_line = LocalModes::ICANON | LocalModes::ECHO;
    if before.is_some() && !modes.local_modes.intersects(by_line) {
        return true;
    }
    let mut by_key = modes.clone();
    by_key.local_modes.remove(by_line);
    // A read returns at once.
    by_key.special_codes[SpecialCodeIndex::VMIN] = 0;
    by_key.special_codes[SpecialCodeIndex::VTIME] = 0;
    let is_taken = tcsetattr(&stdin, OptionalActions::Now, &by_key).is_ok();
    if is_taken {
        *before = Some(modes);
    }
    is_taken
}

/// Restores the modes of the terminal.
pub(in crate::output) fn give_back() {
    let before = modes_before().take();
    if let Some(before) = before
        && !is_in_background()
    {
        // A terminal that is gone has no modes.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Whether keys can be read from stdin.
pub(crate) fn is_taken() -> bool {
    IS_READABLE.load(Ordering::Relaxed) && modes_before().is_some()
}

/// The keys since the last call.
pub(crate) fn read_keys() -> Vec<Key> {
    if !is_taken() {
        return Vec::new();
    }
    if is_in_background() {
        // What is typed now is for another program.
        *modes_before() = None;
        return Vec::new();
    }
    let stdin = io::stdin();
    let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
    if !poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        return Vec::new();
    }
    let mut bytes = [0; 64];
    let read = rustix::io::read(stdin.as_fd(), &mut bytes);
    let is_gone = match read {
        // Without bytes, another program may have read them.
        Ok(_) => !ready[0].revents().contains(PollFlags::IN),
        Err(error) => error != rustix::io::Errno::INTR,
    };
    if is_gone {
        // The modes are restored at the end nevertheless.
        IS_READABLE.store(false, Ordering::Relaxed);
    }
    parse_keys(bytes.get(..read.unwrap_or(0)).unwrap_or_default())
}

/// The keys of these bytes. Unknown keys and sequences have no effect.
fn parse_keys(mut bytes: &[u8]) -> Vec<Key> {
    const KEYS: [(&[u8], Key); 11] = [
        (b"q", Key::Quit),
        (b"Q", Key::Quit),
        (b" ", Key::Pause),
        (b"k", Key::Scroll(Scroll::LineUp)),
        (b"j", Key::Scroll(Scroll::LineDown)),
        (b"\x1b[A", Key::Scroll(Scroll::LineUp)),
        (b"\x1b[B", Key::Scroll(Scroll::LineDown)),
        // In the application mode of a terminal.
        (b"\x1bOA", Key::Scroll(Scroll::LineUp)),
        (b"\x1bOB", Key::Scroll(Scroll::LineDown)),
        (b"\x1b[5~", Key::Scroll(Scroll::PageUp)),
        (b"\x1b[6~", Key::Scroll(Scroll::PageDown)),
    ];
    let mut keys = Vec::new();
    while let Some(first) = bytes.first() {
        let known = KEYS.iter().find(|(typed, _)| bytes.starts_with(typed));
        keys.extend(known.map(|(_, key)| *key));
        let length = match known {
            Some((typed, _)) => typed.len(),
            None if *first == b'\x1b' => escape_length(bytes),
            None => 1,
        };
        bytes = bytes.get(length..).unwrap_or_default();
    }
    keys
}

/// The length of an unknown escape sequence: `ESC [ 1 ; 5 C` (ECMA-48), or ESC and a letter.
fn escape_length(bytes: &[u8]) -> usize {
    if !matches!(bytes.get(1), Some(b'[' | b'O')) {
        return 1;
    }
    let parameters = bytes.get(2..).unwrap_or_default();
    let end = parameters
        .iter()
        .position(|byte| matches!(byte, b'@'..=b'~'));
    end.map_or(bytes.len(), |end| end + 3)
}

/// Whether another process group has the terminal. False where the terminal does not control this
/// process: then the kernel stops no process for it.
fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

fn modes_before() -> MutexGuard<'static, Option<Termios>> {
    MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_and_other_sequences_ignored() {
        use Key::{Pause, Quit};
        let scroll = |by| vec![Key::Scroll(by)];
        let cases: [(&[u8], Vec<Key>); 11] = [
            (b"", vec![]),
            (b"q", vec![Quit]),
            (b" j", vec![Pause, Key::Scroll(Scroll::LineDown)]),
            (b"\x1b[A", scroll(Scroll::LineUp)),
            (b"\x1bOB", scroll(Scroll::LineDown)),
            (b"\x1b[5~", scroll(Scroll::PageUp)),
            (b"\x1b[6~", scroll(Scroll::PageDown)),
            // Alt-x, Ctrl-Right, F1, and a sequence that is cut.
            (b"\x1bx", vec![]),
            (b"\x1b[1;5Cq", vec![Quit]),
            (b"\x1bOPk", scroll(Scroll::LineUp)),
            ("é\x1b[1;".as_bytes(), vec![]),
        ];
        for (bytes, keys) in cases {
            assert_eq!(parse_keys(bytes), keys, "{bytes:?}");
        }
    }
}
