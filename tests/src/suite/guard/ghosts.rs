//! A job that a dry run would have ended goes on, and so does its violation, with the
//! simulated end beside it.

use super::{GIB, has_rules, plays, records, violations};
use gpukill_tests::harness::{Actor, Stage, eventually};
use serde_json::{Value, json};

/// What is held too much is given back within two seconds.
const RULES: &str = "[global]\ndefault_memory_limit_gb = 2\n\
    [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n\
    settled_after_minutes = 0.02\n";

/// The lines of a screen that say that somebody would have ended.
fn said(stage: &Stage, arguments: &[&str]) -> Vec<String> {
    let ran = stage.ctl(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let lines = ran.stdout.lines();
    let said = lines.filter(|line| line.contains("would have ended"));
    said.map(str::to_owned).collect()
}

/// The job of this process is told of wherever people look, since this moment.
fn is_told_everywhere(stage: &Stage, pid: u32, ended: &Value) {
    let list = eventually("it is marked in the list", || {
        let list = stage.list();
        let rules = list["procs"][0]["rules"].as_array()?;
        (!rules.is_empty()).then_some(list)
    });
    let document = violations(stage);
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
    let explained = stage.json(&["explain", &pid, "-o", "json"]);
    // It is told of once.
    assert_eq!(explained["guard"]["open"], json!([]));
    assert_eq!(&explained["guard"]["would_have_ended"], gone);
    assert_eq!(explained["procs"][0]["rules"], list["procs"][0]["rules"]);
    let status = stage.json(&["status", "-o", "json"]);
    assert_eq!(
        (
            &status["guard"]["open"],
            &status["guard"]["would_have_ended"]
        ),
        (&json!(1), &json!(1))
    );

    // The same, as people see it: a heading, and the process.
    let shown = said(stage, &["guard", "violations"]);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("1 violation now, 1 job would have ended"));
    assert!(shown[1].contains(&format!("  {pid}")), "{shown:?}");
    let shown = said(stage, &["list", "--details"]);
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[0].ends_with(" · guard dry-run, 1 violation, 1 would have ended"));
    assert!(shown[1].contains(&pid) && shown[1].contains("  memory, would have ended "));
    assert_eq!(
        shown[2],
        "1 violation, 1 would have ended: gpukillctl guard violations"
    );
    assert_eq!(said(stage, &["explain", &pid]).len(), 1);
}

#[test]
fn who_would_have_been_ended_is_told_of_until_they_end() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, RULES);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let document = eventually("it would have been ended", || {
        let document = violations(&stage);
        (records(&document, &["step"]).len() == 3).then_some(document)
    });
    let steps = records(&document, &["step"]);
    let expected = ["ended", "warned", "violated"].map(|step| json!([step]));
    assert_eq!(steps, expected);
    let ended = &document["records"][0];
    is_told_everywhere(&stage, actor.pid(), ended);
    let ran = stage.ctl(&["guard", "violations"]);
    let whats = ["  would end  ", "  would warn  "];
    for what in whats {
        assert!(ran.stdout.contains(what), "{ran:?}");
    }

    daemon.kill();
    let daemon = stage.start();
    is_told_everywhere(&stage, actor.pid(), ended);
    assert_eq!(violations(&stage)["records"], document["records"]);

    drop(actor);
    plays(&stage, &[]);
    eventually("nobody is told of any more", || {
        (violations(&stage)["would_have_ended"] == json!([])).then_some(())
    });
    let list = stage.list();
    assert_eq!(list["guard"]["would_have_ended"], json!(0));
    eventually("the violation is over", || {
        said(&stage, &["guard", "violations"])
            .is_empty()
            .then_some(())
    });
    daemon.stop();
}
