//! `audit restore`: sends a copy of the store, says what it would take the place of,
//! asks, and has it put there.

use super::{confirm, connect};
use crate::args::Restore;
use crate::connect::{Daemon, Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::output::export::progress;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::passing::Passing;
use crate::output::print_lines;
use crate::output::prune::Tense;
use crate::output::restore::{QUESTION, lines, name};
use crate::settings::Settings;
use gpukill_proto::audit::CopyId;
use gpukill_proto::service::LONGEST_PART;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

/// How long it may take until a copy is looked over and in place.
const RESTORING: Duration = Duration::from_secs(110);

/// Does it, or says why not.
pub(super) async fn run(
    wanted: &Restore,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    if wanted.file.as_os_str() == "-" {
        return Err(Failure::Usage("a restore needs a file: - is none".into()));
    }
    let (file, bytes) = opened(&wanted.file)?;
    let look = Look::of_stdout(settings);
    let patience = || Patience::lasting(settings.timeout.max(RESTORING));
    if wanted.dry_run || !wanted.yes {
        let (daemon, copy) = send(wanted, &file, bytes, settings, messages).await?;
        let planned = daemon.restore(copy, Doing::Saying, patience()).await?;
        print_lines(&lines(&planned, Tense::Would, &look), &look)?;
        if wanted.dry_run {
            return Ok(Exit::Done);
        }
        // The daemon hangs up on who is silent, and a person may take their time: what
        // was sent goes with the connection.
        drop(daemon);
        confirm::must_agree(QUESTION, "nothing was restored")?;
    }
    let (daemon, copy) = send(wanted, &file, bytes, settings, messages).await?;
    let report = daemon.restore(copy, Doing::Doing, patience()).await?;
    print_lines(&lines(&report, Tense::Done, &look), &look)?;
    Ok(Exit::Done)
}

/// The file, and how long it is.
fn opened(path: &Path) -> Result<(File, u64), Failure> {
    let cannot = |why: String| Failure::NotDone {
        what: format!("cannot read {}: {why}", name(path)),
        hint: None,
        exit: Exit::Failed,
    };
    // A pipe would not open before somebody writes to it.
    let metadata = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
    if !metadata.is_file() {
        return Err(cannot("it is no file".into()));
    }
    let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
    Ok((file, metadata.len()))
}

/// Sends the file over a connection of its own.
async fn send(
    wanted: &Restore,
    file: &File,
    bytes: u64,
    settings: &Settings,
    messages: Messages,
) -> Result<(Daemon, CopyId), Failure> {
    let patience = || Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience(), messages).await?;
    let mut line = Passing::on_stderr(settings);
    let copy = daemon.begin_restore(bytes, patience()).await?;
    let (mut offset, mut part) = (0, vec![0; LONGEST_PART]);
    while offset < bytes {
        let left = usize::try_from(bytes - offset).unwrap_or(LONGEST_PART);
        let part = part.get_mut(..left.min(LONGEST_PART)).unwrap_or_default();
        file.read_exact_at(part, offset).map_err(|error| {
            let what = format!("cannot read {}: {error}", name(&wanted.file));
            Failure::NotDone {
                what,
                hint: None,
                exit: Exit::Failed,
            }
        })?;
        daemon
            .part_of_restore(copy, offset, part, patience())
            .await?;
        offset += part.len() as u64;
        if let Some(line) = &mut line {
            line.say(progress(offset, bytes, line.symbols()));
        }
    }
    Ok((daemon, copy))
}
