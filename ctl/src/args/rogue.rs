//! What `rogue` takes.

use super::{StatusFormat, whole};
use clap::{Args, Subcommand};
use gpukill_proto::service::LONGEST_SCAN;

/// `rogue`
#[derive(Debug, Args)]
pub struct Rogue {
    /// What is asked of the watch for rogues.
    #[command(subcommand)]
    pub command: RogueCommand,
}

impl Rogue {
    /// The form that was typed, for whatever is printed.
    #[must_use]
    pub const fn output(&self) -> Option<StatusFormat> {
        match &self.command {
            RogueCommand::Scan(wanted) => wanted.output,
        }
    }
}

/// What is asked of the watch for rogues.
#[derive(Debug, Subcommand)]
pub enum RogueCommand {
    /// Who may be up to no good, by which signs, and what to do about it
    Scan(Scan),
}

/// `rogue scan`
#[derive(Debug, Args)]
pub struct Scan {
    /// Of those too that used a GPU in the last so many hours
    #[arg(long, value_name = "H", default_value_t = 24, value_parser = whole(1..=LONGEST_SCAN, 24))]
    pub hours: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}
