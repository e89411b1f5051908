//! Debian packages of the built programs, built once.

use super::{binaries, has_program, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Two versions of the packages with the same programs.
pub struct Packages {
    /// The package with the version of the source tree.
    pub first: PathBuf,
    /// The package with a later version.
    pub second: PathBuf,
    /// The package of the gateway, of the first version.
    pub first_gateway: PathBuf,
    /// The package of the gateway, of the later version.
    pub second_gateway: PathBuf,
}

const LATER_VERSION: &str = "999.0";

/// Builds the packages. Returns `None` and reports the skip where a tool is missing.
///
/// # Panics
/// When the build fails although all tools are there.
#[must_use]
pub fn packages() -> Option<&'static Packages> {
    static MADE: OnceLock<Option<Packages>> = OnceLock::new();
    let tools = ["dpkg-deb", "dpkg-shlibdeps", "strip", "gzip"];
    if let Some(lacks) = tools.into_iter().find(|tool| !has_program(tool)) {
        skip(&format!("this machine has no {lacks}, so no package"));
        return None;
    }
    MADE.get_or_init(build_both).as_ref()
}

fn build_both() -> Option<Packages> {
    let programs = binaries().gpukilld.parent().expect("a directory");
    let out = programs.join("packages");
    // A package of an earlier version may be there.
    let _ = std::fs::remove_dir_all(&out);
    build(programs, &out, &[]);
    let later = out.join("later");
    build(programs, &later, &["--version", LATER_VERSION]);
    Some(Packages {
        first: find_deb(&out, "gpukill")?,
        second: find_deb(&later, "gpukill")?,
        first_gateway: find_deb(&out, "gpukill-gateway")?,
        second_gateway: find_deb(&later, "gpukill-gateway")?,
    })
}

/// Packages the programs of this directory.
fn build(programs: &Path, out: &Path, more: &[&str]) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = workspace.expect("the workspace");
    let mut script = Command::new(workspace.join("packaging/build"));
    script.args(["--profile", "dev", "--kind", "deb", "--programs"]);
    script.arg(programs).arg("--out").arg(out).args(more);
    let output = script.output().expect("the script starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
}

/// The file of this package.
fn find_deb(directory: &Path, package: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths = entries.flatten().map(|entry| entry.path());
    let start = format!("{package}_");
    paths.find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&start))
    })
}
