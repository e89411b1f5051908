//! The command line of gpukill-gateway.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Serves the data of gpukilld over HTTP: REST, live events and metrics.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "gpukill-gateway",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    /// A command beside serving.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Read settings from FILE [default: /etc/gpukill/gateway.toml, if it exists]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Listen on ADDRESS instead of the addresses of the settings: 127.0.0.1:9836, or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,

    /// The socket of gpukilld, instead of that of the settings
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,

    /// Check the settings, and exit
    #[arg(long, global = true)]
    pub check_config: bool,

    /// Print a commented file with all settings and their defaults, and exit
    #[arg(long, conflicts_with = "check_config")]
    pub print_default_config: bool,
}

/// A command that serves nothing.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Push the metrics to the server of [otlp] in the settings, by OTLP over HTTP
    Notify,
}
