//! A command line without what its help hides: completions know of nothing hidden.

use clap::Command;

/// The commands, options and arguments that the help shows, and no other. It is for
/// completions: it parses nothing as the whole one does.
#[must_use]
pub(super) fn visible(command: &Command) -> Command {
    let shown_arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let shown_commands = command.get_subcommands().filter(|it| !it.is_hide_set());
    let aliases = command.get_visible_aliases();
    let mut shown = Command::new(command.get_name().to_owned())
        .args(shown_arguments.cloned())
        .subcommands(shown_commands.map(visible))
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
    use crate::args::at_once;
    use clap::{Arg, ValueEnum as _};

    fn script(shell: clap_complete::Shell, command: &Command) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible(command), "prog", &mut script);
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn what_is_hidden_is_completed_in_no_shell() {
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
    fn completions_of_a_policy_have_its_own_options_alone() {
        let mut command = at_once();
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
    fn every_shell_has_completions_of_the_whole() {
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell, &at_once());
            assert!(script.contains("toggle-dry-run"), "{shell}");
        }
    }
}
