//! A sentence, and a command that can be copied: it is never wrapped, and does in
//! a shell what it says, whatever the names in it.

use super::super::line::{Line, Tone, shown, width, wrap};
use super::super::look::{Look, Symbols};
use gpukill_proto::text::shell_word;

/// A sentence.
pub(super) fn sentence(words: &str, tone: Tone, look: &Look) -> Vec<Line> {
    let texts = wrap(words, 0, 2, look.width).into_iter();
    texts.map(|text| Line::toned(text, tone)).collect()
}

/// A sentence, and the command behind it; below it where it does not fit.
pub(super) fn with_command(words: &str, command: &str, tone: Tone, look: &Look) -> Vec<Line> {
    let mut lines = sentence(words, tone, look);
    let used = lines.last().map_or(0, Line::width);
    let fits = look
        .width
        .is_none_or(|most| used + 1 + width(command) <= most);
    match lines.last_mut().filter(|_| fits) {
        Some(last) => last.push(format!(" {command}"), Tone::Plain),
        None => lines.push(Line::plain(format!("  {command}"))),
    }
    lines
}

/// A name as one word of a shell; `None` for one that cannot be shown as it is,
/// or that a program would take for an option.
pub(super) fn word(name: &str, symbols: Symbols) -> Option<String> {
    shell_word(name).filter(|_| shown(name, symbols) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_word_in_a_shell_and_is_no_option() {
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
                word(name, Symbols::Unicode).as_deref(),
                expected,
                "{name:?}"
            );
        }
        assert_eq!(word("na\u{ef}ve", Symbols::Ascii), None);
    }
}
