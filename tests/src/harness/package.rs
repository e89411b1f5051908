//! The Debian package of the programs that were built, made once.

use super::{built, has, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Packages of the same programs.
pub struct Package {
    /// The package as the tree calls it.
    pub first: PathBuf,
    /// One that a later version would have made.
    pub second: PathBuf,
}

/// The version of the second one.
const LATER: &str = "999.0";

/// `None` where none can be made, which is said.
///
/// # Panics
/// When it is not made although all is there.
#[must_use]
pub fn package() -> Option<&'static Package> {
    static MADE: OnceLock<Option<Package>> = OnceLock::new();
    let tools = ["dpkg-deb", "dpkg-shlibdeps", "strip", "gzip"];
    if let Some(lacks) = tools.into_iter().find(|tool| !has(tool)) {
        skip(&format!("this machine has no {lacks}, so no package"));
        return None;
    }
    MADE.get_or_init(make).as_ref()
}

fn make() -> Option<Package> {
    let programs = built().gpukilld.parent().expect("a directory");
    let out = programs.join("packages");
    // One of an earlier version may lie there.
    let _ = std::fs::remove_dir_all(&out);
    build(programs, &out, &[]);
    let first = the_one_in(&out)?;
    build(programs, &out.join("later"), &["--version", LATER]);
    let second = the_one_in(&out.join("later"))?;
    Some(Package { first, second })
}

/// Packs these programs into this directory.
fn build(programs: &Path, out: &Path, more: &[&str]) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = workspace.expect("the workspace");
    let mut script = Command::new(workspace.join("packaging/build"));
    script.args(["--profile", "dev", "--kind", "deb", "--programs"]);
    script.arg(programs).arg("--out").arg(out).args(more);
    let output = script.output().expect("the script starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

fn the_one_in(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|it| it == "deb"))
}
