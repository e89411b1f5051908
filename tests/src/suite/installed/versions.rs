//! A package that is upgraded, gone back from, removed, purged and installed again.

use super::Installed;
use gpukill_tests::harness::eventually;
use rusqlite::Connection;

const STATE: &str = "/var/lib/gpukill";

#[test]
fn an_upgrade_restarts_the_daemon_and_keeps_the_record() {
    let Some(it) = Installed::with("") else {
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
    let (before, edits) = (it.main_pid(), it.edits());
    assert_eq!(edits.len(), 1, "{edits:?}");
    it.install(&it.package.second);
    // By when dpkg returns, it answers.
    let status = it.json("alice", &["status", "-o", "json"]);
    assert_eq!(status["faults"], serde_json::json!([]));
    assert_ne!(it.main_pid(), before);
    assert_eq!(it.edits(), edits);
    let version = it.does(&["dpkg-query", "--showformat=${Version}", "--show", "gpukill"]);
    assert_eq!(version, "999.0");

    what_was_disabled_stays_so(&it);
    a_store_of_another_version_is_left_alone(&it);
    is_removed_and_purged(&it);
}

/// On a box that wants no resets.
fn what_was_disabled_stays_so(it: &Installed) {
    let unit = "gpukill-reset.socket";
    it.does(&["systemctl", "disable", "--now", unit]);
    it.install(&it.package.second);
    let states = ["UnitFileState", "ActiveState"].map(|name| it.property(unit, name));
    assert_eq!(states, ["disabled", "inactive"]);
    it.does(&["systemctl", "enable", "--now", unit]);
}

/// As after going back to an older version.
fn a_store_of_another_version_is_left_alone(it: &Installed) {
    it.does(&["systemctl", "stop", "gpukilld"]);
    let file = it.path(&format!("{STATE}/audit.db"));
    assert!(!it.path(&format!("{STATE}/audit.db-wal")).exists());
    // SQLite would follow the link that leads to the box.
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(&file, copy.path()).unwrap();
    let other = Connection::open(copy.path()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    other.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(other);
    std::fs::copy(copy.path(), &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    it.does(&["systemctl", "start", "gpukilld"]);
    let what = format!("{STATE}/audit.db: was written by another version of gpukilld (schema 99,");
    eventually("status says so", || {
        let ran = it.run("alice", &["gpukillctl", "status"]);
        let flat = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        flat.contains(&what).then_some(())
    });
    assert_eq!(it.run("alice", &["gpukillctl", "list"]).code, 0);
    it.does(&["systemctl", "stop", "gpukilld"]);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    it.does(&["systemctl", "start", "gpukilld"]);
}

fn is_removed_and_purged(it: &Installed) {
    let daemon = it.main_pid();
    let kept = [
        format!("{STATE}/audit.db"),
        "/etc/gpukill/gpukilld.toml".to_owned(),
        "/etc/gpukill/rules/guard.toml".to_owned(),
    ];
    let are_there = || kept.clone().map(|path| it.path(&path).exists());
    it.dpkg(&["--remove", "gpukill"]);
    assert!(!it.has(daemon));
    for gone in [
        "/run/gpukill-reset.sock",
        "/run/gpukill",
        "/usr/bin/gpukilld",
    ] {
        assert!(!it.path(gone).exists(), "{gone}");
    }
    let failed = it.does(&["systemctl", "list-units", "--failed", "--no-legend"]);
    assert_eq!(failed, "");
    assert_eq!(are_there(), [true; 3]);

    it.install(&it.package.second);
    runs_at_each_boot(it);
    let rules = it.does(&["gpukillctl", "guard", "config"]);
    assert!(rules.contains("default_memory_limit_gb = 4"), "{rules}");

    it.dpkg(&["--purge", "gpukill"]);
    for gone in [STATE, "/etc/gpukill"] {
        assert!(!it.path(gone).exists(), "{gone}");
    }
    it.install(&it.package.first);
    runs_at_each_boot(it);
    assert_eq!(it.edits(), Vec::<serde_json::Value>::new());
}

fn runs_at_each_boot(it: &Installed) {
    assert_eq!(it.property("gpukilld", "SubState"), "running");
    let units = ["gpukilld.service", "gpukill-reset.socket"];
    let enabled = it.does(&[&["systemctl", "is-enabled"][..], &units].concat());
    assert_eq!(enabled, "enabled\nenabled\n");
}
