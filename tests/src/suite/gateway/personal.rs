//! The gateway of one person, which the client starts: it needs its token, and acts with the rights
//! of the person.

use super::wait_until_ready;
use gpukill_tests::harness::{
    CommandOutput, FakeDriver, Gateway, TestBox, TestProcess, eventually, skip,
};
use rustix::process::Signal;
use serde_json::json;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

#[test]
fn kill_is_planned_carried_out_and_followed() {
    let process = TestProcess::start("python");
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, Duration::from_millis(300));
    let _daemon = test_box.start();
    let (gateway, token) = Gateway::start_personal(&test_box);
    assert_eq!(token.len(), 64);
    let pid = process.pid();
    driver.add_processes(&[pid]);
    let processes = format!("/api/v1/processes?pid={pid}");
    let is_listed = || gateway.get_as(&processes, &token).json()["procs"][0]["pid"] == pid;
    eventually("the process is listed", || is_listed().then_some(()));
    let plan = gateway.post("/api/v1/kill/plan", &token, &json!({ "pids": [pid] }));
    assert_eq!(plan.status, 200, "{}", plan.text());
    let plan = plan.json();
    assert_eq!(plan["targets"][0]["pid"], pid);
    assert_eq!(plan["targets"][0]["planned_action"], "end");
    // Nothing has happened.
    assert!(is_listed());
    let plan_id = json!({ "plan_id": plan["plan_id"] });
    let unknown = gateway.post("/api/v1/kill/act", &token, &json!({ "plan_id": "7" }));
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    let started = gateway.post("/api/v1/kill/act", &token, &plan_id);
    assert_eq!(started.status, 200, "{}", started.text());
    let operation = started.json()["operation_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/kill/report/{operation}");
    let report = eventually("the kill is over", || {
        let report = gateway.get_as(&path, &token).json();
        (report["stage"] == "done").then_some(report)
    });
    assert_eq!(report["outcomes"][0]["outcome"], "ended", "{report}");
    assert_eq!(report["exit_code"], 0, "{report}");
    // A plan is carried out once.
    let again = gateway.post("/api/v1/kill/act", &token, &plan_id);
    assert_eq!(again.status, 404, "{}", again.text());
    let nobody = gateway.post("/api/v1/kill/plan", &token, &json!({ "pids": [4_194_304] }));
    let problem = nobody.json();
    assert_eq!((nobody.status, &problem["exit_code"]), (404, &json!(8)));
}

#[test]
fn rules_are_edited_with_the_rights_of_the_caller() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let (gateway, token) = Gateway::start_personal(&test_box);
    wait_until_ready(&gateway);
    let mode = json!({ "mode": "soft", "dry_run": true });
    let edit = gateway.post("/api/v1/guard/mode", &token, &mode);
    match rustix::process::getuid().is_root() {
        true => {
            assert_eq!(edit.status, 200, "{}", edit.text());
            let changed = edit.json();
            assert!(
                changed["difference"].as_str().unwrap().contains("soft"),
                "{changed}"
            );
            let stale = json!({ "mode": "soft", "revision": "other" });
            let refused = gateway.post("/api/v1/guard/mode", &token, &stale);
            assert_ne!(refused.status, 200, "{}", refused.text());
        }
        false => assert_eq!((edit.status, &edit.json()["exit_code"]), (403, &json!(4))),
    }
    let snooze = gateway.post("/api/v1/guard/snooze", &token, &json!({ "pid": 4_194_304 }));
    assert!((400..500).contains(&snooze.status), "{}", snooze.text());
    for (body, why) in [
        (json!({ "mode": "hard" }), "mode is \"hard\""),
        (json!({ "modes": "soft" }), "unknown field `modes`"),
        (json!(["soft"]), "not a JSON object"),
    ] {
        let refused = gateway.post("/api/v1/guard/mode", &token, &body);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["exit_code"]), (400, &json!(3)));
        assert!(
            problem["detail"].as_str().unwrap().contains(why),
            "{problem}"
        );
    }
}

#[test]
fn other_users_cannot_lock_the_owner_out() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let (gateway, token) = Gateway::start_personal(&test_box);
    wait_until_ready(&gateway);
    let mut stream = gateway.live_as(&token);
    // Requests without the token are no better than none.
    let address = gateway.address();
    let wrong = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n");
    for request in ["", &wrong] {
        let held: Vec<_> = (0..520)
            .map(|_| {
                let mut connection = gateway.connect();
                // The gateway may have closed it for others.
                let _ = connection.write_all(request.as_bytes());
                connection
            })
            .collect();
        for _ in 0..50 {
            assert_eq!(gateway.get_as("/api/v1/gpus", &token).status, 200);
        }
        let _ = stream.next_named("snapshot");
        drop(held);
    }
}

#[test]
fn port_that_is_taken_is_named_with_a_remedy() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let refused = test_box.ctl(&["web", "--port", &port.to_string()]);
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (1, ""),
        "{refused:?}"
    );
    let why = format!("another program uses port {port}: choose another port with --port");
    assert!(refused.stderr.contains(&why), "{refused:?}");
    assert!(!refused.stderr.contains("os error"), "{refused:?}");
}

#[test]
fn gateway_ends_with_its_terminal_and_gives_each_run_another_token() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let (gateway, token) = Gateway::start_personal(&test_box);
    let (other, other_token) = Gateway::start_personal(&test_box);
    assert_ne!(token, other_token);
    assert_eq!(
        gateway.get_as("/api/v1/openapi.json", &other_token).status,
        401
    );
    assert_eq!(gateway.get_as("/api/v1/openapi.json", &token).status, 200);
    gateway.hang_up();
    assert_eq!(gateway.wait(), 0);
    other.signal(Signal::INT);
    assert_eq!(other.wait(), 0);
}

#[test]
fn client_without_a_daemon_says_so() {
    let test_box = TestBox::new();
    let mut command = test_box.client_command(&["web"]);
    // Neither the host's daemon nor one of this user.
    command.env_remove("GPUKILL_SOCKET");
    command.env("XDG_RUNTIME_DIR", test_box.path("home"));
    if Path::new("/run/gpukill/gpukilld.sock").exists() {
        return skip("this host has a gpukilld");
    }
    let ran = CommandOutput::run(&mut command);
    assert_eq!((ran.code, ran.stdout.as_str()), (6, ""), "{ran:?}");
}
