//! Simulated ends: after one, the violation of the job stays open and shows the simulated end.

use super::{GIB, guard_violations, record_fields, set_gpu_processes, write_rules};
use gpukill_tests::harness::{TestBox, TestProcess, eventually};
use serde_json::{Value, json};

/// Grace period of 2 s; a violation is over after 1.2 s below the limit.
const RULES: &str = "[global]\ndefault_memory_limit_gb = 2\n\
    [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n\
    settled_after_minutes = 0.02\n";

/// The lines of the output with "would have ended".
fn would_have_ended_lines(test_box: &TestBox, arguments: &[&str]) -> Vec<String> {
    let ran = test_box.ctl(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let lines = ran.stdout.lines();
    let found = lines.filter(|line| line.contains("would have ended"));
    found.map(str::to_owned).collect()
}

/// Checks that all commands report the simulated end of this process at this time.
fn assert_simulated_end_shown(test_box: &TestBox, pid: u32, ended: &Value) {
    let list = eventually("it is marked in the list", || {
        let list = test_box.list();
        let rules = list["procs"][0]["rules"].as_array()?;
        (!rules.is_empty()).then_some(list)
    });
    let document = guard_violations(test_box);
    let gone = &document["would_have_ended"];
    let victim = &ended["victim"];
    assert_eq!(document["open"].as_array().map(Vec::len), Some(1));
    assert_eq!(document["open"][0]["ended_at"], ended["timestamp"]);
    assert_eq!(gone.as_array().map(Vec::len), Some(1), "{gone}");
    assert_eq!(
        (&gone[0]["rule"], &gone[0]["mode"], &gone[0]["ended_at"]),
        (
            &json!("default: memory"),
            &json!("dry-run"),
            &ended["timestamp"]
        )
    );
    assert_eq!(gone[0]["evidence"]["value"], ended["evidence"]["value"]);
    assert_eq!(gone[0]["evidence"]["procs"], victim["procs"]);
    assert_eq!(gone[0]["owner_uid"], victim["owner_uid"]);

    assert_eq!(
        list["guard"],
        json!({"mode": "dry-run", "stopped": false, "has_rules": true, "open": 1, "would_have_ended": 1})
    );
    assert_eq!(
        list["procs"][0]["rules"],
        json!([{
            "rule": "default: memory", "source": "default", "kind": "memory",
            "mode": "dry-run", "deadline": null, "would_have_ended_at": ended["timestamp"],
            "sole": true
        }])
    );
    let pid = pid.to_string();
    let explained = test_box.json(&["explain", &pid, "-o", "json"]);
    // The violation is in one of the two lists only.
    assert_eq!(explained["guard"]["open"], json!([]));
    assert_eq!(&explained["guard"]["would_have_ended"], gone);
    assert_eq!(explained["procs"][0]["rules"], list["procs"][0]["rules"]);
    let status = test_box.json(&["status", "-o", "json"]);
    assert_eq!(
        (
            &status["guard"]["open"],
            &status["guard"]["would_have_ended"]
        ),
        (&json!(1), &json!(1))
    );

    // The output for people: a heading and a row for the process.
    let shown = would_have_ended_lines(test_box, &["guard", "violations"]);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("1 violation now, 1 job would have ended"));
    assert!(shown[1].contains(&format!("  {pid}")), "{shown:?}");
    let shown = would_have_ended_lines(test_box, &["list", "--details"]);
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[0].ends_with(" · guard dry-run, 1 violation, 1 would have ended"));
    assert!(shown[1].contains(&pid) && shown[1].contains("  memory, would have ended "));
    assert_eq!(
        shown[2],
        "1 violation, 1 would have ended: gpukillctl guard violations"
    );
    assert_eq!(
        would_have_ended_lines(test_box, &["explain", &pid]).len(),
        1
    );
}

#[test]
fn simulated_end_is_shown_until_the_process_ends() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, RULES);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let document = eventually("it would have been ended", || {
        let document = guard_violations(&test_box);
        (record_fields(&document, &["step"]).len() == 3).then_some(document)
    });
    let steps = record_fields(&document, &["step"]);
    let expected = ["ended", "warned", "violated"].map(|step| json!([step]));
    assert_eq!(steps, expected);
    let ended = &document["records"][0];
    assert_simulated_end_shown(&test_box, process.pid(), ended);
    let ran = test_box.ctl(&["guard", "violations"]);
    let whats = ["  would end  ", "  would warn  "];
    for what in whats {
        assert!(ran.stdout.contains(what), "{ran:?}");
    }

    daemon.kill();
    let daemon = test_box.start();
    assert_simulated_end_shown(&test_box, process.pid(), ended);
    assert_eq!(guard_violations(&test_box)["records"], document["records"]);

    drop(process);
    set_gpu_processes(&test_box, &[]);
    eventually("no simulated end is shown", || {
        (guard_violations(&test_box)["would_have_ended"] == json!([])).then_some(())
    });
    let list = test_box.list();
    assert_eq!(list["guard"]["would_have_ended"], json!(0));
    eventually("the violation is over", || {
        would_have_ended_lines(&test_box, &["guard", "violations"])
            .is_empty()
            .then_some(())
    });
    daemon.stop();
}
