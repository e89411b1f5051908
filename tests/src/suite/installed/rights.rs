//! The rights of users, operators and admins on an installed box, and their actions in the
//! journal.

use super::{ADMIN_UID, ALICE_UID, InstalledBox, OPERATOR_UID};
use gpukill_tests::harness::{CommandOutput, Journald, LoginTerminal, eventually};
use serde_json::{Value, json};

#[test]
fn users_operators_and_admins_have_their_rights() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let [own, others, more] = [("alice", "own"), ("bob", "others"), ("bob", "more")]
        .map(|(user, unit)| it.start_job(user, unit));
    it.list_processes(&[own, others, more]);
    eventually("all are listed", || {
        let status = it.json("alice", &["list", "-o", "json"]);
        let rows = status["procs"].as_array()?;
        (rows.len() == 3).then_some(())
    });

    let ran = kill_as(&it, "alice", others, &[]);
    let why = format!(
        "gpukillctl: cannot end process {others}: it belongs to bob\n\
         hint: ask bob, or someone in group gpukill-operators\n"
    );
    assert_eq!((ran.code, ran.stderr), (4, why));
    assert!(it.process_exists(others));
    assert_eq!(kill_as(&it, "alice", own, &[others, more]).code, 0);
    assert_eq!(kill_as(&it, "olga", others, &[more]).code, 0);
    assert!(!it.process_exists(own) && !it.process_exists(others) && it.process_exists(more));
    assert_kills_are_in_journal(&it, own, others);

    assert_only_admins_edit_rules(&it);
    assert_violator_is_warned(&it, more);
}

/// Runs a kill as this user; when the process has ended, the driver lists only `left`.
fn kill_as(it: &InstalledBox, user: &str, pid: u32, left: &[u32]) -> CommandOutput {
    let target = pid.to_string();
    let command = ["gpukillctl", "kill", &target, "--yes"];
    std::thread::scope(|scope| {
        let kill = scope.spawn(|| it.run(user, &command));
        eventually("the process has ended, or the kill was refused", || {
            (!it.process_exists(pid) || kill.is_finished()).then_some(())
        });
        if !it.process_exists(pid) {
            it.list_processes(left);
        }
        kill.join().unwrap()
    })
}

fn assert_kills_are_in_journal(it: &InstalledBox, own: u32, others: u32) {
    let gpukill = it.run_as_root(&["id", "--user", "gpukill"]);
    let find_entry = |kind: &str, caller: u32, pid: Option<u32>| {
        let mut fields = vec![format!("GPUKILL_CALLER_UID={caller}"), "ACTION=kill".into()];
        fields.extend(pid.map(|pid| format!("PID={pid}")));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let entry = it.wait_for_entry(kind, &fields);
        assert_eq!(entry["SYSLOG_IDENTIFIER"], "gpukilld");
        assert_eq!(entry["_UID"], gpukill.trim());
        entry
    };
    let refused = find_entry("action-refused", ALICE_UID, None);
    assert_eq!(refused["GPUKILL_REQUEST"], others.to_string());
    for (caller, pid) in [(ALICE_UID, own), (OPERATOR_UID, others)] {
        let begin_entry = find_entry("action-started", caller, Some(pid));
        let action = format!(
            "GPUKILL_ACTION_ID={}",
            begin_entry["GPUKILL_ACTION_ID"].as_str().unwrap()
        );
        let ended = it.wait_for_entry("action-ended", &[&action]);
        assert_eq!(ended["GPUKILL_RESULT"], "done");
    }
}

const RULES_FILE: &str = "/etc/gpukill/rules/guard.toml";

fn assert_only_admins_edit_rules(it: &InstalledBox) {
    let edit = [
        "gpukillctl",
        "guard",
        "set",
        "global.default_memory_limit_gb",
        "0.5",
    ];
    for user in ["alice", "olga"] {
        let ran = it.run(user, &edit);
        assert_eq!(ran.code, 4, "{ran:?}");
    }
    assert!(!it.path(RULES_FILE).exists());
    let ran = it.run("ada", &edit);
    assert_eq!(ran.code, 0, "{ran:?}");
    let written = std::fs::read_to_string(it.path(RULES_FILE)).unwrap();
    assert!(
        written.contains("default_memory_limit_gb = 0.5"),
        "{written}"
    );
    let owner = it.run_as_root(&["stat", "--format", "%U:%G", RULES_FILE]);
    assert_eq!(owner, "gpukill:gpukill\n");
    let begin_entry = it.wait_for_entry("action-started", &["ACTION=rules_edit"]);
    assert_eq!(begin_entry["GPUKILL_CALLER_UID"], ADMIN_UID.to_string());
    eventually("the rules are in force", || {
        let id = format!("MESSAGE_ID={}", Journald::message_id("rules-in-force"));
        let mut entries = it.journal(&[&id]).into_iter();
        // Without a rules file the entry has no revision.
        entries.find(|entry| entry["GPUKILL_REVISION"].is_string())
    });
}

fn assert_violator_is_warned(it: &InstalledBox, pid: u32) {
    let [login, strangers] =
        [super::BOB_UID, ALICE_UID].map(|uid| LoginTerminal::new_below_root(&it.root(), uid));
    let ran = it.run("ada", &["gpukillctl", "guard", "soft", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let entry = it.wait_for_entry("owner-notified", &[]);
    let fields = ["UID", "ACTION", "GPUKILL_TERMINALS"].map(|name| &entry[name]);
    assert_eq!(
        json!(fields),
        json!([super::BOB_UID.to_string(), "warn", "1"])
    );
    let shown = |login: LoginTerminal| String::from_utf8(login.into_output()).unwrap();
    let text = shown(login);
    assert!(
        text.contains(&format!("pid {pid} sleep on GPU 0")),
        "{text:?}"
    );
    assert_eq!(shown(strangers), "");
    let warned = it.wait_for_entry("warned", &[]);
    assert_eq!(warned["RULE"], Value::from("default: memory"));
}
