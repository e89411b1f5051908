//! The documents over HTTP are those that `gpukillctl -o json` prints.

use super::{BusyGateway, busy_box, wait_until_ready};
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
    let BusyGateway {
        process,
        test_box,
        daemon: _daemon,
        gateway,
    } = BusyGateway::start("");
    let explain = format!("/api/v1/explain/{}", process.pid());
    let pid = process.pid().to_string();
    let cases: [(&str, &[&str]); 15] = [
        ("/api/v1/snapshot", &["list"]),
        ("/api/v1/status", &["status"]),
        ("/api/v1/holders?gpu=0", &["holders", "--gpu", "0"]),
        (&explain, &["explain", &pid]),
        ("/api/v1/rogue?hours=1", &["rogue", "scan", "--hours", "1"]),
        ("/api/v1/guard/status", &["guard", "status"]),
        ("/api/v1/guard/violations", &["guard", "violations"]),
        (
            "/api/v1/guard/replay?hours=1",
            &["guard", "replay", "--since", "1h"],
        ),
        ("/api/v1/guard/test", &["guard", "test"]),
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

/// The table of paths in docs/from-gpu-kill.md: method and path of the other program, and our path
/// or the first command.
fn documented_paths() -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/from-gpu-kill.md");
    let (_, section) = page.split_once("\n## Paths\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        let mut word = || {
            let cell = cells.next().expect("a cell");
            cell.split('`').nth(1).expect("a word").to_owned()
        };
        (word(), word())
    })
    .collect()
}

#[test]
fn paths_of_other_programs_have_our_documents_and_change_nothing() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mode = || gateway.get("/api/v1/guard/status").json()["mode"].clone();
    let before = mode();
    let rows = documented_paths();
    assert_eq!(rows.len(), 12, "{rows:?}");
    for (theirs, ours) in rows {
        let (method, path) = theirs.split_once(' ').expect("a method");
        let answer = gateway.request(method, path, &[]);
        let is_path = ours.starts_with('/');
        let expected = if is_path { 200 } else { 403 };
        assert_eq!(answer.status, expected, "{theirs}: {}", answer.text());
        if !is_path {
            let problem = answer.json();
            let hint = problem["hint"].as_str().expect("a hint");
            assert!(hint.contains(&ours), "{theirs}: {hint}");
            assert_eq!(problem["exit_code"], 4, "{theirs}");
            continue;
        }
        let own = gateway.get(&ours);
        match own.header("content-type") {
            Some("application/json") => {
                assert_eq!(members(&answer.json()), members(&own.json()), "{theirs}");
            }
            _ => assert_eq!(answer.body, own.body, "{theirs}"),
        }
    }
    assert_eq!(mode(), before);
}

#[test]
fn answers_have_the_fields_of_their_schemas() {
    let busy = BusyGateway::start("");
    let pid = busy.process.pid().to_string();
    let api = busy.gateway.get("/api/v1/openapi.json").json();
    let mut checked = 0;
    for (path, item) in api["paths"].as_object().expect("paths") {
        let content = &item["get"]["responses"]["200"]["content"];
        let schema = &content["application/json"]["schema"];
        let Some(reference) = schema["$ref"].as_str() else {
            continue;
        };
        let schema = api.pointer(&reference[1..]).expect("a schema");
        let required = schema["required"].as_array().expect("fields");
        let fields = required.iter().map(|field| field.as_str().expect("a name"));
        let fields: BTreeSet<&str> = fields.collect();
        let answer = busy.gateway.get(&path.replace("{pid}", &pid));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(members(&answer.json()), fields, "{path}");
        checked += 1;
    }
    assert!(checked >= 17, "{checked} paths have documents");
    let reference = busy.gateway.get("/api/v1/reference");
    let media_type = reference.header("content-type");
    assert_eq!(media_type, Some("text/html; charset=utf-8"));
    assert!(reference.text().contains("<code>/api/v1/snapshot</code>"));
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
            "/metrics?view=x",
            400,
            "view is \"x\", which is not one of gpukill, dcgm, gpumon",
        ),
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
