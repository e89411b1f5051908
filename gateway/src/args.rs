//! The command line of gpukill-gateway.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Serves the data of gpukilld over HTTP: REST, live events and metrics.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpukill-gateway", version, about)]
pub struct Args {
    /// What to run instead of the server
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

/// A command other than the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Push the metrics to a server by OTLP over HTTP, and listen nowhere
    Notify,
}
