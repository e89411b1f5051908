//! Reads small kernel files, whole and bounded, for every module that reads below `/proc` and
//! `/sys`, and describes the errors.

pub(crate) mod alive;
pub(crate) mod stat;

use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;

/// Linux writes about 1.5 KiB to `/proc/PID/status`.
const MAX_STATUS_BYTES: u64 = 16 << 10;

/// How much of `/proc/PID/cgroup` is read.
pub(crate) const MAX_CGROUP_BYTES: u64 = 64 << 10;

/// The directory of files of this kind that were recorded on real hosts: in `GPUKILL_CAPTURES`, or
/// beside the workspace. `None` where the recordings are not available.
#[cfg(test)]
pub(crate) fn recordings(kind: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let named = std::env::var_os("GPUKILL_CAPTURES").map_or(beside, PathBuf::from);
    let directory = Some(named.join(kind)).filter(|directory| directory.is_dir());
    if directory.is_none() {
        eprintln!("skipped: no recordings here; GPUKILL_CAPTURES names their directory");
    }
    directory
}

/// Reads up to `max_bytes` bytes of a file.
pub(crate) fn read_at_most(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // The kernel writes most of its files in one piece, if there is room.
    let mut bytes = Vec::with_capacity(1024);
    File::open(path)?.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads as much of a file as there is room for, with one read. The kernel returns a file of one
/// record (`seq_file`) whole if there is room for it, such as a sysfs attribute or the `stat` of a
/// process. A second read to find the end would cost as much again.
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
pub(crate) fn read_failure<T>(error: io::Error) -> Reading<T> {
    // The same words for every errno of a kind, so that the fault stays the same fault.
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        io::ErrorKind::NotFound => "the process has ended".to_owned(),
        _ => sanitize(error.to_string().as_bytes(), 80),
    };
    Reading::Failed(why)
}

/// A decimal number, and nothing else: `parse` would accept a sign.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Whether a file of a process could not be read because no process has that pid.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    let is_no_process = error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || is_no_process
}

/// Reads `status` in the directory of a process.
///
/// # Errors
/// When it cannot be read. A longer file is truncated.
pub(crate) fn read_status(directory: &Path) -> io::Result<Vec<u8>> {
    read_at_most(&directory.join("status"), MAX_STATUS_BYTES)
}

/// Whether the process with this directory is in this unit of the host's `system.slice`. A process
/// of a container is below the control group of the container.
pub(crate) fn is_in_system_unit(directory: &Path, unit: &str) -> bool {
    let cgroup = read_at_most(&directory.join("cgroup"), MAX_CGROUP_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&cgroup).lines().any(|line| {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        // The path is relative to the daemon's own cgroup namespace.
        let path = path.trim_start_matches("/..");
        path.strip_prefix("/system.slice/") == Some(unit)
    })
}
