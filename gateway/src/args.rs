//! The command line of gpukill-gateway.

use clap::Parser;
use std::path::PathBuf;

/// Serves the data of gpukilld over HTTP: REST, live events and metrics.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpukill-gateway", version, about)]
pub struct Args {
    /// Read settings from FILE [default: /etc/gpukill/gateway.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen on ADDRESS instead of the addresses of the settings: 127.0.0.1:9836, or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,

    /// The socket of gpukilld, instead of that of the settings
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Check the settings, and exit
    #[arg(long)]
    pub check_config: bool,

    /// Print a commented file with all settings and their defaults, and exit
    #[arg(long, conflicts_with = "check_config")]
    pub print_default_config: bool,
}
