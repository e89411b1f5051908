//! The label of a kind of process: its program, and what the program runs.

use crate::job::{InterpreterTarget, interpreter_target};
use gpukill_proto::text::strip_directory;

/// Maximum length of a label, in bytes.
pub const LABEL_MAX: usize = 64;

/// Maximum length of a word that counts as a subcommand.
const SUBCOMMAND_MAX: usize = 16;

/// Programs that run what their arguments name; a version may follow.
const INTERPRETERS: &[&str] = &["python", "pypy", "ipython", "node", "nodejs"];

/// Returns the label for a command line, as the daemon displays it: the program as in
/// `list`, with its script, module or subcommand: `python train.py`, `ollama serve`.
/// Escapes stay. `None` where the line names no program.
#[must_use]
pub fn label(command: &str) -> Option<String> {
    // Only spaces separate arguments, so an argument with spaces counts as several.
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = strip_directory(words.next()?);
    if program.bytes().all(|it| it == b'/') {
        return None;
    }
    let whole = if is_interpreter(file_name(program)) {
        match interpreter_target(words) {
            Some(InterpreterTarget::Module(module)) => format!("{program} -m {module}"),
            Some(InterpreterTarget::Script(path)) => format!("{program} {}", file_name(path)),
            None => program.to_owned(),
        }
    } else {
        match words.next().filter(|word| is_subcommand(word)) {
            Some(word) => format!("{program} {word}"),
            None => program.to_owned(),
        }
    };
    Some(truncate_label(&whole))
}

/// Truncates a text, such as a process name, to the length of a label.
#[must_use]
pub fn truncate_label(text: &str) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= LABEL_MAX {
        return text.to_owned();
    }
    let room = LABEL_MAX - ELLIPSIS.len();
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
    format!("{}{ELLIPSIS}", &text[..end.unwrap_or(0)])
}

/// The text after the last slash, without trailing slashes.
fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

fn is_interpreter(program: &str) -> bool {
    let is_version = |rest: &str| rest.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    INTERPRETERS
        .iter()
        .any(|name| program.strip_prefix(name).is_some_and(is_version))
}

/// Whether an argument can be a subcommand, as in `ollama serve`, and is no file,
/// number or option.
fn is_subcommand(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    word.len() <= SUBCOMMAND_MAX && word.bytes().all(is_plain) && !word.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn label_is_program_and_target() {
        let cases = [
            (
                "python -m vllm.entrypoints.api_server --x",
                "python -m vllm.entrypoints.api_server",
            ),
            ("python /home/a/train.py --lr 1", "python train.py"),
            ("/opt/env/bin/python3.11 -u train.py", "python3.11 train.py"),
            ("python3 -X dev -Im torch.run a.py", "python3 -m torch.run"),
            ("python3 /usr/local/bin/vllm serve m", "python3 vllm"),
            ("python -c import(x) --secret", "python"),
            ("python", "python"),
            ("python train/", "python train"),
            ("node --inspect server.js", "node server.js"),
            ("/usr/bin/ollama serve", "ollama serve"),
            ("/usr/bin/ollama  runner --model /x", "ollama runner"),
            ("./bench --size 4", "bench"),
            ("./bench 4096", "bench"),
            ("./bench /data/x.bin", "bench"),
            ("pythonista train.py", "pythonista"),
            ("tool averyveryverylongword", "tool"),
            ("ray::IDLE", "ray::IDLE"),
            ("nginx: worker process", "nginx: worker"),
            ("[kworker/u8:2]", "[kworker/u8:2]"),
            ("sglang::scheduler/tp0", "sglang::scheduler/tp0"),
            ("env/bin/python train.py", "env/bin/python train.py"),
            ("/home/a/\\x1b[31m serve", "\\x1b[31m serve"),
        ];
        for (command, expected) in cases {
            assert_eq!(label(command).as_deref(), Some(expected), "{command}");
        }
        for nothing in ["", "  ", "/", "// x"] {
            assert_eq!(label(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn long_name_is_cut_between_characters() {
        let long = format!("a{}", "é".repeat(40));
        let expected = format!("a{}…", "é".repeat(30));
        assert_eq!(label(&long), Some(expected));
        assert_eq!(label(&"x".repeat(64)), Some("x".repeat(64)));
    }

    proptest! {
        #[test]
        fn label_is_bounded(
            command in "((/?[a-zé/. :-]{0,30})|python3?)( [-a-zé/.=0-9…]{0,40}){0,6}",
        ) {
            if let Some(label) = label(&command) {
                prop_assert!(!label.is_empty() && label.len() <= LABEL_MAX);
            }
        }
    }
}
