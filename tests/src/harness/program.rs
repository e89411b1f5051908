//! Copies executables.

use std::path::Path;
use std::process::Command;

/// Copies an executable. `cp` writes the file, and not this process: a descriptor that is open for
/// writing here would be inherited by children that other tests fork at the same time, and then
/// executing the copy fails with ETXTBSY.
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
