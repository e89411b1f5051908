//! Completions for bash, zsh and fish, without hidden parts.

use crate::{client, daemon, gateway};
use clap::Command;
use clap_complete::{Generator as _, Shell};
use gpukillctl::args::completions;
use std::path::PathBuf;

/// The shells for which a package has completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Every file, with the name that its shell expects.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    let programs = [client::command(), daemon::command(), gateway::command()];
    let mut files = Vec::new();
    for program in programs {
        files.extend(SHELLS.map(|shell| file(shell, &program)));
    }
    files
}

fn file(shell: Shell, program: &Command) -> (PathBuf, String) {
    let name = program.get_name();
    let path = PathBuf::from("completions").join(shell.file_name(name));
    (path, completions(shell, program))
}
