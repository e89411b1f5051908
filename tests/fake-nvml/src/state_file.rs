//! Follows the state file: reads it after a change, and keeps the last good state otherwise.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::state::State;

/// The state file, and its last valid state.
pub(crate) struct StateFile {
    path: PathBuf,
    stamp: Stamp,
    state: Arc<State>,
}

/// Identifies a version of the file. A rename changes the inode, a write in place the time or the
/// size.
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl StateFile {
    /// Starts to follow a file, which must be valid.
    pub(crate) fn open(path: PathBuf) -> Option<Self> {
        let stamp = stamp(&path)
            .map_err(|error| report_error(&path, &error.to_string()))
            .ok()?;
        let state = read(&path)
            .map_err(|error| report_error(&path, &error))
            .ok()?;
        Some(Self {
            path,
            stamp,
            state: Arc::new(state),
        })
    }

    /// The current state.
    pub(crate) fn current(&mut self) -> Arc<State> {
        // The stamp is taken before the text, so that a change in between is noticed the next time.
        if let Ok(stamp) = stamp(&self.path)
            && stamp != self.stamp
        {
            self.stamp = stamp;
            match read(&self.path) {
                Ok(state) => self.state = Arc::new(state),
                Err(error) => report_error(&self.path, &error),
            }
        }
        Arc::clone(&self.state)
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok(Stamp {
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

fn read(path: &Path) -> Result<State, String> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut text))
        .map_err(|error| error.to_string())?;
    State::parse(&text)
}

/// Reports an error in the state file to the author of the test: the program under test only gets a
/// return code from NVML.
fn report_error(path: &Path, reason: &str) {
    // Without stderr there is no place to report it.
    let _ = writeln!(
        io::stderr(),
        "fake-nvml: cannot use {}: {reason}",
        path.display()
    );
}
