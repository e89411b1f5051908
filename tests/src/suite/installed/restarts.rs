//! Increasing pauses between restarts, where systemd supports them.

use super::InstalledBox;
use gpukill_tests::harness::write_script;
use std::path::Path;
use std::process::{Command, Stdio};

/// systemd runs this generator at each boot and reload.
const GENERATOR: &str = "/usr/lib/systemd/system-generators/gpukill-backoff-generator";

/// A `systemctl` script that prints this version and passes all other calls to the real
/// one.
fn systemctl_with_version(version: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$*\" = --version ] || exec /usr/bin/systemctl \"$@\"\n\
         printf '%s\\n' '{version}' '+PAM +AUDIT 999'\n"
    )
}

#[test]
fn backoff_needs_systemd_254() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (version, has_backoff) in [
        ("systemd 249 (249.11-0ubuntu3.16)", false),
        ("systemd 252 (252.39-1~deb12u1)", false),
        ("systemd 253 (253.18-1.fc38)", false),
        ("systemd 254~rc1 (254~rc1-1)", true),
        ("systemd 254.5-1.fc39 (254.5-1.fc39)", true),
        ("systemd 257 (257.13-1~deb13u1)", true),
        ("systemd 1000", true),
        ("elogind 255", false),
        ("", false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let tool = directory.path().join("systemctl");
        write_script(&tool, &systemctl_with_version(version));
        let units = directory.path().join("units");
        let ran = Command::new(workspace.join("packaging/backoff"))
            .arg(&units)
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", directory.path().display()),
            )
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            ran.status.success() && ran.stderr.is_empty(),
            "{version}: {ran:?}"
        );
        let found = units.join("gpukilld.service.d/10-backoff.conf").exists();
        assert_eq!(found, has_backoff, "{version}");
    }
}

#[test]
fn package_adds_and_removes_backoff() {
    let Some(it) = InstalledBox::without_package() else {
        return;
    };
    it.install(&it.package.first);
    let output = it.run_as_root(&["systemctl", "--version"]);
    let version = output.split_whitespace().nth(1).unwrap();
    let newer = version.parse::<u32>().unwrap() >= 254;
    assert_eq!(has_backoff(&it), newer, "{output}");

    // An upgrade makes the systemd of the box a newer one.
    let tool = "/usr/local/sbin/systemctl";
    it.write(tool, &systemctl_with_version("systemd 254 (254.1)"));
    it.run_as_root(&["chmod", "755", tool]);
    it.run_as_root(&["systemctl", "daemon-reload"]);
    assert!(has_backoff(&it));
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);

    it.dpkg(&["--remove", "gpukill"]);
    assert!(!it.path(GENERATOR).exists());
    assert!(
        !it.path("/run/systemd/generator/gpukilld.service.d")
            .exists()
    );
}

/// Whether systemd has read the drop-in file.
fn has_backoff(it: &InstalledBox) -> bool {
    let read = it.unit_property("gpukilld", "DropInPaths");
    let file = "/run/systemd/generator/gpukilld.service.d/10-backoff.conf";
    read.split(' ').any(|path| path == file)
}
