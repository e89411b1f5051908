//! Where rogue findings appear: in the journal, and for callers who may see processes of
//! other users.

use super::{RogueBox, sleep_command};
use gpukill_tests::harness::{
    Journald, NOBODY_UID, can_run_as_other_users, eventually, eventually_equals, run_as_user,
};
use serde_json::json;
use std::process::Command;

#[test]
fn finding_is_one_journal_entry() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let mut rogue_box = RogueBox::new();
    // The name of the process forges neither another entry nor another field.
    let program = rogue_box.create_program("bin", "xmrig");
    let mut miner = Command::new("bash");
    let script = format!(
        "exec -a $'x\\nMESSAGE=y\\nPID=1' {} 1000",
        program.display()
    );
    miner.args(["-c", &script]);
    let pid = rogue_box.start_on_gpu("miner", &mut miner);
    let daemon = journald.start_daemon(&rogue_box.test_box, &rogue_box.test_box.daemon_command());
    let id = format!("MESSAGE_ID={}", Journald::message_id("rogue-found"));
    let found = || journald.entries(&[&id]);
    eventually_equals(&1, || found().len());
    let entry = found().remove(0);
    let uid = rustix::process::geteuid().as_raw().to_string();
    for (field, expected) in [
        ("PRIORITY", "4"),
        ("GPUKILL_THREAT", "crypto_miner"),
        ("GPUKILL_RISK", "high"),
        ("PID", &pid.to_string()),
        ("UID", &uid),
        ("GPU_UUID", "GPU-00000000-0000-0000-0000-000000000000"),
    ] {
        assert_eq!(entry[field], expected, "{field}: {entry}");
    }
    let indicators = entry["GPUKILL_INDICATORS"].as_str().unwrap();
    assert!(indicators.starts_with("miner_name"), "{indicators}");
    daemon.stop();
    assert_eq!(found().len(), 1);
}

#[test]
fn hidden_users_hide_rogue_findings() {
    if !can_run_as_other_users() {
        return;
    }
    for (hide, is_seen) in [(false, true), (true, false)] {
        let mut rogue_box = RogueBox::new();
        let more = format!("[access]\nhide_other_users = {hide}");
        rogue_box.test_box.configure(&more);
        let program = rogue_box.create_program("bin", "xmrig");
        let pid = rogue_box.start_on_gpu("miner", &mut sleep_command(&program));
        let _daemon = rogue_box.test_box.start();
        eventually("it is found", || rogue_box.listed_risks()["miner"].clone());
        let _store_is_open = rogue_box.scan();
        let asked = |what: &[&str]| {
            let (what, test_box) = ([what, &["-o", "json"]].concat(), &rogue_box.test_box);
            run_as_user(NOBODY_UID, &[], || test_box.json(&what))
        };
        let list = asked(&["list"]);
        assert_eq!(list["procs"][0]["rogue"].is_object(), is_seen, "{list}");
        let scanned = asked(&["rogue", "scan"]);
        let findings = scanned["findings"].as_array().unwrap();
        assert_eq!(!findings.is_empty(), is_seen, "{scanned}");
        let status = asked(&["status"]);
        assert_eq!(status["rogue"]["findings"] == json!(1), is_seen, "{status}");
        assert_eq!(status["rogue"]["worst"].is_string(), is_seen, "{status}");
        let explained = asked(&["explain", &pid.to_string()]);
        assert_eq!(explained["rogue"].is_object(), is_seen, "{explained}");
        // The same holds after the process has ended.
        rogue_box.processes.clear();
        eventually("it is over", || {
            let scanned = rogue_box.scan();
            (scanned["findings"][0]["present"] == json!(false)).then_some(())
        });
        let test_box = &rogue_box.test_box;
        let scanned = run_as_user(NOBODY_UID, &[], || {
            test_box.json(&["rogue", "scan", "-o", "json"])
        });
        let findings = scanned["findings"].as_array().unwrap();
        assert_eq!(!findings.is_empty(), is_seen, "{scanned}");
    }
}
