//! The last lines of a dry run: nothing was ended, and the command that ends the processes.

use super::super::style::{OutputStyle, Symbols};
use super::super::text::{Line, Tone, wrapped_lines};
use super::advice::{printable_shell_word, with_command};
use gpukill_policy::kill::consent::Consent;
use std::ffi::OsString;

/// States that nothing was ended. `arguments` is the command line of the dry run, and `consent`
/// what the same command needs to end the processes; `None` if it would end none.
pub(crate) fn dry_run_lines(
    arguments: impl Iterator<Item = OsString>,
    consent: Option<Consent>,
    style: &OutputStyle,
) -> Vec<Line> {
    let nothing = "dry run: nothing was ended";
    match consent.map(|consent| real_command(arguments, consent, style.symbols)) {
        None => wrapped_lines(
            "dry run: nothing was ended, and nothing would be",
            Tone::Plain,
            style,
        ),
        // A word of it cannot be printed.
        Some(None) => wrapped_lines(nothing, Tone::Plain, style),
        Some(Some(command)) => with_command(
            &format!("{nothing}; the real run:"),
            &command,
            Tone::Plain,
            style,
        ),
    }
}

/// The command line without `--dry-run`, for a shell. In its place stands the option that the
/// real run needs: `gpukillctl kill --user alice --batch`. `None` if a shell cannot read back a
/// word.
fn real_command(
    arguments: impl Iterator<Item = OsString>,
    consent: Consent,
    symbols: Symbols,
) -> Option<String> {
    let mut needed = match consent {
        Consent::NeedsBatch => Some("--batch"),
        Consent::NeedsYes => Some("--yes"),
        Consent::Given | Consent::Ask => None,
    };
    let mut command = "gpukillctl".to_owned();
    for argument in arguments.skip(1) {
        let argument = argument.into_string().ok()?;
        let word = match argument.as_str() {
            "--dry-run" => match needed.take() {
                Some(option) => option.to_owned(),
                None => continue,
            },
            _ => option_or_word(&argument, symbols)?,
        };
        command.push(' ');
        command.push_str(&word);
    }
    Some(command)
}

/// An argument as one word of a shell: `--yes`, `--filter='python.*'`, `'slurm 1234.0'`.
fn option_or_word(argument: &str, symbols: Symbols) -> Option<String> {
    let start = match (argument.starts_with('-'), argument.find('=')) {
        (true, Some(at)) => at + 1,
        (true, None) => argument.len() - argument.trim_start_matches('-').len(),
        (false, _) => 0,
    };
    let (option, value) = argument.split_at(start);
    match value.is_empty() {
        true => Some(option.to_owned()),
        false => Some(format!("{option}{}", printable_shell_word(value, symbols)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::style;

    fn shown(line: &str, consent: Option<Consent>) -> String {
        let words = line.split(' ').map(OsString::from);
        let lines = dry_run_lines(words, consent, &style(None));
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        texts.join("\n")
    }

    #[test]
    fn real_run_is_the_same_command_with_consent() {
        for (line, consent, expected) in [
            ("kill 7 --dry-run", Consent::Given, "kill 7"),
            ("kill --dry-run 7 8", Consent::Ask, "kill 7 8"),
            ("kill --dry-run 7 8", Consent::NeedsYes, "kill --yes 7 8"),
            // An option after `--` would be a PID.
            (
                "kill --dry-run -- 7 8",
                Consent::NeedsYes,
                "kill --yes -- 7 8",
            ),
            (
                "--socket /a kill --user alice --dry-run --dry-run",
                Consent::NeedsBatch,
                "--socket /a kill --user alice --batch",
            ),
            (
                "kill --filter=python.* --dry-run --image vllm*",
                Consent::NeedsBatch,
                "kill --filter='python.*' --batch --image 'vllm*'",
            ),
        ] {
            assert_eq!(
                shown(&format!("/usr/bin/gpukillctl {line}"), Some(consent)),
                format!("dry run: nothing was ended; the real run: gpukillctl {expected}")
            );
        }
    }

    #[test]
    fn command_that_ends_nothing_or_cannot_be_typed_is_not_named() {
        assert_eq!(
            shown("gpukillctl kill 7 --dry-run", None),
            "dry run: nothing was ended, and nothing would be"
        );
        let hostile = "gpukillctl kill --filter a\u{202e}b --dry-run";
        assert_eq!(
            shown(hostile, Some(Consent::Given)),
            "dry run: nothing was ended"
        );
    }
}
