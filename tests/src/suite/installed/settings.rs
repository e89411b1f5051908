//! Settings of an installed daemon: read again on request, and never guessed.

use super::Installed;
use gpukill_tests::harness::{becomes, eventually};

const SETTINGS: &str = "/etc/gpukill/gpukilld.toml";

/// How often it polls, in milliseconds.
fn interval(it: &Installed) -> u64 {
    let status = it.json("alice", &["status", "-o", "json"]);
    status["poll_interval_ms"].as_u64().unwrap()
}

#[test]
fn a_reload_takes_changed_settings_and_keeps_the_old_ones_where_they_are_wrong() {
    let Some(it) = Installed::with("") else {
        return;
    };
    let daemon = it.main_pid();
    assert_eq!(interval(&it), 100);
    let text = std::fs::read_to_string(it.path(SETTINGS)).unwrap();
    let changed = text.replace("\"100ms\"", "\"250ms\"");
    it.write(SETTINGS, &changed);
    it.does(&["systemctl", "reload", "gpukilld"]);
    becomes(&250, || interval(&it));
    it.told("settings-reloaded", &[]);

    it.write(
        SETTINGS,
        &format!("{text}[access]\nhide_other_user = true\n"),
    );
    let ran = it.run("root", &["systemctl", "reload", "gpukilld"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let refused = it.told("settings-refused", &[]);
    let mistake = refused["GPUKILL_MISTAKE"].as_str().unwrap();
    assert!(mistake.contains("hide_other_user"), "{mistake}");
    assert_eq!(interval(&it), 250);
    assert_eq!(it.main_pid(), daemon);

    stops_for_good(&it, mistake);
    it.write(SETTINGS, &changed);
    it.does(&["systemctl", "start", "gpukilld"]);
    assert_eq!(interval(&it), 250);
}

/// With these settings it does not start, and nobody tries again.
fn stops_for_good(it: &Installed, mistake: &str) {
    let ran = it.run("root", &["systemctl", "restart", "gpukilld"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    // One that is to be started again would be "activating" by now.
    let states = ["ActiveState", "Result", "ExecMainStatus", "NRestarts"];
    let states = states.map(|name| it.property("gpukilld", name));
    assert_eq!(states, ["failed", "exit-code", "3", "0"]);
    let ran = it.run("alice", &["gpukillctl", "list"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    eventually("the journal says why", || {
        let entries = it.journal(&["_SYSTEMD_UNIT=gpukilld.service", "--lines=10"]);
        let mut texts = entries.iter().filter_map(|entry| entry["MESSAGE"].as_str());
        texts.any(|text| text.contains(mistake)).then_some(())
    });
    let ran = it.run("root", &["gpukilld", "--check-config"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(mistake), "{ran:?}");
}
