//! What people type, with what it does: below the help of each command, and on its page of
//! the manual.

use clap::Command;

/// A line that can be typed, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// It, behind the program's name.
    pub line: &'static str,
    /// What it does.
    pub does: &'static str,
}

/// The examples of a command, by its names behind the program's: `["guard", "soft"]`.
#[must_use]
pub fn examples(path: &[&str]) -> Vec<Example> {
    let of_it = EXAMPLES
        .iter()
        .filter(|(of, ..)| of.split(' ').eq(path.iter().copied()));
    of_it
        .map(|(_, line, does)| Example { line, does })
        .collect()
}

/// The same command, with its examples below its help, and those of all below it.
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
        .map(|Example { line, does }| format!("  gpukillctl {line}\n      {does}\n"));
    let lines: String = lines.collect();
    command.after_help(format!("Examples:\n{}", lines.trim_end()))
}

/// The names of a command, what is typed, and what that does.
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
        "what bob has on four GPUs, for a program",
    ),
    (
        "status",
        "status",
        "what works, what does not since when, and what you may do",
    ),
    (
        "status",
        "status --report",
        "what a report of a bug needs, without names",
    ),
    (
        "holders",
        "holders --gpu 6",
        "who has GPU 6 open, and whose its unexplained memory is",
    ),
    (
        "explain",
        "explain 48213",
        "whose it is, what it holds, by which rules, and who may end it",
    ),
    (
        "kill",
        "kill 48213 --scope job --dry-run",
        "whom that would end; without --dry-run it does",
    ),
    (
        "kill",
        "kill --user bob --gpu 5 --batch",
        "all that bob has on GPU 5",
    ),
    (
        "kill",
        "kill 48213 --force --timeout-secs 30",
        "SIGKILL for what is there 30 s after SIGTERM",
    ),
    (
        "reset",
        "reset --gpu 3 --dry-run",
        "what stands in the way of a reset",
    ),
    ("reset", "reset --gpu 3 --force", "ends who holds it first"),
    (
        "audit",
        "audit --user bob --since \"2 days ago\"",
        "what bob held, sample by sample",
    ),
    (
        "audit",
        "audit --summary",
        "what a week comes to, by person and program",
    ),
    (
        "audit",
        "audit --weekly -o csv",
        "the last eight weeks, a line each",
    ),
    (
        "audit actions",
        "audit actions --kind kill,reset --since 7d",
        "who was ended and reset in a week, and by whom",
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
        "what bob broke, and what came of it",
    ),
    (
        "guard snooze",
        "guard snooze 48213",
        "more time for the job of that process",
    ),
    (
        "guard test",
        "guard test --rules draft.toml",
        "who breaks these rules now",
    ),
    (
        "guard replay",
        "guard replay --rules draft.toml --since 7d",
        "whom they would have warned and ended in a week",
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
        "a file with every key, to begin with",
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
        "what that would change, and whom it would end first",
    ),
    (
        "guard enforce",
        "guard enforce --dry-run",
        "what that would change, and whom it would end first",
    ),
    (
        "guard toggle-dry-run",
        "guard toggle-dry-run",
        "from a dry run to the mode it rehearses, or back",
    ),
    (
        "guard set",
        "guard set enforcement.grace_period_seconds 600",
        "ten minutes from the first warning to the end",
    ),
    (
        "guard user set",
        "guard user set bob --memory-limit 40 --idle-limit 120",
        "40 GiB, and two hours of doing nothing",
    ),
    (
        "guard user set",
        "guard user set bob --memory-limit \"\"",
        "no limit of his own any more",
    ),
    (
        "guard user remove",
        "guard user remove bob",
        "what holds for everybody holds for him again",
    ),
    (
        "guard group set",
        "guard group set ml --members alice,bob --memory-limit 200",
        "200 GiB for both together",
    ),
    (
        "guard group remove",
        "guard group remove ml",
        "its members are judged one by one again",
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
        "tell whoever is taken for a miner",
    ),
    (
        "guard rule remove",
        "guard rule remove idle",
        "nobody is judged by it any more",
    ),
    (
        "guard export",
        "guard export rules.json",
        "in the form that its name says",
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
        "a file with every key, to begin with",
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
        "nobody looks for bob's hashcat any more",
    ),
    (
        "rogue disallow",
        "rogue disallow process hashcat@bob",
        "it is looked for again",
    ),
    (
        "rogue export",
        "rogue export rogue.yaml",
        "in the form that its name says",
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

    /// What a shell makes of a line; of a redirection nothing.
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
    fn every_example_is_right_and_is_of_the_command_that_it_stands_with() {
        for (of, line, does) in EXAMPLES {
            let typed = std::iter::once("gpukillctl".to_owned()).chain(words(line));
            let parsed = Cli::try_parse_from(typed);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            assert!(format!("{line} ").starts_with(&format!("{of} ")), "{line}");
            assert!(!does.is_empty() && !does.ends_with('.'), "{does}");
        }
    }

    /// The names of every command that does something by itself.
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
    fn every_command_that_does_something_has_an_example_and_shows_it() {
        let command = command();
        let have: BTreeSet<String> = EXAMPLES.iter().map(|(of, ..)| (*of).to_owned()).collect();
        assert_eq!(leaves(&command, ""), have);
        for path in have {
            let mut command = command.clone();
            for name in path.split(' ') {
                command = command.find_subcommand(name).unwrap().clone();
            }
            // Not wrapped, however wide the terminal is.
            let help = command.term_width(0).render_help().to_string();
            for example in examples(&path.split(' ').collect::<Vec<_>>()) {
                let shown = format!("\n  gpukillctl {}\n      {}", example.line, example.does);
                assert!(help.contains(&shown), "{help}");
            }
        }
    }
}
