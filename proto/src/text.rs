//! Untrusted text made safe to show, and durations as people read them.

use std::fmt::Write as _;
use unicode_width::UnicodeWidthChar as _;

/// The longest command line that is kept or sent, in bytes.
pub const COMMAND_MAX: usize = 512;

/// So many marks without a width may follow a character: Vietnamese and Korean
/// letters that are written in parts have two. Hundreds would smear over the
/// lines above and below.
const MARKS_MAX: u32 = 2;

/// Makes bytes of unknown origin safe to print on one line of a terminal.
///
/// Control characters, invalid UTF-8 and the characters that reorder or hide
/// text (Unicode bidi controls, zero-width ones) become visible escapes such as
/// `\x1b` and `\u{202e}`; so do combining marks that have no character to stand
/// on, or two others there before them. The result has at most `max` bytes, an ellipsis
/// included where something was cut; `max` below 3 gives an empty text.
#[must_use]
pub fn visible(bytes: &[u8], max: usize) -> String {
    const ELLIPSIS: char = '…';
    // Most texts are such, and all of them are seen with every list.
    if bytes.len() <= max
        && let Ok(plain) = std::str::from_utf8(bytes)
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
    {
        return plain.to_owned();
    }
    let mut shown = String::with_capacity(bytes.len().min(max));
    // The end of what still leaves room for an ellipsis.
    let mut fits = 0;
    // None may stand on what precedes this text.
    let mut marks = MARKS_MAX;
    for chunk in bytes.utf8_chunks() {
        let pieces = chunk.valid().chars().map(Piece::Char);
        let broken = chunk.invalid().iter().copied().map(Piece::Byte);
        for piece in pieces.chain(broken) {
            marks = piece.write_to(&mut shown, marks);
            if shown.len() > max {
                shown.truncate(fits);
                if max >= ELLIPSIS.len_utf8() {
                    shown.push(ELLIPSIS);
                }
                return shown;
            }
            if shown.len() + ELLIPSIS.len_utf8() <= max {
                fits = shown.len();
            }
        }
    }
    shown
}

enum Piece {
    Char(char),
    Byte(u8),
}

impl Piece {
    /// Adds it to a text that ends with so many marks; how many it ends with
    /// then.
    fn write_to(&self, shown: &mut String, marks: u32) -> u32 {
        // Writing to a String cannot fail.
        let _ = match *self {
            Self::Byte(byte) => write!(shown, "\\x{byte:02x}"),
            Self::Char(c) if c.is_control() && u32::from(c) < 0x100 => {
                write!(shown, "\\x{:02x}", u32::from(c))
            }
            Self::Char(c)
                if c.is_control() || misleads(c) || (is_mark(c) && marks >= MARKS_MAX) =>
            {
                write!(shown, "\\u{{{:x}}}", u32::from(c))
            }
            Self::Char(c) => {
                shown.push(c);
                return if is_mark(c) { marks + 1 } else { 0 };
            }
        };
        // An escape is nothing for marks to stand on.
        MARKS_MAX
    }
}

/// Whether a character stands on the one before it and takes no column.
fn is_mark(c: char) -> bool {
    c.width() == Some(0)
}

/// Characters that are no controls and yet change how a line looks: line
/// separators, zero-width and bidirectional formatting characters, blanks that
/// are none, variation selectors and the tag block.
const fn misleads(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// A duration in its two greatest units: `3h 12m`, `9d 4h`, `45m`, `12s`.
#[must_use]
pub fn duration(length: std::time::Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, m) => format!("{m}m"),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, _) => format!("{d}d {h}h"),
    }
}

/// The same, below ten minutes with its seconds where there are any, so that it can be
/// told from a limit beside it: `1m 2s`.
#[must_use]
pub fn near_duration(length: std::time::Duration) -> String {
    let seconds = length.as_secs();
    match (seconds / 60, seconds % 60) {
        (minutes @ 1..=9, seconds @ 1..) => format!("{minutes}m {seconds}s"),
        (_, _) => duration(length),
    }
}

/// A text as one word of a shell; `None` for one that cannot be shown as it is, or that a
/// program would take for an option.
#[must_use]
pub fn shell_word(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    if text.is_empty() || text.starts_with('-') || visible(text.as_bytes(), usize::MAX) != text {
        None
    } else if text.chars().all(is_plain) {
        Some(text.to_owned())
    } else {
        Some(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

/// What stands for the program of a pid that a driver lists and no process here has: it
/// has ended, or is one of another PID namespace.
pub const NO_PROCESS: &str = "(no process)";

/// Why nothing is known of a pid that a driver lists and another process has by now: the
/// list names the process that had it before.
pub const LISTED_BEFORE: &str = "listed since before the process with this pid began";

/// Why something of a process is not known that has ended while its driver lists it.
pub const HAS_ENDED: &str = "the process has ended";

/// Where a program lies is mostly long and says least: the documents have it. A slash in
/// what is no path, as in `[kworker/0:1]`, is part of a name.
#[must_use]
pub fn without_directory(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    let mut begins = ["/", "./", "../", "~"].into_iter();
    if !begins.any(|it| program.starts_with(it)) {
        return command;
    }
    match program.rsplit_once('/') {
        // A directory, or nothing but one, is no name.
        Some((directory, name)) if !name.is_empty() => {
            command.get(directory.len() + 1..).unwrap_or(command)
        }
        Some(_) | None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_text_stays_one_word_in_a_shell_and_is_no_option() {
        for (text, expected) in [
            ("/dev/shm/x@eve", Some("/dev/shm/x@eve")),
            ("slurm 1234.0", Some("'slurm 1234.0'")),
            ("a;rm -rf ~", Some("'a;rm -rf ~'")),
            ("$(x)`y`\\x2d", Some("'$(x)`y`\\x2d'")),
            ("it's", Some(r"'it'\''s'")),
            ("", None),
            ("-H", None),
            ("a\nb", None),
            ("a\x1b[2J", None),
            ("a\u{202e}b", None),
        ] {
            assert_eq!(shell_word(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn controls_and_reordering_characters_become_visible() {
        let cases: [(&[u8], &str); 7] = [
            (b"python train.py", "python train.py"),
            (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
            (b"two\nlines\ttab", "two\\x0alines\\x09tab"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("a\u{202e}b\u{200b}c".as_bytes(), "a\\u{202e}b\\u{200b}c"),
            ("csi\u{9b}31m".as_bytes(), "csi\\x9b31m"),
            ("naïve 模型".as_bytes(), "naïve 模型"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(visible(bytes, 100), expected);
        }
    }

    #[test]
    fn few_combining_marks_are_shown_and_a_pile_of_them_becomes_visible() {
        let cases = [
            ("e\u{301}", "e\u{301}"),
            // Vietnamese, and Korean, in parts.
            ("Vie\u{302}\u{323}t", "Vie\u{302}\u{323}t"),
            ("\u{1112}\u{1161}\u{11ab}", "\u{1112}\u{1161}\u{11ab}"),
            (
                "e\u{301}\u{301}\u{301}x\u{301}",
                "e\u{301}\u{301}\\u{301}x\u{301}",
            ),
            // On nothing of its own.
            ("\u{301}x", "\\u{301}x"),
            ("\n\u{301}", "\\x0a\\u{301}"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text.as_bytes(), 100), expected);
        }
        let pile = format!("a{}", "\u{301}".repeat(500));
        let shown = visible(pile.as_bytes(), 64);
        assert_eq!(shown, format!("a\u{301}\u{301}{}…", "\\u{301}".repeat(8)));
    }

    #[test]
    fn a_long_text_is_cut_with_an_ellipsis_and_never_inside_a_character() {
        assert_eq!(visible(b"abcdefgh", 8), "abcdefgh");
        assert_eq!(visible(b"abcdefghi", 8), "abcde…");
        assert_eq!(visible("模型模型".as_bytes(), 8), "模…");
        assert_eq!(visible(b"abcd", 2), "");
    }

    #[test]
    fn a_short_duration_can_be_told_from_its_limit() {
        let of = |seconds| near_duration(Duration::from_secs(seconds));
        let said = [59, 60, 62, 90, 599, 600, 660, 3_661].map(of);
        let expected = [
            "59s", "1m", "1m 2s", "1m 30s", "9m 59s", "10m", "11m", "1h 1m",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn durations_show_their_two_greatest_units() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (5_400, "1h 30m"),
            (3_600, "1h 0m"),
            (792_000, "9d 4h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_the_result_is_bounded_and_harmless(bytes: Vec<u8>, max in 0usize..64) {
            let shown = visible(&bytes, max);
            prop_assert!(shown.len() <= max);
            prop_assert!(!shown.chars().any(|c| c.is_control() || misleads(c)));
            // Whoever makes it safe once more changes nothing.
            prop_assert_eq!(visible(shown.as_bytes(), max), shown);
        }

        #[test]
        fn however_many_marks_there_are_few_follow_each_other(
            text in "[ae\u{300}-\u{36f}\u{5b0}-\u{5bd}\u{1160}-\u{11ff}\u{20d0}-\u{20f0}\n]{0,200}",
            max in 0usize..512,
        ) {
            let shown = visible(text.as_bytes(), max);
            prop_assert!(shown.len() <= max);
            let mut run = MARKS_MAX;
            for c in shown.chars() {
                run = if c.width() == Some(0) { run + 1 } else { 0 };
                prop_assert!(run <= MARKS_MAX, "{:?}", shown);
            }
            prop_assert_eq!(visible(shown.as_bytes(), max), shown);
        }
    }

    #[test]
    fn only_a_path_loses_its_directory() {
        for (command, expected) in [
            ("/usr/bin/python3 train.py", "python3 train.py"),
            ("./bench/run --n 4", "run --n 4"),
            ("../run", "run"),
            ("~/bin/run /etc/x", "run /etc/x"),
            ("~bob/run", "run"),
            ("/usr/bin/é x", "é x"),
            // As they are typed.
            ("bin/python train.py", "bin/python train.py"),
            ("python /home/bob/train.py", "python /home/bob/train.py"),
            // Titles.
            ("[kworker/0:1]", "[kworker/0:1]"),
            ("sglang::scheduler/tp0", "sglang::scheduler/tp0"),
            ("nginx: worker", "nginx: worker"),
            ("…/x y", "…/x y"),
            // No names.
            ("/", "/"),
            ("/usr/bin/ x", "/usr/bin/ x"),
            ("~", "~"),
            ("", ""),
            (" /x/y", " /x/y"),
        ] {
            assert_eq!(without_directory(command), expected);
        }
    }
}
