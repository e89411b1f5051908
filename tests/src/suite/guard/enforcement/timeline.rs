//! `audit timeline` tells the owner of an ended job why it ended, also where other users are
//! hidden.

use super::{GuardBox, RESPAWNING_JOB};
use gpukill_tests::harness::{Script, can_run_as_other_users, eventually, run_as_user, test_uid};
use serde_json::{Value, json};

const ALICE: u32 = test_uid(101);
const BOB: u32 = test_uid(102);

/// What happened to the process, in a word or two each.
fn words(entries: &[Value]) -> Vec<String> {
    let word = |entry: &Value| match entry["event"].as_str().unwrap() {
        "guard" => entry["record"]["step"].as_str().unwrap().to_owned(),
        "action" => entry["record"]["kind"].as_str().unwrap().to_owned(),
        "ended" => entry["end"].as_str().unwrap().to_owned(),
        event => event.to_owned(),
    };
    entries.iter().map(word).collect()
}

#[test]
fn timeline_explains_an_ended_job() {
    if !can_run_as_other_users() {
        return;
    }
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\ngrace_period_seconds = 3\nmax_warnings = 1\n";
    let Some(test_box) = GuardBox::test_box_with_rules(rules) else {
        return;
    };
    test_box.configure("[access]\nhide_other_users = true");
    let mut daemon = test_box.daemon_command();
    let it = GuardBox::start(test_box, &mut daemon);
    // Creates the links in the box's directory as root.
    drop(Script::run(&it.test_box, "true"));
    let job = run_as_user(ALICE, &[], || Script::run(&it.test_box, RESPAWNING_JOB));
    let [_, worker] = job.next_pids();
    it.driver.add_processes(&[worker]);
    let pid = worker.to_string();
    let ask = |uid: u32, arguments: &[&str]| {
        let arguments = [&["audit", "timeline", "--pid", &pid], arguments].concat();
        run_as_user(uid, &[], || it.test_box.ctl(&arguments))
    };
    let document = |uid: u32| {
        let ran = ask(uid, &["-o", "json"]);
        let document: Option<Value> = serde_json::from_str(&ran.stdout).ok();
        let entries = document.and_then(|it| it["entries"].as_array().cloned());
        entries.unwrap_or_default()
    };
    let entries = eventually("the end of the job is recorded", || {
        let entries = document(ALICE);
        let has = |word: &str| words(&entries).iter().any(|it| it == word);
        (has("killed") && has("outcome")).then_some(entries)
    });
    let found = words(&entries);
    let steps = ["started", "violated", "warned", "ended", "kill", "killed"];
    let mut positions = steps.map(|step| found.iter().position(|it| it == step));
    // The daemon starts before the process does.
    positions[0] = entries.iter().position(|it| it["event"] == "started");
    assert!(positions.iter().all(Option::is_some), "{found:?}");
    assert!(positions.is_sorted(), "{found:?}");
    let at = |event: &str| entries.iter().find(|it| it["event"] == event).unwrap();
    let (started, ended) = (at("started"), at("ended"));
    assert_eq!(
        (&started["pid"], &started["gpu_indices"]),
        (&json!(worker), &json!([0]))
    );
    assert!(started["command"].is_string(), "{started:#}");
    let of_kill = |entries: &[Value]| {
        let mut kills = entries.iter().filter(|it| it["record"]["kind"] == "kill");
        kills.next().unwrap()["record"].clone()
    };
    let kill = of_kill(&entries);
    assert_eq!(kill["id"], ended["action_id"]);
    // The guard requested it, and other users are hidden.
    assert_eq!((&kill["what"], &kill["plan"]), (&Value::Null, &Value::Null));
    // Positions are the order of time.
    let times: Vec<&str> = entries
        .iter()
        .filter_map(|it| it["timestamp"].as_str())
        .collect();
    assert!(times.is_sorted(), "{times:?}");

    let of_root = document(0);
    assert_eq!(of_kill(&of_root)["what"], "guard: default: memory");
    let of_bob = document(BOB);
    let found = words(&of_bob);
    let is_of_guard = |it: &Value| it["event"] == "guard";
    assert!(!of_bob.iter().any(is_of_guard), "{found:?}");
    let hidden = of_bob.iter().find(|it| it["event"] == "started").unwrap();
    assert_eq!(hidden["command"], Value::Null);

    let screen = ask(0, &["--width", "120"]).stdout;
    let has = |parts: &[&str]| {
        let mut lines = screen.lines();
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let action = format!("by guard (action {})", kill["id"]);
    for parts in [
        ["  started  ", &pid],
        ["  violation  ", "default: memory"],
        ["  warned  ", "the job ends "],
        ["  ended  ", &action],
    ] {
        assert!(has(&parts), "{parts:?}\n{screen}");
    }
    // The line of the kill names its processes, unless they are hidden.
    assert!(!screen.contains("  killed  "), "{screen}");
    let screen = ask(ALICE, &["--width", "120"]).stdout;
    assert!(screen.contains("  killed  "), "{screen}");
    assert_eq!(ask(0, &["--until", "1h ago"]).code, 8);
    it.daemon.stop();
}
