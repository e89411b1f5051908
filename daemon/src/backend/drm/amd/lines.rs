//! Files of the driver that have several lines.

use crate::backend::drm::sysfs::{self, ATTRIBUTE_MAX, Attribute};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// Why a file is not believed.
pub(super) const NOT_UNDERSTOOD: &str = "not understood";

/// What `parse` makes of a file; its text is not shown as it is.
pub(super) fn parsed<T>(
    file: &(impl Attribute + ?Sized),
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match file.read(&mut [0; ATTRIBUTE_MAX]) {
        Ok(bytes) => parse(&String::from_utf8_lossy(bytes))
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
        .into_map()
}
