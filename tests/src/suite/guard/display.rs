//! Display of violations in lists and explanations, and its visibility to other users.

use super::{GIB, guard_violations, set_gpu_processes, write_rules};
use gpukill_tests::harness::{
    NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually, run_as_user, test_uid,
};
use serde_json::{Value, json};

/// The user who runs the tests has a higher limit, and a grace period of an hour.
fn rules() -> String {
    let uid = rustix::process::getuid().as_raw();
    format!(
        "[global]\ndefault_memory_limit_gb = 2\n[enforcement]\ngrace_period_seconds = 3600\n\
         max_warnings = 1\n[user_policies.{uid}]\nmemory_limit_gb = 3\n"
    )
}

/// Waits until this many violations are open.
fn wait_for_violations(test_box: &TestBox, count: usize) -> Value {
    eventually("the number of violations", || {
        let document = guard_violations(test_box);
        (document["open"].as_array()?.len() == count).then_some(document)
    })
}

fn heading(test_box: &TestBox, arguments: &[&str]) -> String {
    let ran = test_box.ctl(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout.lines().next().unwrap_or_default().to_owned()
}

fn wait_for_evaluation(test_box: &TestBox) {
    eventually("samples are evaluated", || {
        let status = test_box.json(&["guard", "status", "-o", "json"]);
        status["evaluated_at"].as_str().map(str::to_owned)
    });
}

#[test]
fn list_counts_and_marks_violations() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, &rules());
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    wait_for_evaluation(&test_box);
    let kept = heading(&test_box, &["list", "--details"]);
    assert!(kept.ends_with(" · guard dry-run"), "{kept}");
    let titles = test_box.table(&["list", "--details"]);
    assert!(!titles.contains("RULE"), "{titles}");
    assert_eq!(test_box.list()["procs"][0]["rules"], json!([]));

    set_gpu_processes(&test_box, &[(process.pid(), 4 * GIB)]);
    let document = wait_for_violations(&test_box, 1);
    let open = &document["open"][0];
    let uid = rustix::process::getuid().as_raw();
    let marked = eventually("it is marked", || {
        let list = test_box.list();
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
        let broken = heading(&test_box, arguments);
        assert!(
            broken.ends_with(" · guard dry-run, 1 violation"),
            "{broken}"
        );
    }
    let table = test_box.table(&["list", "--details"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().contains("  RULE  "), "{table}");
    // The mode is dry-run, so the marker is "would end".
    assert!(
        lines.next().unwrap().contains("  memory, would end "),
        "{table}"
    );
    let ran = test_box.ctl(&["list", "--details", "-o", "csv"]);
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert!(rows[0].contains(",rule,rule_mode,rule_deadline,rule_would_have_ended_at,rule_sole,"));
    let mark = format!(",user {uid}: memory,dry-run,{deadline},,true,");
    assert!(rows[1].contains(&mark), "{ran:?}");
    daemon.stop();
}

#[test]
fn disabled_guard_is_not_shown() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, &rules());
    set_gpu_processes(&test_box, &[(process.pid(), 4 * GIB)]);
    let daemon = test_box.start();
    wait_for_violations(&test_box, 1);
    assert_eq!(test_box.ctl(&["guard", "disable"]).code, 0);
    wait_for_violations(&test_box, 0);
    let list = test_box.list();
    assert_eq!(list["guard"]["mode"], json!("disabled"));
    assert_eq!(list["procs"][0]["rules"], json!([]));
    let off = heading(&test_box, &["list", "--details"]);
    assert!(!off.contains("guard"), "{off}");
    let explained = test_box.json(&["explain", &process.pid().to_string(), "-o", "json"]);
    assert_eq!(
        explained["guard"],
        json!({
            "mode": "disabled", "open": [], "would_have_ended": [], "limits": [], "protected": null
        })
    );
    daemon.stop();
}

#[test]
fn explain_shows_violated_and_replaced_rules() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, &rules());
    set_gpu_processes(&test_box, &[(process.pid(), 4 * GIB)]);
    let daemon = test_box.start();
    wait_for_violations(&test_box, 1);
    let pid = process.pid().to_string();
    let uid = rustix::process::getuid().as_raw();
    // The measured value is that of the newest sample, so both documents must show the same
    // sample.
    let explained = eventually("both show one sample", || {
        let explained = test_box.json(&["explain", &pid, "-o", "json"]);
        (explained["guard"]["open"] == guard_violations(&test_box)["open"]).then_some(explained)
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
        test_box.list()["procs"][0]["rules"]
    );
    let rule = format!("\n rule     user {uid}: memory · 4.0G of 3.0G since ");
    let ran = eventually("the memory of the process is known", || {
        let ran = test_box.ctl(&["explain", &pid]);
        ran.stdout.contains(&rule).then_some(ran)
    });
    let limits = format!("\n limits   memory 3.0G by user {uid}; replaces the default's 2.0G\n");
    assert!(ran.stdout.contains(&limits), "{ran:?}");
    daemon.stop();
}

#[test]
fn hidden_users_violations_are_not_shown() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure("[access]\nhide_other_users = true");
    write_rules(&test_box, &rules());
    let own = run_as_user(NOBODY_UID, &[], || TestProcess::start("own"));
    let other = TestProcess::start("other");
    set_gpu_processes(&test_box, &[(own.pid(), 4 * GIB), (other.pid(), 5 * GIB)]);
    let daemon = test_box.start();
    wait_for_violations(&test_box, 2);
    // The view of a stranger, of the owner and of root.
    let seen = |uid: u32| {
        run_as_user(uid, &[], || {
            let list = test_box.list();
            let procs = list["procs"].as_array().unwrap().iter();
            let marked = procs.filter(|row| row["rules"] != json!([]));
            let marked: Vec<Value> = marked.map(|row| row["pid"].clone()).collect();
            let page = guard_violations(&test_box);
            let owners_in = |part: &str| {
                let rows = page[part].as_array().unwrap().iter();
                let owners: std::collections::BTreeSet<String> =
                    rows.map(|row| row["owner_uid"].to_string()).collect();
                owners.into_iter().collect::<Vec<_>>().join(" ")
            };
            json!({
                "listed": list["guard"]["open"], "marked": marked,
                "counted": test_box.json(&["status", "-o", "json"])["guard"]["open"],
                "open": owners_in("open"), "records": owners_in("records"),
            })
        })
    };
    let expected = |count: u32, marked: &[u32], owners: &str| {
        json!({
            "listed": count, "marked": marked, "counted": count, "open": owners, "records": owners,
        })
    };
    assert_eq!(seen(test_uid(0)), expected(0, &[], ""));
    let nobody = NOBODY_UID.to_string();
    assert_eq!(seen(NOBODY_UID), expected(1, &[own.pid()], &nobody));
    let mut both = [own.pid(), other.pid()];
    both.sort_by_key(|pid| {
        let list = test_box.list();
        let procs = list["procs"].as_array().unwrap().clone();
        procs.iter().position(|row| row["pid"] == json!(pid))
    });
    assert_eq!(seen(0), expected(2, &both, &format!("0 {nobody}")));

    let explained = |uid: u32, pid: u32| {
        run_as_user(uid, &[], || {
            test_box.json(&["explain", &pid.to_string(), "-o", "json"])
        })
    };
    let hidden = explained(NOBODY_UID, other.pid());
    assert_eq!(hidden["guard"], Value::Null);
    assert!(
        hidden["reasons"]["guard"]
            .as_str()
            .is_some_and(|why| why.starts_with("withheld")),
        "{hidden}"
    );
    assert_eq!(hidden["procs"][0]["rules"], json!([]));
    let shown = explained(NOBODY_UID, own.pid());
    assert_eq!(shown["guard"]["open"][0]["owner_uid"], json!(NOBODY_UID));
    daemon.stop();
}

#[test]
fn own_warning_is_shown_below_list() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    let uid = rustix::process::getuid().as_raw();
    let rules = format!(
        "[global]\ndry_run = false\n[user_policies.{uid}]\nmemory_limit_gb = 3\naction = \"warn\"\n\
         message = \"Ask in #gpus for more.\"\n"
    );
    write_rules(&test_box, &rules);
    set_gpu_processes(&test_box, &[(process.pid(), 4 * GIB)]);
    let daemon = test_box.start();
    wait_for_violations(&test_box, 1);
    let pid = process.pid();
    let expected = format!(
        "your job {pid} breaks a rule (user {uid}: memory, 4.0G of 3.0G), and is not ended for it: \
         gpukillctl explain {pid}\n  Ask in #gpus for more.\n"
    );
    for command in ["list", "status"] {
        eventually("the warning is shown", || {
            let ran = test_box.ctl(&[command, "--width", "200"]);
            ran.stdout.contains(&expected).then_some(())
        });
    }
    // Dry run warns no user.
    assert_eq!(test_box.ctl(&["guard", "dry-run"]).code, 0);
    eventually("no warning is shown", || {
        let ran = test_box.ctl(&["list"]);
        (!ran.stdout.contains("breaks a rule")).then_some(())
    });
    daemon.stop();
}
