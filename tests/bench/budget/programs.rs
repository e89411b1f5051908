//! The size of the programs as they ship, and the number of crates that
//! they link.

use super::comparison::Count;
use gpukill_tests::harness::binaries;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The packages with the programs that `packaging/build` packs.
const PACKAGES: [&str; 3] = ["gpukilld", "gpukillctl", "gpukill-gateway"];

/// The bytes of each stripped program.
pub(crate) fn program_sizes() -> Vec<Count> {
    let built = binaries();
    let metadata = cargo_output(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let shipped = packages.filter(|package| PACKAGES.iter().any(|name| package["name"] == *name));
    let targets = shipped.flat_map(|package| package["targets"].as_array().unwrap());
    let programs = targets.filter(|target| target["kind"][0] == "bin");
    programs
        .map(|program| {
            let name = program["name"].as_str().unwrap();
            let is_of_client = matches!(name, "gpukillctl" | "gpukill-convert");
            let beside = if is_of_client {
                &built.gpukillctl
            } else {
                &built.gpukilld
            };
            let bytes = std::fs::metadata(beside.with_file_name(name))
                .unwrap()
                .len();
            Count::new(format!("{}_bytes", name.replace('-', "_")), bytes)
        })
        .collect()
}

/// The crates that each package links, including itself; a crate in two versions counts twice.
/// Crates that only work at build time (procedural macros, build scripts) do not count.
pub(crate) fn crate_counts() -> Vec<Count> {
    let of = |package: &str| {
        let mut arguments = vec!["tree", "--package", package, "--prefix", "none"];
        arguments.extend(["--no-dedupe", "--edges", "normal,no-proc-macro"]);
        let tree = cargo_output(&arguments);
        // A line reads `name vVERSION (PATH)`.
        let crates = tree.lines().filter(|line| !line.is_empty());
        let crates: BTreeSet<&str> = crates.collect();
        let key = format!("{}_crates", package.replace('-', "_"));
        Count::new(key, crates.len() as u64)
    };
    PACKAGES.map(of).into()
}

fn cargo_output(arguments: &[&str]) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(arguments)
        .arg("--locked");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
