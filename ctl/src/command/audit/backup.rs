//! `audit backup`: lets the daemon copy the store and downloads the copy into a file.

use super::open_connection;
use crate::args::Backup;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::audit::export::atomic_file::{AtomicFile, IfExists};
use crate::output::audit::export::{backup_message, download_progress};
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use gpukill_proto::service::MAX_PART_BYTES;
use std::time::Duration;

/// Timeout for making the copy. Copying 200 MB takes a few seconds on a disk.
const COPY_TIMEOUT: Duration = Duration::from_secs(110);

/// The copy holds what everybody ran, so only its owner may read it.
const FILE_MODE: u32 = 0o600;

/// Downloads the copy, whole or not at all.
pub(super) fn run(wanted: &Backup, settings: &Settings) -> Result<Exit, Error> {
    if wanted.file.as_os_str() == "-" {
        // `-` would be standard output, where a copy cannot be whole or not at all.
        return Err(Error::Usage("a backup needs a file: - is none".into()));
    }
    let mut file = AtomicFile::create(&wanted.file, IfExists::from_force(wanted.force), FILE_MODE)?;
    let daemon = open_connection(settings)?;
    let mut line = Spinner::waiting_for("a copy of the store", settings);
    let timeout = RequestTimeout::starting_now(settings.timeout.max(COPY_TIMEOUT));
    let copy = call!(daemon, timeout, &mut line, Backup {})?;
    let mut offset = 0;
    while offset < copy.bytes {
        let timeout = settings.request_timeout();
        let part = call!(
            daemon,
            timeout,
            &mut line,
            PartOfBackup {
                copy: copy.id,
                offset
            }
        )?;
        let left = copy.bytes - offset;
        let length = part.len() as u64;
        if part.is_empty() || part.len() > MAX_PART_BYTES || length > left {
            return Err(Error::ConnectionLost(
                "its parts do not have the stated length".into(),
            ));
        }
        file.write(&part)?;
        offset += length;
        if let Some(line) = &mut line {
            line.set_text(download_progress(offset, copy.bytes, line.symbols()));
        }
    }
    file.finish()?;
    drop(line);
    print(&backup_message(copy.bytes, &wanted.file))?;
    Ok(Exit::Done)
}
