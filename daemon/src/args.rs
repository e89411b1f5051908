//! The command line of gpukilld.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Monitors the GPUs of this host and serves gpukillctl.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpukilld", version, about)]
pub struct Args {
    /// Read settings from FILE [default: /etc/gpukill/gpukilld.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check the settings, and exit
    #[arg(long)]
    pub check_config: bool,

    /// Print a commented file with all settings and their defaults, and exit
    #[arg(long, conflicts_with = "check_config")]
    pub print_default_config: bool,

    /// Log level; RUST_LOG takes precedence if it is set
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,

    /// Run unprivileged, for the user who starts it
    #[arg(long)]
    pub user: bool,

    /// Read or try rules for the daemon; only gpukilld itself uses this
    #[arg(long, hide = true)]
    pub evaluate: bool,

    /// The command to run instead of the daemon.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command that runs instead of the daemon.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Replace the store with a backup; only as root and while gpukilld is stopped
    Restore(RestoreArgs),
}

/// The arguments of `restore`.
#[derive(Debug, Clone, clap::Args)]
pub struct RestoreArgs {
    /// A file owned by root, written by `gpukillctl audit backup`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print what would be replaced, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
