//! Which part of the store is archived, for `audit prune --archived`.

use super::directory::{ArchiveDirectory, FileCheck};
use super::find_date;
use super::rows::{RowSource, newest_sample, recorded_since};
use crate::archive::ArchiveKind;
use crate::archive::manifest::Manifest;
use crate::connect::Daemon;
use crate::exit::Error;
use crate::output::audit::history::TimeSpan;
use crate::settings::Settings;
use gpukill_proto::units::Timestamp;

/// A row of the store that began before a moment may end this much later: an hour, and the last
/// sample in it takes up to an hour and five minutes. Rows are archived by their end and deleted by
/// their beginning.
const MAX_ROW_SECONDS: i64 = 7_500;

/// The archived part of the store.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct ArchivedHistory {
    /// All rows that began before this time are archived.
    pub(in super::super) until: Timestamp,
    /// The first day that is not archived, and why it is not; `None` for the current day, which is
    /// archived when it is over.
    pub(in super::super) missing: Option<String>,
}

/// Finds the archived part: every day from the store's oldest on, with a file that has its hash.
/// `Err` within is the first day that is missing.
pub(in super::super) fn archived_history(
    daemon: &Daemon,
    directory: &ArchiveDirectory,
    now: Timestamp,
    settings: &Settings,
) -> Result<Result<ArchivedHistory, String>, Error> {
    let manifest = directory.read_manifest()?;
    let oldest = recorded_since(daemon, settings)?.unwrap_or(now);
    let mut until = oldest;
    let missing = loop {
        match next_archived(daemon, directory, &manifest, until, settings)? {
            Ok(next) => until = next,
            Err(missing) => break missing,
        }
    };
    let is_current = find_date(until)? == find_date(now)?;
    Ok(match until > oldest {
        true => Ok(ArchivedHistory {
            until: until.plus_seconds(-MAX_ROW_SECONDS),
            missing: Some(missing).filter(|_| !is_current),
        }),
        false => Err(missing),
    })
}

/// The end of the archived day that contains this moment; or what is missing.
fn next_archived(
    daemon: &Daemon,
    directory: &ArchiveDirectory,
    manifest: &Manifest,
    at: Timestamp,
    settings: &Settings,
) -> Result<Result<Timestamp, String>, Error> {
    let date = find_date(at)?;
    let mut span = TimeSpan {
        since: at,
        until: Timestamp(i64::MAX),
    };
    let mut newest = None;
    for kind in ArchiveKind::ALL.into_iter().filter(|kind| kind.is_pruned()) {
        let name = kind.name();
        let Some(entry) = manifest.covering(kind, at) else {
            return Ok(Err(format!("{name} of {date} are not archived")));
        };
        if let Err(why) = directory.check_file(entry, FileCheck::Hash) {
            return Ok(Err(format!("the file of {name} of {} {why}", entry.date)));
        }
        span.until = span.until.min(entry.until);
        if RowSource::of_kind(kind) == RowSource::Samples {
            newest = newest.max(entry.file.as_ref().map(|file| file.newest));
        }
    }
    // The clock was set forward when the day was archived, and then back into the day.
    let stored = newest_sample(daemon, span, settings)?;
    Ok(match stored > newest {
        true => Err(format!("{date} went on after it was archived")),
        false => Ok(span.until),
    })
}
