//! Whether somebody else may have written a file by which people's work is ended.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// What lets others than the owner write.
pub(crate) const OTHERS_WRITE: u32 = 0o022;

/// Why others than root and whoever this runs as may have written it; `open` are the
/// bits of a mode that let them.
pub(crate) fn is_others(metadata: &Metadata, open: u32) -> Option<String> {
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Some(format!("it belongs to uid {owner}: chown root it"));
    }
    let is_open = metadata.mode() & open != 0;
    is_open.then(|| "others than its owner may write it: chmod go-w it".to_owned())
}
