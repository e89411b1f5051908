//! Upgrade, downgrade, removal, purge and reinstallation of the package.

use super::InstalledBox;
use gpukill_tests::harness::eventually;
use rusqlite::Connection;

const STATE_DIRECTORY: &str = "/var/lib/gpukill";

#[test]
fn upgrade_restarts_daemon_and_keeps_records() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let edit = [
        "gpukillctl",
        "guard",
        "set",
        "global.default_memory_limit_gb",
        "4",
    ];
    assert_eq!(it.run("ada", &edit).code, 0);
    let (before, edits) = (it.main_pid(), it.recorded_edits());
    assert_eq!(edits.len(), 1, "{edits:?}");
    it.install(&it.package.second);
    // The daemon answers as soon as dpkg returns.
    let status = it.json("alice", &["status", "-o", "json"]);
    assert_eq!(status["faults"], serde_json::json!([]));
    assert_ne!(it.main_pid(), before);
    assert_eq!(it.recorded_edits(), edits);
    let version = it.run_as_root(&["dpkg-query", "--showformat=${Version}", "--show", "gpukill"]);
    assert_eq!(version, "999.0");

    assert_disabled_unit_stays_disabled(&it);
    assert_other_store_version_is_kept(&it);
    assert_removal_and_purge(&it);
}

/// An admin has disabled resets on this box.
fn assert_disabled_unit_stays_disabled(it: &InstalledBox) {
    let unit = "gpukill-reset.socket";
    it.run_as_root(&["systemctl", "disable", "--now", unit]);
    it.install(&it.package.second);
    let states = ["UnitFileState", "ActiveState"].map(|name| it.unit_property(unit, name));
    assert_eq!(states, ["disabled", "inactive"]);
    it.run_as_root(&["systemctl", "enable", "--now", unit]);
}

/// The state after a downgrade.
fn assert_other_store_version_is_kept(it: &InstalledBox) {
    it.run_as_root(&["systemctl", "stop", "gpukilld"]);
    let file = it.path(&format!("{STATE_DIRECTORY}/audit.db"));
    assert!(!it.path(&format!("{STATE_DIRECTORY}/audit.db-wal")).exists());
    // SQLite would follow the link that leads into the box, so it gets a copy.
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(&file, copy.path()).unwrap();
    let other = Connection::open(copy.path()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    other.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(other);
    std::fs::copy(copy.path(), &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    it.run_as_root(&["systemctl", "start", "gpukilld"]);
    let what = format!(
        "{STATE_DIRECTORY}/audit.db: was written by another version of gpukilld (schema 99,"
    );
    eventually("status reports it", || {
        let ran = it.run("alice", &["gpukillctl", "status"]);
        let flat = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        flat.contains(&what).then_some(())
    });
    assert_eq!(it.run("alice", &["gpukillctl", "list"]).code, 0);
    it.run_as_root(&["systemctl", "stop", "gpukilld"]);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    it.run_as_root(&["systemctl", "start", "gpukilld"]);
}

fn assert_removal_and_purge(it: &InstalledBox) {
    let daemon = it.main_pid();
    let kept = [
        format!("{STATE_DIRECTORY}/audit.db"),
        "/etc/gpukill/gpukilld.toml".to_owned(),
        "/etc/gpukill/rules/guard.toml".to_owned(),
    ];
    let are_there = || kept.clone().map(|path| it.path(&path).exists());
    it.dpkg(&["--remove", "gpukill"]);
    assert!(!it.process_exists(daemon));
    for gone in [
        "/run/gpukill-reset.sock",
        "/run/gpukill",
        "/usr/bin/gpukilld",
    ] {
        assert!(!it.path(gone).exists(), "{gone}");
    }
    let failed = it.run_as_root(&["systemctl", "list-units", "--failed", "--no-legend"]);
    assert_eq!(failed, "");
    assert_eq!(are_there(), [true; 3]);

    it.install(&it.package.second);
    assert_running_and_enabled(it);
    let rules = it.run_as_root(&["gpukillctl", "guard", "config"]);
    assert!(rules.contains("default_memory_limit_gb = 4"), "{rules}");

    it.dpkg(&["--purge", "gpukill"]);
    for gone in [STATE_DIRECTORY, "/etc/gpukill"] {
        assert!(!it.path(gone).exists(), "{gone}");
    }
    it.install(&it.package.first);
    assert_running_and_enabled(it);
    assert_eq!(it.recorded_edits(), Vec::<serde_json::Value>::new());
}

fn assert_running_and_enabled(it: &InstalledBox) {
    assert_eq!(it.unit_property("gpukilld", "SubState"), "running");
    let units = ["gpukilld.service", "gpukill-reset.socket"];
    let enabled = it.run_as_root(&[&["systemctl", "is-enabled"][..], &units].concat());
    assert_eq!(enabled, "enabled\nenabled\n");
}
