//! A copy of a command line without hidden parts, for completions.

use clap::Command;

/// The commands, options and arguments that the help shows. The result is for completions only:
/// it does not parse as the original does.
#[must_use]
pub(super) fn without_hidden(command: &Command) -> Command {
    let shown_arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let shown_commands = command.get_subcommands().filter(|it| !it.is_hide_set());
    let aliases = command.get_visible_aliases();
    let mut shown = Command::new(command.get_name().to_owned())
        .args(shown_arguments.cloned())
        .subcommands(shown_commands.map(without_hidden))
        .visible_aliases(aliases.map(str::to_owned));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command_without_examples;
    use clap::{Arg, ValueEnum as _};

    fn script(shell: clap_complete::Shell, command: &Command) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut without_hidden(command), "prog", &mut script);
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn hidden_parts_are_not_completed() {
        let command = Command::new("prog")
            .arg(Arg::new("seen").long("seen"))
            .arg(Arg::new("unseen").long("secret").hide(true))
            .subcommand(Command::new("known").visible_alias("wellknown"))
            .subcommand(Command::new("covert").hide(true));
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell, &command);
            assert!(script.contains("seen"), "{shell}: {script}");
            assert!(script.contains("wellknown"), "{shell}: {script}");
            assert!(!script.contains("secret"), "{shell}: {script}");
            assert!(!script.contains("covert"), "{shell}: {script}");
        }
    }

    #[test]
    fn policy_completes_only_its_own_options() {
        let mut command = command_without_examples();
        for name in ["guard", "gpu"] {
            command = command.find_subcommand(name).unwrap().clone();
        }
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell, &command);
            assert!(script.contains("reserved-memory"), "{shell}: {script}");
            assert!(!script.contains("slurm-accounts"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_shell_has_completions() {
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell, &command_without_examples());
            assert!(script.contains("toggle-dry-run"), "{shell}");
        }
    }
}
