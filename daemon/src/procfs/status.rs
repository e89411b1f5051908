//! `/proc/PID/status`, whole and bounded.

use super::file::read_at_most;
use std::io;
use std::path::Path;

/// More of a status file than this is not read; Linux writes about 1.5 KiB.
const LONGEST: u64 = 16 << 10;

/// From the directory of a process.
///
/// # Errors
/// When it cannot be read. What is longer is cut.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<u8>> {
    read_at_most(&directory.join("status"), LONGEST)
}
