//! Reads driver files that have several lines.

use crate::backend::drm::sysfs::{self, ATTRIBUTE_MAX, Attribute};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// The failure of a file that cannot be parsed.
pub(super) const NOT_UNDERSTOOD: &str = "not understood";

/// Reads a file through `parse`. A failure does not quote the file's text.
pub(super) fn read_parsed<T>(
    file: &(impl Attribute + ?Sized),
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match file.read(&mut [0; ATTRIBUTE_MAX]) {
        Ok(bytes) => parse(&String::from_utf8_lossy(bytes))
            .map_or_else(|| Reading::Failed(NOT_UNDERSTOOD.into()), Reading::Value),
        Err(error) => sysfs::failure(&error),
    }
}

/// Parses lines of a key, a blank and a number, as KFD writes them. Other lines are skipped: some
/// of KFD's lines hold text.
pub(super) fn parse_numbers(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            Some((key, value.trim_ascii().parse().ok()?))
        })
        .into_map()
}
