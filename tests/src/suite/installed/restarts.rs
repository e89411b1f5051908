//! Restarts that come ever more seldom, where systemd knows how.

use super::Installed;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What systemd runs at each boot and reload.
const GENERATOR: &str = "/usr/lib/systemd/system-generators/gpukill-backoff-generator";

/// A `systemctl` of that version, which does all else as the box's own.
fn of_version(said: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$*\" = --version ] || exec /usr/bin/systemctl \"$@\"\n\
         printf '%s\\n' '{said}' '+PAM +AUDIT 999'\n"
    )
}

#[test]
fn only_a_systemd_of_254_or_newer_is_asked_to_restart_ever_more_seldom() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (said, asked) in [
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
        std::fs::write(&tool, of_version(said)).unwrap();
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
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
            "{said}: {ran:?}"
        );
        let found = units.join("gpukilld.service.d/10-backoff.conf").exists();
        assert_eq!(found, asked, "{said}");
    }
}

#[test]
fn the_package_asks_systemd_by_its_version_and_takes_it_back_when_removed() {
    let Some(it) = Installed::bare() else { return };
    it.install(&it.package.first);
    let said = it.does(&["systemctl", "--version"]);
    let version = said.split_whitespace().nth(1).unwrap();
    let newer = version.parse::<u32>().unwrap() >= 254;
    assert_eq!(is_asked(&it), newer, "{said}");

    // The box's systemd becomes a newer one, as by an upgrade.
    let tool = "/usr/local/sbin/systemctl";
    it.write(tool, &of_version("systemd 254 (254.1)"));
    it.does(&["chmod", "755", tool]);
    it.does(&["systemctl", "daemon-reload"]);
    assert!(is_asked(&it));
    it.does(&["systemctl", "restart", "gpukilld"]);

    it.dpkg(&["--remove", "gpukill"]);
    assert!(!it.path(GENERATOR).exists());
    assert!(
        !it.path("/run/systemd/generator/gpukilld.service.d")
            .exists()
    );
}

/// Whether systemd has read the lines.
fn is_asked(it: &Installed) -> bool {
    let read = it.property("gpukilld", "DropInPaths");
    let file = "/run/systemd/generator/gpukilld.service.d/10-backoff.conf";
    read.split(' ').any(|path| path == file)
}
