//! Creates executables.

use std::os::unix::fs::PermissionsExt as _;
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

/// Creates an executable script, as [`copy_program`] does for the same reason.
///
/// # Panics
/// When it cannot be created.
pub fn write_script(to: impl AsRef<Path>, text: &str) {
    let written = to.as_ref().with_extension("text");
    std::fs::write(&written, text).expect("the directory is ours");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&written, mode).expect("the file is ours");
    copy_program(&written, to);
}
