//! Builds the workspace's binaries once, in the profile of the running test, because Cargo
//! builds for an integration test only the binaries of its own crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The paths of the binaries.
pub struct Binaries {
    /// The daemon.
    pub gpukilld: PathBuf,
    /// The client.
    pub gpukillctl: PathBuf,
    /// The gateway.
    pub gateway: PathBuf,
    /// The stand-in for `libnvidia-ml.so.1`, under its own file name.
    pub nvml: PathBuf,
}

/// Returns the binaries, and builds them if they are not built.
///
/// # Panics
/// When the build fails.
pub fn binaries() -> &'static Binaries {
    build_binaries().unwrap_or_else(|error| panic!("{error}"))
}

/// Builds the binaries, once.
///
/// # Errors
/// When the build fails.
pub fn build_binaries() -> Result<&'static Binaries, &'static str> {
    static BUILT: OnceLock<Option<Binaries>> = OnceLock::new();
    BUILT
        .get_or_init(run_cargo)
        .as_ref()
        .ok_or("gpukill does not build")
}

fn run_cargo() -> Option<Binaries> {
    let exe = std::env::current_exe().expect("a test knows its own path");
    // target/PROFILE/deps/suite-HASH, target/PROFILE/examples/screenshots or target/PROFILE/demo
    let profile = exe
        .ancestors()
        .skip(1)
        .find(|dir| !dir.ends_with("deps") && !dir.ends_with("examples"))
        .expect("a build directory");
    let target = profile.parent().expect("a target directory");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let name = profile.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or("debug");
    // The client is shipped in a profile of its own.
    let of_client = if name == "release" { "client" } else { name };
    let build = |profile: &str, packages: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .current_dir(workspace)
            .env("CARGO_TARGET_DIR", target);
        command.args(["build", "--quiet", "--locked", "--bins", "--lib"]);
        // Cargo's name of the profile in the directory debug.
        command.args([
            "--profile",
            if profile == "debug" { "dev" } else { profile },
        ]);
        command.args(packages.iter().flat_map(|package| ["-p", package]));
        command.status().is_ok_and(|status| status.success())
    };
    let is_built = if name == of_client {
        build(
            name,
            &[
                "gpukilld",
                "gpukillctl",
                "gpukill-gateway",
                "gpukill-pages",
                "fake-nvml",
            ],
        )
    } else {
        let packages = ["gpukilld", "gpukill-gateway", "gpukill-pages", "fake-nvml"];
        build(name, &packages) && build(of_client, &["gpukillctl"])
    };
    if is_built && name != of_client {
        // Where the client looks for it.
        let link = target.join(of_client).join("gpukill-gateway");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(profile.join("gpukill-gateway"), link).ok()?;
    }
    is_built.then(|| Binaries {
        gpukilld: profile.join("gpukilld"),
        gateway: profile.join("gpukill-gateway"),
        gpukillctl: target.join(of_client).join("gpukillctl"),
        nvml: profile.join("libnvidia_ml_stand_in.so"),
    })
}
