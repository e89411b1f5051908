//! Reads the errors of a card's memory and blocks, which the driver counts below `device/ras`. Read
//! rarely: each file accesses the hardware.

use super::{NOT_UNDERSTOOD, read_parsed};
use crate::backend::drm::sysfs;
use gpukill_proto::reading::Reading;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// No card works with more bad pages.
const BAD_PAGES_MAX: u64 = 65_536;

/// The uncorrected and corrected errors of all blocks (`umc_err_count`, `gfx_err_count`, …) since
/// the driver was loaded. It fails if one block fails.
pub(super) fn read_errors(directory: &Path) -> Reading<(u64, u64)> {
    let files = sysfs::entries(directory).into_iter();
    files
        .filter(|(name, _)| name.ends_with("_err_count"))
        .map(|(_, file)| read_parsed(&file, parse_errors))
        .fold(Reading::Unsupported, |sum, block| {
            sum.combine_supported(block, |(ue, ce), (more_ue, more_ce)| {
                Reading::Value((ue.saturating_add(more_ue), ce.saturating_add(more_ce)))
            })
        })
}

/// Parses `ue: 0`, `ce: 3` and, on newer drivers, `de: 0` into uncorrected and corrected errors. A
/// deferred error becomes one of these when its data is used.
pub(super) fn parse_errors(text: &str) -> Option<(u64, u64)> {
    let count = |key: &str| {
        let mut counts = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| name.trim_ascii() == key)
            .map(|(_, count)| count.trim_ascii().parse::<u64>().ok());
        counts.next().flatten()
    };
    Some((count("ue")?, count("ce")?))
}

/// The number of pages that `gpu_vram_bad_pages` lists.
pub(super) fn read_bad_pages(file: &Path) -> Reading<u64> {
    match read_file(file) {
        Ok(text) => parse_bad_pages(&text)
            .map_or_else(|| Reading::Failed(NOT_UNDERSTOOD.into()), Reading::Value),
        Err(error) => sysfs::failure(&error),
    }
}

/// Counts lines of `0x00000001 : 0x00001000 : R`: reserved, pending, or failed to be reserved.
pub(super) fn parse_bad_pages(text: &str) -> Option<u64> {
    let mut count = 0_u64;
    for line in text.lines().map(str::trim_ascii) {
        let mut parts = line.split(" : ");
        let hexadecimal = |part: Option<&str>| {
            let digits = part?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        match (hexadecimal(parts.next()), hexadecimal(parts.next())) {
            (Some(_), Some(_)) if matches!(parts.next(), Some("R" | "P" | "F")) => count += 1,
            _ if line.is_empty() => {}
            _ => return None,
        }
    }
    (count <= BAD_PAGES_MAX).then_some(count)
}

/// Reads a whole file. The driver writes whole lines only, so a read with less room than a line
/// looks like the end of the file; every read has the room of a page.
fn read_file(file: &Path) -> io::Result<String> {
    const LINE: u64 = 28;
    let mut file = File::open(file)?;
    let mut bytes = Vec::new();
    let mut page = [0; 4_096];
    while (bytes.len() as u64) <= BAD_PAGES_MAX * LINE {
        match file.read(&mut page)? {
            0 => break,
            read => bytes.extend_from_slice(page.get(..read).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn block_errors_are_summed() {
        let root = directory(&[
            ("umc_err_count", "ue: 1\nce: 20\n"),
            ("gfx_err_count", "ue: 2\nce: 3\nde: 9\n"),
            ("features", "feature mask: 0x7f\n"),
        ]);
        assert_eq!(read_errors(root.path()), Reading::Value((3, 23)));
    }

    #[test]
    fn failed_block_fails_the_sum() {
        for unreadable in ["gfx_err_count", "umc_err_count", "xgmi_err_count"] {
            let root = directory(&[
                ("gfx_err_count", "ue: 1\nce: 0\n"),
                ("umc_err_count", "ue: 1\nce: 20\n"),
                ("xgmi_err_count", "ue: 1\nce: 0\n"),
            ]);
            std::fs::write(root.path().join(unreadable), "ue: ?\nce: 0\n").unwrap();
            let failed = Reading::Failed(NOT_UNDERSTOOD.to_owned());
            assert_eq!(read_errors(root.path()), failed, "{unreadable}");
        }
    }

    #[test]
    fn card_without_ecc_is_unsupported() {
        for files in [&[][..], &[("features", "feature mask: 0x0\n")]] {
            let root = directory(files);
            assert_eq!(read_errors(root.path()), Reading::Unsupported);
        }
        assert_eq!(
            read_bad_pages(Path::new("/nonexistent")),
            Reading::Unsupported
        );
    }

    #[test]
    fn bad_page_lines_are_counted() {
        let long = "0x00000001 : 0x00001000 : R\n".repeat(1_000);
        for (text, count) in [
            ("", Some(0)),
            (
                "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n",
                Some(2),
            ),
            ("0x00000003 : 0x00001000 : F\n", Some(1)),
            (long.as_str(), Some(1_000)),
            ("0x00000003 : 0x00001000\n", None),
            ("bad pages\n", None),
        ] {
            let file = directory(&[("gpu_vram_bad_pages", text)]);
            let pages = read_bad_pages(&file.path().join("gpu_vram_bad_pages"));
            assert_eq!(pages.known().copied(), count, "{text:?}");
        }
    }
}
