//! Settings of an installed daemon: a reload reads them again, and a mistake is never
//! replaced by a guess.

use super::InstalledBox;
use gpukill_tests::harness::{eventually, eventually_equals};

const SETTINGS: &str = "/etc/gpukill/gpukilld.toml";

fn poll_interval_ms(it: &InstalledBox) -> u64 {
    let status = it.json("alice", &["status", "-o", "json"]);
    status["poll_interval_ms"].as_u64().unwrap()
}

#[test]
fn reload_applies_valid_and_refuses_invalid_settings() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let daemon = it.main_pid();
    assert_eq!(poll_interval_ms(&it), 100);
    let text = std::fs::read_to_string(it.path(SETTINGS)).unwrap();
    let changed = text.replace("\"100ms\"", "\"250ms\"");
    it.write(SETTINGS, &changed);
    it.run_as_root(&["systemctl", "reload", "gpukilld"]);
    eventually_equals(&250, || poll_interval_ms(&it));
    it.wait_for_entry("settings-reloaded", &[]);

    it.write(
        SETTINGS,
        &format!("{text}[access]\nhide_other_user = true\n"),
    );
    let ran = it.run("root", &["systemctl", "reload", "gpukilld"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let refused = it.wait_for_entry("settings-refused", &[]);
    let mistake = refused["GPUKILL_MISTAKE"].as_str().unwrap();
    assert!(mistake.contains("hide_other_user"), "{mistake}");
    assert_eq!(poll_interval_ms(&it), 250);
    assert_eq!(it.main_pid(), daemon);

    assert_stays_failed(&it, mistake);
    it.write(SETTINGS, &changed);
    it.run_as_root(&["systemctl", "start", "gpukilld"]);
    assert_eq!(poll_interval_ms(&it), 250);
}

/// With these settings the daemon does not start, and systemd does not restart it.
fn assert_stays_failed(it: &InstalledBox, mistake: &str) {
    let ran = it.run("root", &["systemctl", "restart", "gpukilld"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    // A unit that is going to be restarted would be "activating" by now.
    let states = ["ActiveState", "Result", "ExecMainStatus", "NRestarts"];
    let states = states.map(|name| it.unit_property("gpukilld", name));
    assert_eq!(states, ["failed", "exit-code", "3", "0"]);
    let ran = it.run("alice", &["gpukillctl", "list"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    eventually("the journal has the reason", || {
        let entries = it.journal(&["_SYSTEMD_UNIT=gpukilld.service", "--lines=10"]);
        let mut texts = entries.iter().filter_map(|entry| entry["MESSAGE"].as_str());
        texts.any(|text| text.contains(mistake)).then_some(())
    });
    let ran = it.run("root", &["gpukilld", "--check-config"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(mistake), "{ran:?}");
}
