//! Who may what on an installed box, and what the journal has of it.

use super::{ADA, ALICE, Installed, OLGA};
use gpukill_tests::harness::{Journald, Login, Ran, eventually};
use serde_json::{Value, json};

#[test]
fn people_end_their_own_operators_anybodys_and_admins_edit_the_rules() {
    let Some(it) = Installed::with("") else {
        return;
    };
    let [own, others, more] = [("alice", "own"), ("bob", "others"), ("bob", "more")]
        .map(|(user, unit)| it.job(user, unit));
    it.lists(&[own, others, more]);
    eventually("all are listed", || {
        let status = it.json("alice", &["list", "-o", "json"]);
        let rows = status["procs"].as_array()?;
        (rows.len() == 3).then_some(())
    });

    let ran = kills(&it, "alice", others, &[]);
    let why = format!(
        "gpukillctl: cannot end process {others}: it belongs to bob\n\
         hint: ask bob, or someone in group gpukill-operators\n"
    );
    assert_eq!((ran.code, ran.stderr), (4, why));
    assert!(it.has(others));
    assert_eq!(kills(&it, "alice", own, &[others, more]).code, 0);
    assert_eq!(kills(&it, "olga", others, &[more]).code, 0);
    assert!(!it.has(own) && !it.has(others) && it.has(more));
    is_in_the_journal(&it, own, others);

    rules_are_edited(&it);
    who_breaks_one_is_told(&it, more);
}

/// Lets a user end this process; when it has gone, the driver lists these.
fn kills(it: &Installed, user: &str, pid: u32, left: &[u32]) -> Ran {
    let target = pid.to_string();
    let command = ["gpukillctl", "kill", &target, "--yes"];
    std::thread::scope(|scope| {
        let kill = scope.spawn(|| it.run(user, &command));
        eventually("it has ended, or nobody ends it", || {
            (!it.has(pid) || kill.is_finished()).then_some(())
        });
        if !it.has(pid) {
            it.lists(left);
        }
        kill.join().unwrap()
    })
}

fn is_in_the_journal(it: &Installed, own: u32, others: u32) {
    let gpukill = it.does(&["id", "--user", "gpukill"]);
    let said = |kind: &str, caller: u32, pid: Option<u32>| {
        let mut fields = vec![format!("GPUKILL_CALLER_UID={caller}"), "ACTION=kill".into()];
        fields.extend(pid.map(|pid| format!("PID={pid}")));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let entry = it.told(kind, &fields);
        assert_eq!(entry["SYSLOG_IDENTIFIER"], "gpukilld");
        assert_eq!(entry["_UID"], gpukill.trim());
        entry
    };
    let refused = said("act-refused", ALICE, None);
    assert_eq!(refused["GPUKILL_ASKED"], others.to_string());
    for (caller, pid) in [(ALICE, own), (OLGA, others)] {
        let begun = said("act-begins", caller, Some(pid));
        let act = format!("GPUKILL_ACT={}", begun["GPUKILL_ACT"].as_str().unwrap());
        let ended = it.told("act-ended", &[&act]);
        assert_eq!(ended["GPUKILL_WORD"], "done");
    }
}

const RULES: &str = "/etc/gpukill/rules/guard.toml";

fn rules_are_edited(it: &Installed) {
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
    assert!(!it.path(RULES).exists());
    let ran = it.run("ada", &edit);
    assert_eq!(ran.code, 0, "{ran:?}");
    let written = std::fs::read_to_string(it.path(RULES)).unwrap();
    assert!(
        written.contains("default_memory_limit_gb = 0.5"),
        "{written}"
    );
    let owner = it.does(&["stat", "--format", "%U:%G", RULES]);
    assert_eq!(owner, "gpukill:gpukill\n");
    let begun = it.told("act-begins", &["ACTION=rules_edit"]);
    assert_eq!(begun["GPUKILL_CALLER_UID"], ADA.to_string());
    eventually("the rules are in force", || {
        let id = format!("MESSAGE_ID={}", Journald::id_of("rules-in-force"));
        let mut entries = it.journal(&[&id]).into_iter();
        // Without a file they have none.
        entries.find(|entry| entry["GPUKILL_REVISION"].is_string())
    });
}

fn who_breaks_one_is_told(it: &Installed, pid: u32) {
    let [login, strangers] = [super::BOB, ALICE].map(|uid| Login::on(&it.root(), uid));
    let ran = it.run("ada", &["gpukillctl", "guard", "soft"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = it.told("owner-told", &[]);
    let fields = ["UID", "ACTION", "GPUKILL_TERMINALS"].map(|name| &told[name]);
    assert_eq!(json!(fields), json!([super::BOB.to_string(), "warn", "1"]));
    let shown = |login: Login| String::from_utf8(login.shown()).unwrap();
    let text = shown(login);
    assert!(
        text.contains(&format!("pid {pid} sleep on GPU 0")),
        "{text:?}"
    );
    assert_eq!(shown(strangers), "");
    let warned = it.told("warned", &[]);
    assert_eq!(warned["RULE"], Value::from("default: memory"));
}
