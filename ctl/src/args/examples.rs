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
    let own = all_examples().filter(|(names, _)| names.split(' ').eq(path.iter().copied()));
    own.map(|(_, example)| example).collect()
}

/// All examples, each with the names of its command.
fn all_examples() -> impl Iterator<Item = (&'static str, Example)> {
    let mut lines = EXAMPLES.lines().skip(1).peekable();
    let mut names = "";
    std::iter::from_fn(move || {
        names = lines.next_if(|it| !it.starts_with(' ')).unwrap_or(names);
        let (line, effect) = (lines.next()?.trim_start(), lines.next()?.trim_start());
        Some((names, Example { line, effect }))
    })
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
    if path.is_empty() {
        return command;
    }
    let lines = shown_examples(path)
        .iter()
        .map(|Example { line, effect: does }| format!("  gpukillctl {line}\n      {does}\n"))
        .collect::<String>();
    let long = format!("Examples:\n{lines}\n{GLOBALS_HINT}");
    let is_rare = |it: &clap::Arg| it.is_hide_short_help_set() && !it.is_hide_set();
    if !command.get_arguments().any(is_rare) {
        return command.after_help(long);
    }
    let path = path.join(" ");
    let short = format!("{long}\nAll options of this command: gpukillctl {path} --help");
    command.after_help(short).after_long_help(long)
}

/// Shown below the help of each command.
const GLOBALS_HINT: &str = "Options of every command: gpukillctl --help";

/// The examples in the help of a command: its own, or one of each of two subcommands.
fn shown_examples(path: &[&str]) -> Vec<Example> {
    let own = examples(path);
    if !own.is_empty() {
        return own;
    }
    let below = all_examples().filter(|(names, _)| {
        let mut names = names.split(' ');
        path.iter().all(|name| names.next() == Some(name))
    });
    let mut last = "";
    below
        .filter(|(names, _)| std::mem::replace(&mut last, names) != *names)
        .take(2)
        .map(|(_, example)| example)
        .collect()
}

/// The names of each command, and indented below them the arguments of each of its examples and
/// what they do. It is one text, because the loader would relocate the texts of a table at each
/// start.
const EXAMPLES: &str = "
list
    list
    every GPU, and its biggest process
    list --details --watch
    every process, redrawn at each poll
    list --details --mine --sort memory --columns +cpu,host_mem
    your processes, the greatest first, with two more columns
    list --details --sort idle
    which processes hold memory that could be free, the longest idle first
    list --gpu 0-3 --user bob -o json
    bob's processes on four GPUs, as JSON for a program
status
    status
    what works, what failed since when, and what you may do
    status --report
    the facts for a bug report, without names
holders
    holders --gpu 6
    which processes have GPU 6 open and hold its unattributed memory
    holders
    every GPU that processes have open
explain
    explain 48213
    its owner, memory and rules, and who may end it
    explain --pid 48213 -o json
    the same, for a program
kill
    kill 48213 --scope job --dry-run
    which processes that would end; without --dry-run it ends them
    kill --user bob --gpu 5 --batch
    all of bob's processes on GPU 5
    kill 48213 --force --timeout-secs 30
    SIGKILL for processes that survive SIGTERM for 30 s
reset
    reset --gpu 3 --dry-run
    what prevents a reset
    reset --gpu 3 --force
    ends the processes that hold it first
audit
    audit --user bob --since \"2 days ago\"
    the jobs of bob, and how each ended
    audit --summary
    the summary of a week, by person and program
    audit --summary --group ml --since 2026-11 -o csv
    the GPU-hours of each member of a group since the first of a month
    audit --weekly -o csv
    the last eight weeks, a line each
audit series
    audit series --gpu 5 --since 7d --plot
    a chart of the utilization of a GPU in a week
    audit series --by user --buckets 24 -o csv
    the GPUs that each user held, in buckets of an hour
audit actions
    audit actions --kind kill,reset --since 7d
    the kills and resets of a week, and who asked for them
    audit actions --user guard --since monday
    the jobs that the guard ended this week
audit timeline
    audit timeline --pid 51002 --since 7d
    what happened to a process, and why it ended
    audit timeline --gpu 5 --since 00:00
    what happened on a GPU today
audit report
    audit report --weekly
    last week, from Monday to Sunday
    audit report --since 30d
    the last thirty days
audit export
    audit export week.parquet --since 7d
    a week, for pandas or DuckDB
    audit export - --format jsonl --user bob
    bob's last day, to standard output
audit archive
    audit archive /srv/gpu-archive
    every day that is over and not archived yet
    audit archive /srv/gpu-archive --verify
    the same, and a check of every file in the archive
audit backup
    audit backup gpukill.tar
    a copy of the whole store
    audit backup gpukill.tar --force
    replaces an older copy
audit prune
    audit prune --before 90d --dry-run
    how much is older than that
    audit prune --before 90d --yes
    deletes it without asking
    audit prune --archived /srv/gpu-archive
    deletes the days that are in that archive
guard status
    guard status
    the mode, the rules in force, and what was done today
    guard status -o json
    the same, for a program
guard violations
    guard violations --user bob --since 2d
    bob's violations, and what the guard decided
    guard violations --limit 0 -o json
    all of the last week, for a program
guard snooze
    guard snooze 48213
    postpone the end of that process's job
    guard snooze 48213 --dry-run
    until when that would postpone it
guard test
    guard test --rules draft.toml
    who breaks these rules now
    guard test
    who breaks the rules in force now
guard replay
    guard replay --rules draft.toml --since 7d
    who would have been warned and ended in a week
    guard replay --since 30d -o json
    a month of the rules in force, for a program
guard check
    guard check draft.toml
    every mistake in it
    guard check
    every mistake in the rules of this host
guard config
    guard config
    the file as it is
    guard config > draft.toml
    a copy to edit
guard reference
    guard reference > draft.toml
    a file with every key, to start from
    guard reference
    every key, with its default or an example
guard enable
    guard enable
    in the mode that is set
    guard enable --dry-run
    what that would change
guard disable
    guard disable
    until guard enable
    guard disable --dry-run
    what that would change
guard dry-run
    guard dry-run
    nobody is warned or ended from now on
    guard dry-run --dry-run
    what that would change
guard soft
    guard soft --dry-run
    what that would change, and which jobs it would end first
    guard soft
    a warning first, the end after the grace period
guard enforce
    guard enforce --dry-run
    what that would change, and which jobs it would end first
    guard enforce
    the end without a warning
guard toggle-dry-run
    guard toggle-dry-run
    from a dry run to the mode that it simulates, or back
    guard toggle-dry-run --dry-run
    what that would change
guard set
    guard set enforcement.grace_period_seconds 600
    ten minutes from the first warning to the end
    guard set enforcement.grace_period_seconds \"\"
    the default grace period again
guard user set
    guard user set bob --memory-limit 40 --idle-limit 120
    40 GiB, and two idle hours
    guard user set bob --memory-limit \"\"
    no limit of his own any more
guard user remove
    guard user remove bob
    the default limits apply to him again
    guard user remove bob --dry-run
    what that would change
guard group set
    guard group set ml --members alice,bob --memory-limit 200
    200 GiB for both together
    guard group set ml --memory-limit \"\"
    no common limit of memory any more
guard group remove
    guard group remove ml
    its members have no common limit any more
    guard group remove ml --dry-run
    what that would change
guard gpu set
    guard gpu set 0 --allowed-users alice --reserved-memory 8
    GPU 0 for alice, and 8 GiB of it stay free
    guard gpu set 0 --reserved-memory 16 --dry-run
    what a larger reserve would change
guard gpu remove
    guard gpu remove 0
    GPU 0 for everybody again
    guard gpu remove 0 --dry-run
    what that would change
guard time set
    guard time set day --from 08:00 --to 18:00 --days mon-fri --memory-limit 20
    20 GiB a person in working hours
    guard time set day --memory-limit 40 --dry-run
    what another limit would change
guard time remove
    guard time remove day
    all hours are the same again
    guard time remove day --dry-run
    what that would change
guard rule set
    guard rule set idle --idle-limit 120 --idle-min-memory 8
    two hours idle with 8 GiB or more
    guard rule set miners --rogue-risk high --action warn
    warn the owners of suspected miners
guard rule remove
    guard rule remove idle
    the rule no longer applies
    guard rule remove idle --dry-run
    what that would change
guard export
    guard export rules.json
    in the format of the file's extension
    guard export --format yaml
    as YAML, to standard output
guard import
    guard import draft.toml
    shows what changes, and asks
    guard import rules.json --dry-run
    only shows what changes
rogue scan
    rogue scan --hours 168
    all of a week
    rogue scan -o json
    the last day, for a program
rogue config
    rogue config
    the file as it is
    rogue config > draft.toml
    a copy to edit
rogue reference
    rogue reference > draft.toml
    a file with every key, to start from
    rogue reference
    every key, with its default
rogue check
    rogue check draft.toml
    every mistake in it
    rogue check
    every mistake in the rules of this host
rogue set
    rogue set detection.max_memory_usage_gb 20
    over 20 GiB is too much
    rogue set detection.max_memory_usage_gb \"\"
    the default again
rogue allow
    rogue allow process hashcat@bob
    bob's hashcat is exempt from detection
    rogue allow user bob --dry-run
    what that would change
rogue disallow
    rogue disallow process hashcat@bob
    it is detected again
    rogue disallow user bob --dry-run
    what that would change
rogue export
    rogue export rogue.yaml
    in the format of the file's extension
    rogue export --format json
    as JSON, to standard output
rogue import
    rogue import draft.toml
    shows what changes, and asks
    rogue import rogue.yaml --dry-run
    only shows what changes
quiesce
    quiesce --minutes 30
    time to update the driver
    quiesce
    ten minutes
resume
    resume
    read it again now
    resume --request-timeout 60
    waits up to a minute for the daemon
forget
    forget --gpu 2
    a GPU that was taken out for good
    forget --gpu GPU-8f3c
    the same, by the beginning of its UUID
web
    web
    prints the address of your own API, with its token; until Ctrl-C
web
    web --port 9840 --open
    at this port, and in a browser
completions
    completions bash > ~/.local/share/bash-completion/completions/gpukillctl
    for yourself, where no package has them
    completions fish > ~/.config/fish/completions/gpukillctl.fish
    the same, for fish
";

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
        for (of, Example { line, effect }) in all_examples() {
            let typed = std::iter::once("gpukillctl".to_owned()).chain(words(line));
            let parsed = Cli::try_parse_from(typed);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            assert!(format!("{line} ").starts_with(&format!("{of} ")), "{line}");
            assert!(!effect.is_empty() && !effect.ends_with('.'), "{effect}");
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
        let have: BTreeSet<String> = all_examples().map(|(of, _)| of.to_owned()).collect();
        assert_eq!(leaves(&command, ""), have);
        for path in have {
            let mut command = command.clone();
            for name in path.split(' ') {
                command = command.find_subcommand(name).unwrap().clone();
            }
            // No wrapping, whatever the width of the terminal.
            let help = command.term_width(0).render_help().to_string();
            let examples = examples(&path.split(' ').collect::<Vec<_>>());
            assert!(examples.len() >= 2, "{path}");
            for example in examples {
                let shown = format!("\n  gpukillctl {}\n      {}", example.line, example.effect);
                assert!(help.contains(&shown), "{help}");
            }
        }
    }
}
