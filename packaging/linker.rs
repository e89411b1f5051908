//! Linker settings that the build scripts of both programs share.

use std::env;
use std::path::Path;
use std::process::Command;

/// The target on which rustc's default linker supports folding.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Makes the linker keep one of several functions that are equal byte for byte, where it can. These
/// programs do not depend on function addresses being distinct.
pub(crate) fn fold_equal_functions() {
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    if is_release() && links_with_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Other profiles should link quickly.
fn is_release() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// Whether the linker is rustc's own, the default since 1.90 where it is shipped.
fn links_with_lld() -> bool {
    let is_target = env::var("TARGET").is_ok_and(|target| target == TARGET);
    // `-C linker=…`, `-C linker-features=…`, `-C link-self-contained=-linker`.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_other = env::var_os("RUSTC_LINKER").is_some() || flags.contains("linker");
    is_target && !is_other && sysroot().is_some_and(|root| is_shipped(&root))
}

fn sysroot() -> Option<String> {
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    let printed = rustc.args(["--print", "sysroot"]).output().ok()?;
    String::from_utf8(printed.stdout).ok()
}

fn is_shipped(sysroot: &str) -> bool {
    let tools = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(TARGET)
        .join("bin");
    tools.join("gcc-ld/ld.lld").exists()
}
