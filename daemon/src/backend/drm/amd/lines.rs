//! Files of the driver that have several lines.

use crate::backend::drm::sysfs;
use crate::procfs::file::read_at_most;
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;
use std::path::Path;

/// sysfs writes at most a page.
const FILE_MAX: u64 = 4_096;

/// Why a file is not believed.
pub(super) const NOT_UNDERSTOOD: &str = "not understood";

/// What `parse` makes of a file; its text is not shown as it is.
pub(super) fn parsed<T>(file: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    match read_at_most(file, FILE_MAX) {
        Ok(bytes) => parse(&String::from_utf8_lossy(&bytes))
            .map_or_else(|| Reading::Failed(NOT_UNDERSTOOD.into()), Reading::Value),
        Err(error) => sysfs::failure(&error),
    }
}

/// Lines of a key, a blank and a number, as KFD writes them. Others are left out:
/// some of its lines have text.
pub(super) fn numbers(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            Some((key, value.trim_ascii().parse().ok()?))
        })
        .collect()
}
