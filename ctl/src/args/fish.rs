//! Completions for fish at any depth: those of clap_complete end below two commands.

use clap::{Arg, Command, ValueHint};
use std::fmt::Write as _;

/// The script for a program, of what its help shows.
pub(super) fn script(command: &Command) -> String {
    let mut command = command.clone();
    command.build();
    let program = command.get_name().to_owned();
    let mut nodes = Vec::new();
    collect(&command, &[], &mut nodes);
    let paths: Vec<String> = nodes.iter().map(|(path, _)| quoted(path)).collect();
    let mut script = walker(&program, &paths.join(" "));
    for (path, node) in &nodes {
        complete(&mut script, &program, path, node);
    }
    script
}

/// Every command below, with its names behind the program's.
fn collect<'a>(command: &'a Command, above: &[&str], nodes: &mut Vec<(String, &'a Command)>) {
    nodes.push((above.join(" "), command));
    for below in shown(command) {
        let path = [above, &[below.get_name()]].concat();
        collect(below, &path, nodes);
    }
}

/// The commands right below it. That of clap's own for help is left out: `--help` says it.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let below = command.get_subcommands();
    below.filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

/// The function that says whether what is typed is at one command: it follows the words
/// that lead on to another, and takes all others for values.
fn walker(program: &str, paths: &str) -> String {
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

/// What can stand next at one command.
fn complete(script: &mut String, program: &str, path: &str, command: &Command) {
    let begin = format!(
        "complete -c {program} -n {}",
        quoted(&format!("__{program}_at {path}"))
    );
    let shown_arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        shown_arguments.partition(|it| it.is_positional());
    if !positional.iter().any(|it| is_path(it)) {
        line(script, &format!("{begin} -f"));
    }
    for below in shown(command) {
        let about = below.get_about().map(ToString::to_string);
        let (name, about) = (below.get_name(), first_line(&about.unwrap_or_default()));
        line(script, &format!("{begin} -a {name} -d {}", quoted(&about)));
    }
    for argument in positional {
        let values = values(argument);
        if !values.is_empty() {
            line(script, &format!("{begin} -a {}", quoted(&values)));
        }
    }
    for option in options {
        line(script, &format!("{begin}{}", said(option)));
    }
}

/// ` -s o -l output -r -f -a 'table\t…' -d 'The form'`
fn said(option: &Arg) -> String {
    let mut said = String::new();
    let long = option.get_long().into_iter();
    let aliases = option.get_visible_aliases().unwrap_or_default();
    // Writing to a text cannot fail.
    if let Some(short) = option.get_short() {
        let _ = write!(said, " -s {short}");
    }
    for long in long.chain(aliases) {
        let _ = write!(said, " -l {long}");
    }
    let takes = option.get_num_args();
    if takes.is_some_and(|it| it.min_values() > 0) {
        let values = values(option);
        match (is_path(option), values.is_empty()) {
            (true, _) => said.push_str(" -r -F"),
            (false, true) => said.push_str(" -x"),
            (false, false) => {
                let _ = write!(said, " -x -a {}", quoted(&values));
            }
        }
    }
    let help = option.get_help().map(ToString::to_string);
    let help = first_line(&help.unwrap_or_default());
    let _ = write!(said, " -d {}", quoted(&help));
    said
}

/// The values that can be taken, one a line, each with what it is. fish reads them as
/// words once more.
fn values(argument: &Arg) -> String {
    let takes = argument.get_num_args().is_some_and(|it| it.takes_values());
    let values = argument.get_possible_values().into_iter();
    let values = values.filter(|it| takes && !it.is_hide_set()).map(|value| {
        let help = value.get_help().map(ToString::to_string);
        match help {
            Some(help) => format!("{}\t{}", value.get_name(), quoted(&first_line(&help))),
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
        // It has many kinds more, of which none is a path.
        _ => false,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// As one word of fish, whatever is in it.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{text}'")
}

fn line(script: &mut String, line: &str) {
    script.push_str(line);
    script.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::builder::PossibleValue;

    #[test]
    fn each_command_completes_what_is_its_own_and_nothing_hidden() {
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
