//! Example command lines and what they do: shown below the help of each command and on its
//! manual page.

use clap::Command;

/// An example command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// The arguments after the program's name.
    pub line: &'static str,
    /// What it does.
    pub effect: &'static str,
}

/// The examples of a command, by its names after the program's: `["guard", "soft"]`.
#[must_use]
pub fn examples(path: &[&str]) -> Vec<Example> {
    let of_it = EXAMPLES
        .iter()
        .filter(|(of, ..)| of.split(' ').eq(path.iter().copied()));
    of_it
        .map(|(_, line, does)| Example { line, effect: does })
        .collect()
}

/// Adds the examples to the help of a command and of all its subcommands.
pub(super) fn with_examples(command: Command, path: &[&str]) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    let mut command = command;
    for name in &names {
        let below = [path, &[name.as_str()]].concat();
        command = command.mut_subcommand(name, |it| with_examples(it, &below));
    }
    let examples = examples(path);
    if examples.is_empty() {
        return command;
    }
    let lines = examples
        .iter()
        .map(|Example { line, effect: does }| format!("  gpukillctl {line}\n      {does}\n"));
    let lines: String = lines.collect();
    command.after_help(format!("Examples:\n{}", lines.trim_end()))
}

/// The names of the command, the arguments, and what they do.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("list", "list", "every GPU, and its biggest process"),
    (
        "list",
        "list --details --watch",
        "every process, redrawn at each poll",
    ),
    (
        "list",
        "list --gpu 0-3 --user bob -o json",
        "bob's processes on four GPUs, as JSON for a program",
    ),
    (
        "status",
        "status",
        "what works, what failed since when, and what you may do",
    ),
    (
        "status",
        "status --report",
        "the facts for a bug report, without names",
    ),
    (
        "holders",
        "holders --gpu 6",
        "which processes have GPU 6 open and hold its unattributed memory",
    ),
    (
        "explain",
        "explain 48213",
        "its owner, memory and rules, and who may end it",
    ),
    (
        "kill",
        "kill 48213 --scope job --dry-run",
        "which processes that would end; without --dry-run it ends them",
    ),
    (
        "kill",
        "kill --user bob --gpu 5 --batch",
        "all of bob's processes on GPU 5",
    ),
    (
        "kill",
        "kill 48213 --force --timeout-secs 30",
        "SIGKILL for processes that survive SIGTERM for 30 s",
    ),
    ("reset", "reset --gpu 3 --dry-run", "what prevents a reset"),
    (
        "reset",
        "reset --gpu 3 --force",
        "ends the processes that hold it first",
    ),
    (
        "audit",
        "audit --user bob --since \"2 days ago\"",
        "the memory that bob held, sample by sample",
    ),
    (
        "audit",
        "audit --summary",
        "the summary of a week, by person and program",
    ),
    (
        "audit",
        "audit --weekly -o csv",
        "the last eight weeks, a line each",
    ),
    (
        "audit actions",
        "audit actions --kind kill,reset --since 7d",
        "the kills and resets of a week, and who asked for them",
    ),
    (
        "audit export",
        "audit export week.parquet --since 7d",
        "a week, for pandas or DuckDB",
    ),
    (
        "audit backup",
        "audit backup gpukill.tar",
        "a copy of the whole store",
    ),
    (
        "audit prune",
        "audit prune --before 90d --dry-run",
        "how much is older than that",
    ),
    (
        "guard status",
        "guard status",
        "the mode, the rules in force, and what was done today",
    ),
    (
        "guard violations",
        "guard violations --user bob --since 2d",
        "bob's violations, and what the guard decided",
    ),
    (
        "guard snooze",
        "guard snooze 48213",
        "postpone the end of that process's job",
    ),
    (
        "guard test",
        "guard test --rules draft.toml",
        "who breaks these rules now",
    ),
    (
        "guard replay",
        "guard replay --rules draft.toml --since 7d",
        "who would have been warned and ended in a week",
    ),
    (
        "guard check",
        "guard check draft.toml",
        "every mistake in it",
    ),
    ("guard config", "guard config", "the file as it is"),
    (
        "guard reference",
        "guard reference > draft.toml",
        "a file with every key, to start from",
    ),
    ("guard enable", "guard enable", "in the mode that is set"),
    ("guard disable", "guard disable", "until guard enable"),
    (
        "guard dry-run",
        "guard dry-run",
        "nobody is warned or ended from now on",
    ),
    (
        "guard soft",
        "guard soft --dry-run",
        "what that would change, and which jobs it would end first",
    ),
    (
        "guard enforce",
        "guard enforce --dry-run",
        "what that would change, and which jobs it would end first",
    ),
    (
        "guard toggle-dry-run",
        "guard toggle-dry-run",
        "from a dry run to the mode that it simulates, or back",
    ),
    (
        "guard set",
        "guard set enforcement.grace_period_seconds 600",
        "ten minutes from the first warning to the end",
    ),
    (
        "guard user set",
        "guard user set bob --memory-limit 40 --idle-limit 120",
        "40 GiB, and two idle hours",
    ),
    (
        "guard user set",
        "guard user set bob --memory-limit \"\"",
        "no limit of his own any more",
    ),
    (
        "guard user remove",
        "guard user remove bob",
        "the default limits apply to him again",
    ),
    (
        "guard group set",
        "guard group set ml --members alice,bob --memory-limit 200",
        "200 GiB for both together",
    ),
    (
        "guard group remove",
        "guard group remove ml",
        "its members have no common limit any more",
    ),
    (
        "guard gpu set",
        "guard gpu set 0 --allowed-users alice --reserved-memory 8",
        "GPU 0 for alice, and 8 GiB of it stay free",
    ),
    (
        "guard gpu remove",
        "guard gpu remove 0",
        "GPU 0 for everybody again",
    ),
    (
        "guard time set",
        "guard time set day --from 08:00 --to 18:00 --days mon-fri --memory-limit 20",
        "20 GiB a person in working hours",
    ),
    (
        "guard time remove",
        "guard time remove day",
        "all hours are the same again",
    ),
    (
        "guard rule set",
        "guard rule set idle --idle-limit 120 --idle-min-memory 8",
        "two hours idle with 8 GiB or more",
    ),
    (
        "guard rule set",
        "guard rule set miners --rogue-risk high --action warn",
        "warn the owners of suspected miners",
    ),
    (
        "guard rule remove",
        "guard rule remove idle",
        "the rule no longer applies",
    ),
    (
        "guard export",
        "guard export rules.json",
        "in the format of the file's extension",
    ),
    (
        "guard import",
        "guard import draft.toml",
        "shows what changes, and asks",
    ),
    ("rogue scan", "rogue scan --hours 168", "all of a week"),
    ("rogue config", "rogue config", "the file as it is"),
    (
        "rogue reference",
        "rogue reference > draft.toml",
        "a file with every key, to start from",
    ),
    (
        "rogue check",
        "rogue check draft.toml",
        "every mistake in it",
    ),
    (
        "rogue set",
        "rogue set detection.max_memory_usage_gb 20",
        "over 20 GiB is too much",
    ),
    (
        "rogue allow",
        "rogue allow process hashcat@bob",
        "bob's hashcat is exempt from detection",
    ),
    (
        "rogue disallow",
        "rogue disallow process hashcat@bob",
        "it is detected again",
    ),
    (
        "rogue export",
        "rogue export rogue.yaml",
        "in the format of the file's extension",
    ),
    (
        "rogue import",
        "rogue import draft.toml",
        "shows what changes, and asks",
    ),
    (
        "quiesce",
        "quiesce --minutes 30",
        "time to update the driver",
    ),
    ("resume", "resume", "read it again now"),
    (
        "forget",
        "forget --gpu 2",
        "a GPU that was taken out for good",
    ),
    (
        "completions",
        "completions bash > ~/.local/share/bash-completion/completions/gpukillctl",
        "for yourself, where no package has them",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::{Cli, command};
    use super::*;
    use clap::Parser as _;
    use std::collections::BTreeSet;

    /// Splits a line as a shell does, without a redirection.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap();
        let mut words = Vec::new();
        for (at, piece) in line.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                _ => words.push(piece.to_owned()),
            }
        }
        words
    }

    #[test]
    fn every_example_parses_as_its_command() {
        for (of, line, does) in EXAMPLES {
            let typed = std::iter::once("gpukillctl".to_owned()).chain(words(line));
            let parsed = Cli::try_parse_from(typed);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            assert!(format!("{line} ").starts_with(&format!("{of} ")), "{line}");
            assert!(!does.is_empty() && !does.ends_with('.'), "{does}");
        }
    }

    /// The names of every command that runs without a subcommand.
    fn leaves(command: &Command, path: &str) -> BTreeSet<String> {
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        let below = below.flat_map(|it| leaves(it, format!("{path} {}", it.get_name()).trim()));
        let mut leaves: BTreeSet<String> = below.collect();
        if !command.is_subcommand_required_set() {
            leaves.insert(path.to_owned());
        }
        leaves
    }

    #[test]
    fn every_command_shows_an_example() {
        let command = command();
        let have: BTreeSet<String> = EXAMPLES.iter().map(|(of, ..)| (*of).to_owned()).collect();
        assert_eq!(leaves(&command, ""), have);
        for path in have {
            let mut command = command.clone();
            for name in path.split(' ') {
                command = command.find_subcommand(name).unwrap().clone();
            }
            // No wrapping, whatever the width of the terminal.
            let help = command.term_width(0).render_help().to_string();
            for example in examples(&path.split(' ').collect::<Vec<_>>()) {
                let shown = format!("\n  gpukillctl {}\n      {}", example.line, example.effect);
                assert!(help.contains(&shown), "{help}");
            }
        }
    }
}
