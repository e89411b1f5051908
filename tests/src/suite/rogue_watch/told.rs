//! Who learns of whoever is found: the journal, and those who may see what others do.

use super::{Scene, sleeps};
use gpukill_tests::harness::{Journald, NOBODY, acting_as, becomes, can_act_as_others, eventually};
use serde_json::json;
use std::process::Command;

#[test]
fn the_journal_has_one_entry_for_whoever_is_found() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let mut scene = Scene::new();
    // What it is told about itself forges no other entry, and no other field.
    let program = scene.program("bin", "xmrig");
    let mut miner = Command::new("bash");
    let script = format!(
        "exec -a $'x\\nMESSAGE=y\\nPID=1' {} 1000",
        program.display()
    );
    miner.args(["-c", &script]);
    let pid = scene.plays("miner", &mut miner);
    let daemon = journald.starts(&scene.stage, &scene.stage.daemon());
    let id = format!("MESSAGE_ID={}", Journald::id_of("rogue-found"));
    let found = || journald.entries(&[&id]);
    becomes(&1, || found().len());
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
    let signs = entry["GPUKILL_SIGNS"].as_str().unwrap();
    assert!(signs.starts_with("miner_name"), "{signs}");
    daemon.stop();
    assert_eq!(found().len(), 1);
}

#[test]
fn where_others_doings_are_hidden_nobody_learns_who_is_a_rogue() {
    if !can_act_as_others() {
        return;
    }
    for (hide, is_seen) in [(false, true), (true, false)] {
        let mut scene = Scene::new();
        let more = format!("[access]\nhide_other_users = {hide}");
        scene.stage.configure(&more);
        let program = scene.program("bin", "xmrig");
        let pid = scene.plays("miner", &mut sleeps(&program));
        let _daemon = scene.stage.start();
        eventually("it is found", || scene.taken()["miner"].clone());
        let _store_is_open = scene.scanned();
        let asked = |what: &[&str]| {
            let (what, stage) = ([what, &["-o", "json"]].concat(), &scene.stage);
            acting_as(NOBODY, &[], || stage.json(&what))
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
        // And when it is gone.
        scene.cast.clear();
        eventually("it is over", || {
            let scanned = scene.scanned();
            (scanned["findings"][0]["present"] == json!(false)).then_some(())
        });
        let stage = &scene.stage;
        let scanned = acting_as(NOBODY, &[], || stage.json(&["rogue", "scan", "-o", "json"]));
        let findings = scanned["findings"].as_array().unwrap();
        assert_eq!(!findings.is_empty(), is_seen, "{scanned}");
    }
}
