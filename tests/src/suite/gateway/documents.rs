//! The documents over HTTP are those that `gpukillctl -o json` prints.

use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{Gateway, TestProcess, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn members(document: &Value) -> BTreeSet<&str> {
    let members = document.as_object().expect("an object");
    members.keys().map(String::as_str).collect()
}

#[test]
fn documents_have_the_members_of_the_client() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let explain = format!("/api/v1/explain/{}", process.pid());
    let pid = process.pid().to_string();
    let cases: [(&str, &[&str]); 13] = [
        ("/api/v1/snapshot", &["list"]),
        ("/api/v1/status", &["status"]),
        ("/api/v1/holders?gpu=0", &["holders", "--gpu", "0"]),
        (&explain, &["explain", &pid]),
        ("/api/v1/rogue?hours=1", &["rogue", "scan", "--hours", "1"]),
        ("/api/v1/guard/status", &["guard", "status"]),
        ("/api/v1/guard/violations", &["guard", "violations"]),
        ("/api/v1/audit/runs", &["audit"]),
        ("/api/v1/audit/samples", &["audit", "--samples"]),
        ("/api/v1/audit/summary", &["audit", "--summary"]),
        ("/api/v1/audit/weekly", &["audit", "--weekly"]),
        ("/api/v1/audit/actions", &["audit", "actions"]),
        ("/api/v1/audit/timeline", &["audit", "timeline"]),
    ];
    for (path, command) in cases {
        let answer = gateway.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let json = ["-o", "json"];
        let printed = test_box.json(&[command, &json[..]].concat());
        assert_eq!(members(&answer.json()), members(&printed), "{path}");
    }
    let series = gateway.get("/api/v1/audit/series?by=user&buckets=3");
    assert_eq!(series.status, 200, "{}", series.text());
    let rules = gateway.get("/api/v1/guard/rules").json();
    assert!(rules["text"].is_string(), "{rules}");
    let gpus = gateway.get("/api/v1/gpus?gpu=0").json();
    assert_eq!(gpus["gpus"][0]["util_pct"], 70);
    let processes = gateway.get(&format!("/api/v1/processes?pid={pid}")).json();
    assert_eq!(processes["procs"][0]["pid"], process.pid());
    let none = gateway.get("/api/v1/processes?user=nobody-here").json();
    assert_eq!(none["procs"], serde_json::json!([]));
}

#[test]
fn snapshot_is_the_list_and_is_sent_once() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    // The same snapshot stays while the client runs.
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "10s");
    let _daemon = test_box.start_with(&mut daemon);
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let answer = eventually("both have the same snapshot", || {
        let answer = gateway.get("/api/v1/snapshot");
        let list = test_box.list();
        (answer.status == 200 && answer.json() == list).then_some(answer)
    });
    let tag = answer.header("etag").expect("a tag").to_owned();
    eventually("the snapshot is known", || {
        let known = gateway.request("GET", "/api/v1/snapshot", &[("if-none-match", &tag)]);
        (known.status == 304 && known.body.is_empty()).then_some(())
    });
    let packed = gateway.request("GET", "/api/v1/snapshot", &[("accept-encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < answer.body.len());
    let mut unpack = Command::new("gzip");
    unpack
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut unpack = unpack.spawn().unwrap();
    unpack
        .stdin
        .take()
        .unwrap()
        .write_all(&packed.body)
        .unwrap();
    let unpacked = unpack.wait_with_output().unwrap().stdout;
    let unpacked: Value = serde_json::from_slice(&unpacked).unwrap();
    assert_eq!(members(&unpacked), members(&answer.json()));
}

#[test]
fn mistakes_are_problem_documents() {
    let test_box = gpukill_tests::harness::TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    for (path, status, detail) in [
        ("/api/v2", 404, "there is no such path"),
        (
            "/api/v1/gpus?gpu=7",
            400,
            "no GPU matches \"7\": this host has none",
        ),
        ("/api/v1/gpus?user=x", 400, "unknown parameter \"user\""),
        ("/api/v1/snapshot?x", 400, "unknown parameter \"x\""),
        (
            "/api/v1/explain/0",
            400,
            "pid is \"0\", which is not a whole number from 1 to 4294967295",
        ),
        (
            "/api/v1/processes?name=(",
            400,
            "\"(\" is not a regular expression: found open group without closing ')'",
        ),
    ] {
        let answer = gateway.get(path);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{path}"
        );
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{path}");
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(problem["detail"], detail, "{path}");
    }
    let unknown = gateway.get("/api/v1/explain/4194304").json();
    assert_eq!(
        (&unknown["status"], &unknown["exit_code"]),
        (&404.into(), &8.into())
    );
}
