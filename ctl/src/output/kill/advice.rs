//! A sentence, and a command that can be copied. The command is never wrapped, and a shell runs
//! it as intended whatever names it contains.

use super::super::style::{OutputStyle, Symbols};
use super::super::text::{Line, Tone, escaped, width, wrapped_lines};
use gpukill_proto::text::quote_for_shell;

/// A sentence and a command; the command follows on the same line if it fits, else on the next.
pub(super) fn with_command(
    words: &str,
    command: &str,
    tone: Tone,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = wrapped_lines(words, tone, style);
    let used = lines.last().map_or(0, Line::width);
    let fits = style
        .width
        .is_none_or(|max_width| used + 1 + width(command) <= max_width);
    match lines.last_mut().filter(|_| fits) {
        Some(last) => last.push(format!(" {command}"), Tone::Plain),
        None => lines.push(Line::plain(format!("  {command}"))),
    }
    lines
}

/// A name as one word of a shell; `None` for a name that cannot be shown unchanged or that a
/// program would take for an option.
pub(super) fn printable_shell_word(name: &str, symbols: Symbols) -> Option<String> {
    quote_for_shell(name).filter(|_| escaped(name, symbols) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_shell_word_and_no_option() {
        for (name, expected) in [
            ("vllm@0.service", Some("vllm@0.service")),
            ("slurm 1234.0", Some("'slurm 1234.0'")),
            ("a;rm -rf ~", Some("'a;rm -rf ~'")),
            ("$(x)`y`\\x2d", Some("'$(x)`y`\\x2d'")),
            ("it's", Some(r"'it'\''s'")),
            ("", None),
            ("-H.service", None),
            ("a\nb", None),
            ("a\x1b[2J", None),
            ("a\u{202e}b", None),
        ] {
            assert_eq!(
                printable_shell_word(name, Symbols::Unicode).as_deref(),
                expected,
                "{name:?}"
            );
        }
        assert_eq!(printable_shell_word("na\u{ef}ve", Symbols::Ascii), None);
    }
}
