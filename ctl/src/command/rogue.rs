//! `rogue`: who may be up to no good.

mod scan;

use super::{connect, now};
use crate::args::{Rogue, RogueCommand};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;

/// Does what is asked of the watch for rogues.
pub(crate) async fn run(
    wanted: &Rogue,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    match &wanted.command {
        RogueCommand::Scan(wanted) => scan::run(wanted, settings, messages).await,
    }
}
