//! Makes untrusted text safe to show, and formats durations for people.

use std::fmt::Write as _;
use unicode_width::UnicodeWidthChar as _;

/// The longest command line that is stored or sent, in bytes.
pub const MAX_COMMAND_BYTES: usize = 512;

/// The most zero-width marks that may follow a character. Vietnamese and Korean letters that
/// are written in parts have two; hundreds would smear over the lines above and below.
const MAX_COMBINING_MARKS: u32 = 2;

/// Makes bytes of unknown origin safe to print on one line of a terminal.
///
/// Control characters, invalid UTF-8 and the characters that reorder or hide text (Unicode bidi
/// controls, zero-width ones) become visible escapes such as `\x1b` and `\u{202e}`. So do
/// combining marks without a base character, and those beyond two on one character. The result
/// has at most `max` bytes, with the ellipsis where text was cut; a `max` below 3 gives an
/// empty text.
#[must_use]
pub fn sanitize(bytes: &[u8], max: usize) -> String {
    const ELLIPSIS: char = '…';
    // The common case, and every list calls this for every text.
    if bytes.len() <= max
        && let Ok(plain) = std::str::from_utf8(bytes)
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
    {
        return plain.to_owned();
    }
    let mut shown = String::with_capacity(bytes.len().min(max));
    // The end of the text that leaves room for an ellipsis.
    let mut fits = 0;
    // A mark must not combine with the text before this one.
    let mut marks = MAX_COMBINING_MARKS;
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
    /// Appends this piece to a text that ends with `marks` marks; returns the number of marks
    /// at the new end.
    fn write_to(&self, shown: &mut String, marks: u32) -> u32 {
        // Writing to a String cannot fail.
        let _ = match *self {
            Self::Byte(byte) => write!(shown, "\\x{byte:02x}"),
            Self::Char(c) if c.is_control() && u32::from(c) < 0x100 => {
                write!(shown, "\\x{:02x}", u32::from(c))
            }
            Self::Char(c)
                if c.is_control()
                    || is_misleading(c)
                    || (is_combining_mark(c) && marks >= MAX_COMBINING_MARKS) =>
            {
                write!(shown, "\\u{{{:x}}}", u32::from(c))
            }
            Self::Char(c) => {
                shown.push(c);
                return if is_combining_mark(c) { marks + 1 } else { 0 };
            }
        };
        // A mark cannot combine with an escape.
        MAX_COMBINING_MARKS
    }
}

/// Whether a character combines with the one before it and takes no column.
fn is_combining_mark(c: char) -> bool {
    c.width() == Some(0)
}

/// Characters that are not controls and still change how a line looks: line separators,
/// zero-width and bidirectional formatting characters, unusual blanks, variation selectors and
/// the tag block.
const fn is_misleading(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Formats a duration in its two largest units: `3h 12m`, `9d 4h`, `45m`, `12s`.
#[must_use]
pub fn format_duration(length: std::time::Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, m) => format!("{m}m"),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, _) => format!("{d}d {h}h"),
    }
}

/// Formats a duration like [`format_duration`], below ten minutes with its seconds, so that it
/// differs from a limit beside it: `1m 2s`.
#[must_use]
pub fn format_duration_with_seconds(length: std::time::Duration) -> String {
    let seconds = length.as_secs();
    match (seconds / 60, seconds % 60) {
        (minutes @ 1..=9, seconds @ 1..) => format!("{minutes}m {seconds}s"),
        (_, _) => format_duration(length),
    }
}

/// Quotes a text as one word of a shell. `None` for a text that cannot be shown unchanged, or
/// that a program would take for an option.
#[must_use]
pub fn quote_for_shell(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    if text.is_empty() || text.starts_with('-') || sanitize(text.as_bytes(), usize::MAX) != text {
        None
    } else if text.chars().all(is_plain) {
        Some(text.to_owned())
    } else {
        Some(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

/// Stands for the program of a pid that a driver lists and no process here has: the process has
/// ended, or is in another PID namespace.
pub const NO_PROCESS: &str = "(no process)";

/// The reason why nothing is known of a listed pid that another process has reused: the driver
/// lists the earlier process.
pub const LISTED_BEFORE_START: &str = "listed before the process with this pid started";

/// The reason why a fact of a process is unknown that has ended while its driver lists it.
pub const PROCESS_ENDED: &str = "the process has ended";

/// Removes the directory of the program from a command line: the directory is mostly long and
/// says little. A slash that is not part of a path, as in `[kworker/0:1]`, stays.
#[must_use]
pub fn strip_directory(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    let mut begins = ["/", "./", "../", "~"].into_iter();
    if !begins.any(|it| program.starts_with(it)) {
        return command;
    }
    match program.rsplit_once('/') {
        // A bare directory has no program name.
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
    fn shell_quoting_keeps_one_word() {
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
            assert_eq!(quote_for_shell(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn controls_and_bidi_are_escaped() {
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
            assert_eq!(sanitize(bytes, 100), expected);
        }
    }

    #[test]
    fn excess_combining_marks_are_escaped() {
        let cases = [
            ("e\u{301}", "e\u{301}"),
            // Vietnamese and Korean letters in parts.
            ("Vie\u{302}\u{323}t", "Vie\u{302}\u{323}t"),
            ("\u{1112}\u{1161}\u{11ab}", "\u{1112}\u{1161}\u{11ab}"),
            (
                "e\u{301}\u{301}\u{301}x\u{301}",
                "e\u{301}\u{301}\\u{301}x\u{301}",
            ),
            // No base character.
            ("\u{301}x", "\\u{301}x"),
            ("\n\u{301}", "\\x0a\\u{301}"),
        ];
        for (text, expected) in cases {
            assert_eq!(sanitize(text.as_bytes(), 100), expected);
        }
        let pile = format!("a{}", "\u{301}".repeat(500));
        let shown = sanitize(pile.as_bytes(), 64);
        assert_eq!(shown, format!("a\u{301}\u{301}{}…", "\\u{301}".repeat(8)));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(sanitize(b"abcdefgh", 8), "abcdefgh");
        assert_eq!(sanitize(b"abcdefghi", 8), "abcde…");
        assert_eq!(sanitize("模型模型".as_bytes(), 8), "模…");
        assert_eq!(sanitize(b"abcd", 2), "");
    }

    #[test]
    fn short_duration_shows_seconds() {
        let of = |seconds| format_duration_with_seconds(Duration::from_secs(seconds));
        let actual = [59, 60, 62, 90, 599, 600, 660, 3_661].map(of);
        let expected = [
            "59s", "1m", "1m 2s", "1m 30s", "9m 59s", "10m", "11m", "1h 1m",
        ];
        assert_eq!(actual, expected);
    }

    #[test]
    fn duration_shows_two_largest_units() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (5_400, "1h 30m"),
            (3_600, "1h 0m"),
            (792_000, "9d 4h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(format_duration(Duration::from_secs(seconds)), expected);
        }
    }

    proptest! {
        #[test]
        fn sanitized_bytes_are_bounded_and_safe(bytes: Vec<u8>, max in 0usize..64) {
            let shown = sanitize(&bytes, max);
            prop_assert!(shown.len() <= max);
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_misleading(c)));
            // Sanitizing is idempotent.
            prop_assert_eq!(sanitize(shown.as_bytes(), max), shown);
        }

        #[test]
        fn sanitized_text_has_few_marks(
            text in "[ae\u{300}-\u{36f}\u{5b0}-\u{5bd}\u{1160}-\u{11ff}\u{20d0}-\u{20f0}\n]{0,200}",
            max in 0usize..512,
        ) {
            let shown = sanitize(text.as_bytes(), max);
            prop_assert!(shown.len() <= max);
            let mut run = MAX_COMBINING_MARKS;
            for c in shown.chars() {
                run = if c.width() == Some(0) { run + 1 } else { 0 };
                prop_assert!(run <= MAX_COMBINING_MARKS, "{:?}", shown);
            }
            prop_assert_eq!(sanitize(shown.as_bytes(), max), shown);
        }
    }

    #[test]
    fn only_paths_lose_the_directory() {
        for (command, expected) in [
            ("/usr/bin/python3 train.py", "python3 train.py"),
            ("./bench/run --n 4", "run --n 4"),
            ("../run", "run"),
            ("~/bin/run /etc/x", "run /etc/x"),
            ("~bob/run", "run"),
            ("/usr/bin/é x", "é x"),
            // Relative paths stay.
            ("bin/python train.py", "bin/python train.py"),
            ("python /home/bob/train.py", "python /home/bob/train.py"),
            // Process titles, not paths.
            ("[kworker/0:1]", "[kworker/0:1]"),
            ("sglang::scheduler/tp0", "sglang::scheduler/tp0"),
            ("nginx: worker", "nginx: worker"),
            ("…/x y", "…/x y"),
            // Nothing remains after the directory.
            ("/", "/"),
            ("/usr/bin/ x", "/usr/bin/ x"),
            ("~", "~"),
            ("", ""),
            (" /x/y", " /x/y"),
        ] {
            assert_eq!(strip_directory(command), expected);
        }
    }
}
