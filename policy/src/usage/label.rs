//! What to call a kind of process: its program, and what that runs.

use crate::job::{Ran, ran};
use gpukill_proto::text::without_directory;

/// The longest label, in bytes.
pub const LABEL_MAX: usize = 64;

/// The longest word after a program that is taken for what it is told to do.
const SUBCOMMAND_MAX: usize = 16;

/// Programs that run what their arguments name; a version may follow.
const INTERPRETERS: &[&str] = &["python", "pypy", "ipython", "node", "nodejs"];

/// What to call a process of this command line, as the daemon shows it: the program as
/// `list` shows it, and the script or module that it runs, or what it is told to do:
/// `python train.py`, `ollama serve`. What is escaped stays so. `None` where the line
/// names no program.
#[must_use]
pub fn label(command: &str) -> Option<String> {
    // Arguments are apart by blanks only, so one with blanks in it is several.
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = without_directory(words.next()?);
    if program.bytes().all(|it| it == b'/') {
        return None;
    }
    let whole = if is_interpreter(base(program)) {
        match ran(words) {
            Some(Ran::Module(module)) => format!("{program} -m {module}"),
            Some(Ran::Script(path)) => format!("{program} {}", base(path)),
            None => program.to_owned(),
        }
    } else {
        match words.next().filter(|word| is_subcommand(word)) {
            Some(word) => format!("{program} {word}"),
            None => program.to_owned(),
        }
    };
    Some(bounded(&whole))
}

/// A label that is no longer than any: of a process's own name, say.
#[must_use]
pub fn bounded(text: &str) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= LABEL_MAX {
        return text.to_owned();
    }
    let room = LABEL_MAX - ELLIPSIS.len();
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
    format!("{}{ELLIPSIS}", &text[..end.unwrap_or(0)])
}

/// What follows the last slash, but for slashes at the end.
fn base(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

fn is_interpreter(program: &str) -> bool {
    let is_version = |rest: &str| rest.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    INTERPRETERS
        .iter()
        .any(|name| program.strip_prefix(name).is_some_and(is_version))
}

/// Whether an argument can be what a program is told to do, as in `ollama serve`,
/// and is no file, number or option.
fn is_subcommand(word: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it == b'-';
    word.len() <= SUBCOMMAND_MAX && word.bytes().all(is_plain) && !word.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn processes_are_called_by_their_program_and_what_it_runs() {
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
    fn a_long_name_is_cut_between_characters() {
        let long = format!("a{}", "é".repeat(40));
        let expected = format!("a{}…", "é".repeat(30));
        assert_eq!(label(&long), Some(expected));
        assert_eq!(label(&"x".repeat(64)), Some("x".repeat(64)));
    }

    proptest! {
        #[test]
        fn no_command_line_gives_more_than_a_bounded_label(
            command in "((/?[a-zé/. :-]{0,30})|python3?)( [-a-zé/.=0-9…]{0,40}){0,6}",
        ) {
            if let Some(label) = label(&command) {
                prop_assert!(!label.is_empty() && label.len() <= LABEL_MAX);
            }
        }
    }
}
