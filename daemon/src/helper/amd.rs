//! AMD's step: to read one file of debugfs is to reset the whole adapter. So no
//! other file is ever opened there, and no directory listed.

use super::Args;
use super::alone::Alone;
use super::request::Address;
use crate::procfs::file::read_at_most;
use rustix::fs::{Mode, OFlags};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a reset may take: that of a hive of eight takes some tens of seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// The file answers with a number, or two words.
const ANSWER: u64 = 256;

/// Whether the reset file is there and may be read. Only reading it resets: opening
/// it does nothing but to fail where debugfs is locked down.
pub(super) fn check(address: &Address, args: &Args) -> Result<(), String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    first(address, args, |file| {
        let opened = rustix::fs::open(file, flags, Mode::empty());
        Ok(opened.map_err(io::Error::from))
    })?;
    Ok(())
}

/// Resets the adapter.
pub(super) fn reset(address: &Address, args: &Args, alone: &Alone) -> Result<(), String> {
    let text = first(address, args, |file| answer(file, alone.shared()?))?;
    judge(&text)
}

/// What `open` makes of the first reset file of this adapter that there is.
fn first<T>(
    address: &Address,
    args: &Args,
    mut open: impl FnMut(PathBuf) -> Result<io::Result<T>, String>,
) -> Result<T, String> {
    let directory = args.debugfs.join("dri");
    // Newer kernels call the directory by the address, all by the minor.
    let by_address = directory.join(address.to_string());
    let by_minor = minor(&args.sysfs, address).map(|minor| directory.join(minor.to_string()));
    for directory in [Some(by_address), by_minor].into_iter().flatten() {
        match open(directory.join("amdgpu_gpu_recover"))? {
            Ok(opened) => return Ok(opened),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("the reset file cannot be read: {error}")),
        }
    }
    Err("the kernel shows no reset file: debugfs is not mounted, or it is locked down".to_owned())
}

/// Reads the file on a thread of its own: it may never come back, and until then no
/// other reset begins.
fn answer(file: PathBuf, alone: Alone) -> Result<io::Result<Vec<u8>>, String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let read = read_at_most(&file, ANSWER);
        drop(alone);
        // Whoever asked may have stopped waiting.
        let _ = tell.send(read);
    });
    told.recv_timeout(PATIENCE).map_err(|_| {
        let seconds = PATIENCE.as_secs();
        format!(
            "the driver did not come back from the reset within {seconds} s, and is still at it"
        )
    })
}

/// Newer kernels say how it went, as an errno; older ones only that it was asked
/// for.
fn judge(text: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(text);
    match text.trim() {
        "0" | "gpu recover" => Ok(()),
        other => Err(match other.parse::<i32>() {
            Ok(code) => {
                let error = io::Error::from_raw_os_error(code.saturating_abs());
                format!("the driver says that the reset failed: {error}")
            }
            Err(_) => format!("the driver says {other:?} of the reset"),
        }),
    }
}

/// The N of `card N`.
fn minor(sysfs: &Path, address: &Address) -> Option<u32> {
    let device = sysfs.join("bus/pci/devices").join(address.to_string());
    let entries = std::fs::read_dir(device.join("drm")).ok()?;
    let mut names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("card")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_says_how_a_reset_went() {
        for fine in ["0\n", "gpu recover\n"] {
            assert_eq!(judge(fine.as_bytes()), Ok(()));
        }
        let failed = "the driver says that the reset failed: Device or resource busy (os error 16)";
        assert_eq!(judge(b"-16\n"), Err(failed.into()));
        assert_eq!(
            judge(b"\xff?"),
            Err("the driver says \"\u{fffd}?\" of the reset".into())
        );
    }
}
