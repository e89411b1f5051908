//! Copies executables.

use std::path::Path;
use std::process::Command;

/// Copies an executable with `cp`. A descriptor that is open for writing in this process would be
/// inherited by children of other tests, and executing the copy would fail with ETXTBSY.
///
/// # Panics
/// When the copy fails.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp")
        .arg("--")
        .arg(from.as_ref())
        .arg(to.as_ref())
        .status();
    assert!(
        copied.expect("cp starts").success(),
        "{:?} is not copied",
        from.as_ref()
    );
}
