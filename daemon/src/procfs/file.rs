//! Small files of the kernel: read whole, never more than so much, and with
//! words for what went wrong.

use gpukill_proto::reading::Reading;
use gpukill_proto::text::visible;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// As much of a file as `most` bytes.
pub(crate) fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // The kernel writes most of its files at once, where the room is enough.
    let mut bytes = Vec::with_capacity(1024);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why a file of a process could not be read.
pub(crate) fn failed<T>(error: io::Error) -> Reading<T> {
    // The same words whatever the errno, so that a fault keeps its identity.
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        io::ErrorKind::NotFound => "the process has ended".to_owned(),
        _ => visible(error.to_string().as_bytes(), 80),
    };
    Reading::Failed(why)
}
