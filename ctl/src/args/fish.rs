//! Completions for fish at any depth. The completions of clap_complete end after two levels of
//! commands.

use clap::{Arg, Command, ValueHint};
use std::fmt::Write as _;

/// The completion script of a program, from what its help shows.
pub(super) fn script(command: &Command) -> String {
    let mut command = command.clone();
    command.build();
    let program = command.get_name().to_owned();
    let mut nodes = Vec::new();
    collect_commands(&command, &[], &mut nodes);
    let paths: Vec<String> = nodes.iter().map(|(path, _)| quote(path)).collect();
    let mut script = command_test_function(&program, &paths.join(" "));
    for (path, node) in &nodes {
        write_completions(&mut script, &program, path, node);
    }
    script
}

/// Collects a command and all its subcommands, each with its names after the program's.
fn collect_commands<'a>(
    command: &'a Command,
    above: &[&str],
    nodes: &mut Vec<(String, &'a Command)>,
) {
    nodes.push((above.join(" "), command));
    for below in visible_subcommands(command) {
        let path = [above, &[below.get_name()]].concat();
        collect_commands(below, &path, nodes);
    }
}

/// The direct subcommands. clap's own `help` is left out, because `--help` does the same.
fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let below = command.get_subcommands();
    below.filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

/// A fish function that tests whether the typed words lead to one command. It follows the words
/// that name a subcommand and takes all other words for values.
fn command_test_function(program: &str, paths: &str) -> String {
    format!(
        "function __{program}_at\n    \
             set -l path ''\n    \
             for word in (commandline -opc)[2..-1]\n        \
                 set -l on (string trim -- \"$path $word\")\n        \
                 contains -- $on {paths}\n        \
                 and set path $on\n    \
             end\n    \
             test \"$path\" = \"$argv\"\n\
         end\n\n"
    )
}

/// Writes the completions that can come next after one command.
fn write_completions(script: &mut String, program: &str, path: &str, command: &Command) {
    let begin = format!(
        "complete -c {program} -n {}",
        quote(&format!("__{program}_at {path}"))
    );
    let shown_arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        shown_arguments.partition(|it| it.is_positional());
    if !positional.iter().any(|it| is_path(it)) {
        push_line(script, &format!("{begin} -f"));
    }
    for below in visible_subcommands(command) {
        let about = below.get_about().map(ToString::to_string);
        let (name, about) = (below.get_name(), first_line(&about.unwrap_or_default()));
        push_line(script, &format!("{begin} -a {name} -d {}", quote(&about)));
    }
    for argument in positional {
        let values = value_list(argument);
        if !values.is_empty() {
            push_line(script, &format!("{begin} -a {}", quote(&values)));
        }
    }
    for option in options {
        push_line(script, &format!("{begin}{}", option_flags(option)));
    }
}

/// The options of fish's `complete` for one option: ` -s o -l output -r -f -a 'table\t…' -d
/// 'The form'`
fn option_flags(option: &Arg) -> String {
    let mut flags = String::new();
    let long = option.get_long().into_iter();
    let aliases = option.get_visible_aliases().unwrap_or_default();
    // Writing to a `String` cannot fail.
    if let Some(short) = option.get_short() {
        let _ = write!(flags, " -s {short}");
    }
    for long in long.chain(aliases) {
        let _ = write!(flags, " -l {long}");
    }
    let takes = option.get_num_args();
    if takes.is_some_and(|it| it.min_values() > 0) {
        let values = value_list(option);
        match (is_path(option), values.is_empty()) {
            (true, _) => flags.push_str(" -r -F"),
            (false, true) => flags.push_str(" -x"),
            (false, false) => {
                let _ = write!(flags, " -x -a {}", quote(&values));
            }
        }
    }
    let help = option.get_help().map(ToString::to_string);
    let help = first_line(&help.unwrap_or_default());
    let _ = write!(flags, " -d {}", quote(&help));
    flags
}

/// The possible values, one a line, each with its help. fish splits them into words again.
fn value_list(argument: &Arg) -> String {
    let takes = argument.get_num_args().is_some_and(|it| it.takes_values());
    let values = argument.get_possible_values().into_iter();
    let values = values.filter(|it| takes && !it.is_hide_set()).map(|value| {
        let help = value.get_help().map(ToString::to_string);
        match help {
            Some(help) => format!("{}\t{}", value.get_name(), quote(&first_line(&help))),
            None => value.get_name().to_owned(),
        }
    });
    values.collect::<Vec<_>>().join("\n")
}

fn is_path(argument: &Arg) -> bool {
    match argument.get_value_hint() {
        ValueHint::AnyPath
        | ValueHint::FilePath
        | ValueHint::DirPath
        | ValueHint::ExecutablePath => true,
        // The other hints are not paths, and clap may add more.
        _ => false,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Quotes a text as one word of fish.
fn quote(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{text}'")
}

fn push_line(script: &mut String, line: &str) {
    script.push_str(line);
    script.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::builder::PossibleValue;

    #[test]
    fn commands_complete_their_own_visible_arguments() {
        let deep = Command::new("set")
            .about("it's set")
            .arg(
                Arg::new("limit")
                    .long("limit")
                    .short('l')
                    .help("a\\b\nmore"),
            )
            .arg(Arg::new("file").value_hint(ValueHint::FilePath));
        let values = [
            PossibleValue::new("on").help("it's on"),
            PossibleValue::new("off"),
        ];
        let command = Command::new("prog")
            .disable_help_flag(true)
            .arg(
                Arg::new("when")
                    .long("when")
                    .value_parser(values)
                    .global(true),
            )
            .arg(Arg::new("secret").long("secret").hide(true))
            .subcommand(Command::new("user").about("one").subcommand(deep))
            .subcommand(Command::new("covert").hide(true));
        let script = script(&command);
        let lines: Vec<&str> = script
            .lines()
            .skip_while(|it| *it != "end")
            .skip(2)
            .collect();
        let when = "-l when -x -a 'on\t\\'it\\\\\\'s on\\'";
        assert_eq!(
            lines.join("\n"),
            format!(
                "complete -c prog -n '__prog_at ' -f\n\
                 complete -c prog -n '__prog_at ' -a user -d 'one'\n\
                 complete -c prog -n '__prog_at ' {when}\noff' -d ''\n\
                 complete -c prog -n '__prog_at user' -f\n\
                 complete -c prog -n '__prog_at user' -a set -d 'it\\'s set'\n\
                 complete -c prog -n '__prog_at user' {when}\noff' -d ''\n\
                 complete -c prog -n '__prog_at user set' -s l -l limit -x -d 'a\\\\b'\n\
                 complete -c prog -n '__prog_at user set' {when}\noff' -d ''"
            )
        );
        assert!(
            script.contains("contains -- $on '' 'user' 'user set'\n"),
            "{script}"
        );
    }
}
