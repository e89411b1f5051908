//! The step for AMD: reading one file of debugfs resets the whole adapter. Therefore no other file
//! is ever opened there, and no directory is listed.

use super::ResetHelperArgs;
use super::request::PciAddress;
use super::reset_lock::ResetLock;
use crate::procfs::read_at_most;
use rustix::fs::{Mode, OFlags};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The maximum time of a reset: a hive of eight takes some tens of seconds.
const RESET_TIMEOUT: Duration = Duration::from_secs(90);

/// The answer of the file is a number, or two words.
const MAX_RESULT_BYTES: u64 = 256;

/// Checks whether the reset file exists and is readable. Only reading it resets; opening it only
/// fails if debugfs is locked down.
pub(super) fn check(address: &PciAddress, args: &ResetHelperArgs) -> Result<(), String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open_first(address, args, |file| {
        let opened = rustix::fs::open(file, flags, Mode::empty());
        Ok(opened.map_err(io::Error::from))
    })?;
    Ok(())
}

/// Resets the adapter. Returns a note if the result is not known.
pub(super) fn reset(
    address: &PciAddress,
    args: &ResetHelperArgs,
    lock: &ResetLock,
) -> Result<Option<String>, String> {
    let text = open_first(address, args, |file| {
        read_reset_file(file, lock.try_clone()?)
    })?;
    parse_result(&text)
}

/// Calls `open` for the possible reset files of this adapter, and returns the first success.
fn open_first<T>(
    address: &PciAddress,
    args: &ResetHelperArgs,
    mut open: impl FnMut(PathBuf) -> Result<io::Result<T>, String>,
) -> Result<T, String> {
    let directory = args.debugfs.join("dri");
    // Newer kernels name the directory by the address, all kernels by the minor number.
    let by_address = directory.join(address.to_string());
    let by_minor = card_minor(&args.sysfs, address).map(|minor| directory.join(minor.to_string()));
    for directory in [Some(by_address), by_minor].into_iter().flatten() {
        match open(directory.join("amdgpu_gpu_recover"))? {
            Ok(opened) => return Ok(opened),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("the reset file cannot be read: {error}")),
        }
    }
    Err("the kernel shows no reset file: debugfs is not mounted, or it is locked down".to_owned())
}

/// Reads the file on a thread of its own: the read may never return, and until then no other reset
/// starts.
fn read_reset_file(file: PathBuf, lock: ResetLock) -> Result<io::Result<Vec<u8>>, String> {
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || {
        let read = read_at_most(&file, MAX_RESULT_BYTES);
        drop(lock);
        // The caller may have stopped waiting.
        let _ = sender.send(read);
    });
    result.recv_timeout(RESET_TIMEOUT).map_err(|_| {
        let seconds = RESET_TIMEOUT.as_secs();
        format!("the driver did not finish the reset within {seconds} s, and is still running it")
    })
}

/// Newer kernels return the result as an errno; older ones only confirm the request, which a note
/// then says.
fn parse_result(text: &[u8]) -> Result<Option<String>, String> {
    let text = String::from_utf8_lossy(text);
    match text.trim() {
        "0" => Ok(None),
        "gpu recover" => Ok(Some(
            "this kernel does not report whether the reset succeeded".to_owned(),
        )),
        other => Err(match other.parse::<i32>() {
            Ok(code) => {
                let error = io::Error::from_raw_os_error(code.saturating_abs());
                format!("the driver reports that the reset failed: {error}")
            }
            Err(_) => format!("the driver returned {other:?} for the reset"),
        }),
    }
}

/// The minor number of the device: the N of `cardN`.
fn card_minor(sysfs: &Path, address: &PciAddress) -> Option<u32> {
    let device = sysfs.join("bus/pci/devices").join(address.to_string());
    let entries = std::fs::read_dir(device.join("drm")).ok()?;
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find_map(|name| name.strip_prefix("card")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_result_of_the_driver() {
        assert_eq!(parse_result(b"0\n"), Ok(None));
        let unknown = "this kernel does not report whether the reset succeeded";
        assert_eq!(parse_result(b"gpu recover\n"), Ok(Some(unknown.into())));
        let failed =
            "the driver reports that the reset failed: Device or resource busy (os error 16)";
        assert_eq!(parse_result(b"-16\n"), Err(failed.into()));
        assert_eq!(
            parse_result(b"\xff?"),
            Err("the driver returned \"\u{fffd}?\" for the reset".into())
        );
    }
}
