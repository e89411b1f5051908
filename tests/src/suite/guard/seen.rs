//! Who breaks a rule is seen where people look: in lists, in explanations, and not by
//! whoever may not see others.

use super::{GIB, has_rules, plays, violations};
use gpukill_tests::harness::{
    Actor, NOBODY, Stage, acting_as, can_act_as_others, eventually, user,
};
use serde_json::{Value, json};

/// Whoever runs the tests may have more than others, and an hour to give it back.
fn rules() -> String {
    let uid = rustix::process::getuid().as_raw();
    format!(
        "[global]\ndefault_memory_limit_gb = 2\n[enforcement]\ngrace_period_seconds = 3600\n\
         max_warnings = 1\n[user_policies.{uid}]\nmemory_limit_gb = 3\n"
    )
}

/// Waits until so many violations go on.
fn goes_on(stage: &Stage, count: usize) -> Value {
    eventually("a rule is broken, or not", || {
        let document = violations(stage);
        (document["open"].as_array()?.len() == count).then_some(document)
    })
}

fn heading(stage: &Stage, arguments: &[&str]) -> String {
    let ran = stage.ctl(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout.lines().next().unwrap_or_default().to_owned()
}

fn judged(stage: &Stage) {
    eventually("samples are judged", || {
        let status = stage.json(&["guard", "status", "-o", "json"]);
        status["judged_at"].as_str().map(str::to_owned)
    });
}

#[test]
fn a_list_counts_violations_and_marks_whoever_breaks_a_rule() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, &rules());
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    judged(&stage);
    let kept = heading(&stage, &["list", "--details"]);
    assert!(kept.ends_with(" · guard dry-run"), "{kept}");
    let titles = stage.table(&["list", "--details"]);
    assert!(!titles.contains("RULE"), "{titles}");
    assert_eq!(stage.list()["procs"][0]["rules"], json!([]));

    plays(&stage, &[(actor.pid(), 4 * GIB)]);
    let document = goes_on(&stage, 1);
    let open = &document["open"][0];
    let uid = rustix::process::getuid().as_raw();
    let marked = eventually("it is marked", || {
        let list = stage.list();
        (list["guard"]["open"] == json!(1)).then_some(list)
    });
    assert_eq!(
        marked["guard"],
        json!({"mode": "dry-run", "stopped": false, "has_rules": true, "open": 1, "would_have_ended": 0})
    );
    let deadline = open["deadline"].as_str().unwrap();
    assert_eq!(
        marked["procs"][0]["rules"],
        json!([{
            "rule": format!("user {uid}: memory"), "source": format!("user {uid}"),
            "kind": "memory", "mode": "dry-run", "deadline": deadline,
            "would_have_ended_at": null, "sole": true
        }])
    );
    for arguments in [&["list"][..], &["list", "--details"]] {
        let broken = heading(&stage, arguments);
        assert!(
            broken.ends_with(" · guard dry-run, 1 violation"),
            "{broken}"
        );
    }
    let table = stage.table(&["list", "--details"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().contains("  RULE  "), "{table}");
    // In a dry run nobody is ended.
    assert!(
        lines.next().unwrap().contains("  memory, would end "),
        "{table}"
    );
    let ran = stage.ctl(&["list", "--details", "-o", "csv"]);
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert!(rows[0].contains(",rule,rule_mode,rule_deadline,rule_would_have_ended_at,rule_sole,"));
    let mark = format!(",user {uid}: memory,dry-run,{deadline},,true,");
    assert!(rows[1].contains(&mark), "{ran:?}");
    daemon.stop();
}

#[test]
fn a_guard_that_is_off_is_not_spoken_of() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, &rules());
    plays(&stage, &[(actor.pid(), 4 * GIB)]);
    let daemon = stage.start();
    goes_on(&stage, 1);
    assert_eq!(stage.ctl(&["guard", "disable"]).code, 0);
    goes_on(&stage, 0);
    let list = stage.list();
    assert_eq!(list["guard"]["mode"], json!("disabled"));
    assert_eq!(list["procs"][0]["rules"], json!([]));
    let off = heading(&stage, &["list", "--details"]);
    assert!(!off.contains("guard"), "{off}");
    let explained = stage.json(&["explain", &actor.pid().to_string(), "-o", "json"]);
    assert_eq!(
        explained["guard"],
        json!({
            "mode": "disabled", "open": [], "would_have_ended": [], "limits": [],
            "judged_as": "owner", "login": null, "protected": null
        })
    );
    daemon.stop();
}

#[test]
fn explain_tells_the_rules_that_are_broken_and_which_replace_which() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, &rules());
    plays(&stage, &[(actor.pid(), 4 * GIB)]);
    let daemon = stage.start();
    goes_on(&stage, 1);
    let pid = actor.pid().to_string();
    let uid = rustix::process::getuid().as_raw();
    // The number that was measured is of the newest sample.
    let explained = eventually("both are of one sample", || {
        let explained = stage.json(&["explain", &pid, "-o", "json"]);
        (explained["guard"]["open"] == violations(&stage)["open"]).then_some(explained)
    });
    assert_eq!(
        explained["guard"]["limits"],
        json!([{
            "rule": format!("user {uid}: memory"), "source": format!("user {uid}"),
            "kind": "memory", "limit": 3 * GIB,
            "replaces": [
                {"rule": "default: memory", "source": "default", "limit": 2 * GIB}
            ]
        }])
    );
    assert_eq!(
        explained["procs"][0]["rules"],
        stage.list()["procs"][0]["rules"]
    );
    let rule = format!("\n rule     user {uid}: memory · 4.0G of 3.0G since ");
    let ran = eventually("all that it holds is known", || {
        let ran = stage.ctl(&["explain", &pid]);
        ran.stdout.contains(&rule).then_some(ran)
    });
    let limits = format!("\n limits   memory 3.0G by user {uid}; replaces the default's 2.0G\n");
    assert!(ran.stdout.contains(&limits), "{ran:?}");
    daemon.stop();
}

#[test]
fn whoever_may_not_see_others_sees_their_own_violations_alone() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure("[access]\nhide_other_users = true");
    has_rules(&stage, &rules());
    let own = acting_as(NOBODY, &[], || Actor::start("own"));
    let other = Actor::start("other");
    plays(&stage, &[(own.pid(), 4 * GIB), (other.pid(), 5 * GIB)]);
    let daemon = stage.start();
    goes_on(&stage, 2);
    // Whom a stranger, the person and root see.
    let seen = |uid: u32| {
        acting_as(uid, &[], || {
            let list = stage.list();
            let procs = list["procs"].as_array().unwrap().iter();
            let marked = procs.filter(|row| row["rules"] != json!([]));
            let marked: Vec<Value> = marked.map(|row| row["pid"].clone()).collect();
            let page = violations(&stage);
            let told = |part: &str| {
                let rows = page[part].as_array().unwrap().iter();
                let owners: std::collections::BTreeSet<String> =
                    rows.map(|row| row["owner_uid"].to_string()).collect();
                owners.into_iter().collect::<Vec<_>>().join(" ")
            };
            json!({
                "listed": list["guard"]["open"], "marked": marked,
                "counted": stage.json(&["status", "-o", "json"])["guard"]["open"],
                "open": told("open"), "records": told("records"),
            })
        })
    };
    let expected = |count: u32, marked: &[u32], told: &str| {
        json!({
            "listed": count, "marked": marked, "counted": count, "open": told, "records": told,
        })
    };
    assert_eq!(seen(user(0)), expected(0, &[], ""));
    let nobody = NOBODY.to_string();
    assert_eq!(seen(NOBODY), expected(1, &[own.pid()], &nobody));
    let mut both = [own.pid(), other.pid()];
    both.sort_by_key(|pid| {
        let list = stage.list();
        let procs = list["procs"].as_array().unwrap().clone();
        procs.iter().position(|row| row["pid"] == json!(pid))
    });
    assert_eq!(seen(0), expected(2, &both, &format!("0 {nobody}")));

    let explained = |uid: u32, pid: u32| {
        acting_as(uid, &[], || {
            stage.json(&["explain", &pid.to_string(), "-o", "json"])
        })
    };
    let hidden = explained(NOBODY, other.pid());
    assert_eq!(hidden["guard"], Value::Null);
    assert!(
        hidden["reasons"]["guard"]
            .as_str()
            .is_some_and(|why| why.starts_with("withheld")),
        "{hidden}"
    );
    assert_eq!(hidden["procs"][0]["rules"], json!([]));
    let shown = explained(NOBODY, own.pid());
    assert_eq!(shown["guard"]["open"][0]["owner_uid"], json!(NOBODY));
    daemon.stop();
}

#[test]
fn whoever_breaks_a_rule_that_only_warns_reads_so_below_list_and_status() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    let uid = rustix::process::getuid().as_raw();
    let rules = format!(
        "[global]\ndry_run = false\n[user_policies.{uid}]\nmemory_limit_gb = 3\naction = \"warn\"\n\
         message = \"Ask in #gpus for more.\"\n"
    );
    has_rules(&stage, &rules);
    plays(&stage, &[(actor.pid(), 4 * GIB)]);
    let daemon = stage.start();
    goes_on(&stage, 1);
    let pid = actor.pid();
    let expected = format!(
        "your job {pid} breaks a rule (user {uid}: memory), and is not ended for it: gpukillctl \
         explain {pid}\n  Ask in #gpus for more.\n"
    );
    for command in ["list", "status"] {
        eventually("it stands there", || {
            let ran = stage.ctl(&[command, "--width", "200"]);
            ran.stdout.contains(&expected).then_some(())
        });
    }
    // A dry run warns nobody.
    assert_eq!(stage.ctl(&["guard", "dry-run"]).code, 0);
    eventually("nobody is warned", || {
        let ran = stage.ctl(&["list"]);
        (!ran.stdout.contains("breaks a rule")).then_some(())
    });
    daemon.stop();
}
