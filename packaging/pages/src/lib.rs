//! The files that a package has in addition to the programs, generated from the programs' own
//! definitions: the manual, the completions, and settings in which everything is commented out.
//!
//! Read in this order:
//! - [`roff`]: the markup of manual pages
//! - [`command`]: the parts of a page that come from the command line
//! - [`client`], [`daemon`], [`gateway`]: the pages of gpukillctl, of gpukilld and gpukill-reset, and
//!   of gpukill-gateway
//! - [`reference`]: the pages of configuration files
//! - [`completions`], [`settings`]
//!
//! No help text is written a second time here. clap_mangen is not used: it repeats the options
//! of every command on each page, has no headings, and has no place for exit codes and files.
#![forbid(unsafe_code)]

mod client;
mod command;
mod completions;
mod daemon;
mod gateway;
mod reference;
mod roff;
mod settings;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Writes all files below a directory, which is created if missing.
///
/// `epoch` is SOURCE_DATE_EPOCH: seconds since 1970, the date of the pages in UTC. Without it
/// the pages have no date, so that the same sources give the same bytes.
///
/// # Errors
/// The epoch is not such a number, or a file cannot be written.
pub fn write(directory: &Path, epoch: Option<&OsStr>) -> io::Result<()> {
    let date = epoch.map(date).transpose()?.unwrap_or_default();
    for (path, text) in files(&date) {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Every file by its path, with pages of this date; an empty date leaves it out.
fn files(date: &str) -> BTreeMap<PathBuf, String> {
    let pages = client::pages(date)
        .into_iter()
        .chain(daemon::pages(date))
        .chain(gateway::pages(date))
        .chain(reference::pages(date));
    let mut files: BTreeMap<PathBuf, String> = pages.map(roff::Page::into_file).collect();
    files.extend(completions::files());
    files.insert("gpukilld.toml".into(), settings::commented());
    files.insert("gateway.toml".into(), settings::commented_gateway());
    files
}

/// The date that is this number of seconds after 1970 began.
fn date(epoch: &OsStr) -> io::Result<String> {
    let seconds = epoch.to_str().and_then(|text| text.parse().ok());
    let moment = seconds.and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    let moment = moment.ok_or_else(|| {
        let what = format!("SOURCE_DATE_EPOCH is not a number of seconds: {epoch:?}");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })?;
    Ok(moment.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests;
