//! The command line of gpukill-gateway.

use clap::{Args as ClapArgs, Parser, Subcommand};
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

    /// Serve one person, with their rights: act too, print an address with a token that every
    /// request needs, and end with the terminal or after 30 minutes without use
    #[arg(long, conflicts_with_all = ["config", "listen", "check_config", "print_default_config"])]
    pub personal: bool,

    /// The port of a personal gateway [default: a free one]
    #[arg(long, value_name = "PORT", requires = "personal")]
    pub port: Option<u16>,

    /// Open the address of a personal gateway in a browser
    #[arg(long, requires = "personal")]
    pub open: bool,

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

    /// Make tokens for callers
    #[command(subcommand)]
    Token(TokenCommand),
}

/// A command about tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Print a new token to standard error, once, and the lines to add to /etc/gpukill/tokens.toml
    /// to standard output
    New(NewToken),
}

/// `token new`
#[derive(Debug, Clone, ClapArgs)]
pub struct NewToken {
    /// The name of the token in the file: who or what uses it
    pub name: String,

    /// What the token is for: look for everything, metrics for /metrics
    #[arg(long, default_value = "look")]
    pub scope: String,

    /// The time at which it stops to be valid: 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
}
