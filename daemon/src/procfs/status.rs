//! Reads `/proc/PID/status`, whole and bounded.

use super::file::read_at_most;
use std::io;
use std::path::Path;

/// Linux writes about 1.5 KiB.
const MAX_STATUS_BYTES: u64 = 16 << 10;

/// Reads the file in the directory of a process.
///
/// # Errors
/// When it cannot be read. A longer file is truncated.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<u8>> {
    read_at_most(&directory.join("status"), MAX_STATUS_BYTES)
}
