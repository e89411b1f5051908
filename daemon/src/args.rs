//! The command line of gpukilld.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Knows who uses the GPUs of this box, and tells gpukillctl.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpukilld", version, about)]
pub struct Args {
    /// Read settings from FILE [default: /etc/gpukill/gpukilld.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say whether the settings are valid, and exit
    #[arg(long)]
    pub check_config: bool,

    /// Print a commented file with all settings and their defaults, and exit
    #[arg(long, conflicts_with = "check_config")]
    pub print_default_config: bool,

    /// How much is logged; RUST_LOG wins where it is set
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,

    /// Run without privilege for the one person who starts it
    #[arg(long)]
    pub user: bool,

    /// Read or try rules for the daemon; only gpukilld itself does so
    #[arg(long, hide = true)]
    pub evaluate: bool,

    /// What is done instead of running the daemon.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What is done instead of running the daemon.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Replace the store by a backup, as root and while gpukilld is stopped
    Restore(Restore),
}

/// `restore`
#[derive(Debug, Clone, clap::Args)]
pub struct Restore {
    /// A file of root's, as `gpukillctl audit backup` made it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Only print what would replace what
    #[arg(long)]
    pub dry_run: bool,
}
