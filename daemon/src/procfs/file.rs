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

/// As much of a file as there is room for, by one read. What the kernel writes as one
/// piece it gives whole to whoever has the room for it (`seq_file`, of one record):
/// an attribute of sysfs, or what `stat` tells of a process. To ask a second time for
/// what follows would cost as much again.
pub(crate) fn read_once<'a>(path: &Path, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut file = File::open(path)?;
    loop {
        match file.read(room) {
            Ok(length) => return Ok(room.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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

/// Whether a process's file could not be read because no process has that pid.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    let is_no_process = error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || is_no_process
}
