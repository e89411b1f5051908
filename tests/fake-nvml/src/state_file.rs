//! Follows the state file: reads it when it changed, and keeps the last good state otherwise.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::state::State;

/// The file that is played, and what it said last.
pub(crate) struct StateFile {
    path: PathBuf,
    stamp: Stamp,
    state: Arc<State>,
}

/// Tells one version of the file from the next. A rename changes the inode, a write in place the
/// time or the size.
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
            .map_err(|error| complain(&path, &error.to_string()))
            .ok()?;
        let state = read(&path).map_err(|error| complain(&path, &error)).ok()?;
        Some(Self {
            path,
            stamp,
            state: Arc::new(state),
        })
    }

    /// The state as of now.
    pub(crate) fn current(&mut self) -> Arc<State> {
        // The stamp is taken before the text, so that a change in between is seen the next time.
        if let Ok(stamp) = stamp(&self.path)
            && stamp != self.stamp
        {
            self.stamp = stamp;
            match read(&self.path) {
                Ok(state) => self.state = Arc::new(state),
                Err(error) => complain(&self.path, &error),
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

/// Tells the author of a test what is wrong with the state file: to the program under test a return
/// code is all that NVML can say.
fn complain(path: &Path, reason: &str) {
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(
        io::stderr(),
        "fake-nvml: cannot play {}: {reason}",
        path.display()
    );
}
