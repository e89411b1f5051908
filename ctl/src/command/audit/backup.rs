//! `audit backup`: has a copy of the store made, and fetches it into a file.

use super::connect;
use crate::args::Backup;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::export::partial::{IfThere, Partial};
use crate::output::export::{fetched, progress};
use crate::output::message::Messages;
use crate::output::passing::Passing;
use crate::output::print;
use crate::settings::Settings;
use gpukill_proto::service::LONGEST_PART;
use std::time::Duration;

/// How long the copy may take to be made: 200 MB take a few seconds on a disk.
const COPYING: Duration = Duration::from_secs(110);

/// It holds what everybody ran: for nobody else.
const MODE: u32 = 0o600;

/// Fetches it, whole or not at all.
pub(super) fn run(
    wanted: &Backup,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    if wanted.file.as_os_str() == "-" {
        // Elsewhere that is standard output, where it could not be whole or not at all.
        return Err(Failure::Usage("a backup needs a file: - is none".into()));
    }
    let mut file = Partial::create(&wanted.file, IfThere::with(wanted.force), MODE)?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let mut line = Passing::on_stderr(settings);
    let patience = Patience::lasting(settings.timeout.max(COPYING));
    let copy = daemon.backup(patience)?;
    let mut offset = 0;
    while offset < copy.bytes {
        let patience = Patience::lasting(settings.timeout);
        let part = daemon.part_of_backup(copy.id, offset, patience)?;
        let left = copy.bytes - offset;
        let length = part.len() as u64;
        if part.is_empty() || part.len() > LONGEST_PART || length > left {
            return Err(Failure::Broken(
                "its parts are not as long as it said".into(),
            ));
        }
        file.write(&part)?;
        offset += length;
        if let Some(line) = &mut line {
            line.say(progress(offset, copy.bytes, line.symbols()));
        }
    }
    file.finish()?;
    drop(line);
    print(&fetched(copy.bytes, &wanted.file))?;
    Ok(Exit::Done)
}
