//! A process with a name and a command line that are made to deceive, in everything that the gateway
//! serves.

use super::wait_until_ready;
use gpukill_tests::harness::{Gateway, HttpResponse, TestBox, TestProcess, eventually};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Ends a label and a line, and begins another series. The kernel keeps 15 bytes.
const NAME: &str = "\"} 1\nx{y=\"<b>";

/// Ends a page, an event and an answer, and colours a terminal.
const COMMAND: &str = "</script><script>alert(1)</script>\"}]\r\n\r\nevent: end\r\ndata: {}\r\n\r\n\
                       \u{1b}[31m\u{202e}\\\"";

fn start_disguised(test_box: &TestBox) -> TestProcess {
    // A link is enough: the kernel names a process after the file name of its program.
    let program = test_box.path(NAME);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    TestProcess::spawn(Command::new(program).arg0(COMMAND).arg("1000"))
}

/// Whether a character controls a terminal or changes how other characters are shown.
fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n') || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
}

/// Asserts that an answer has the form of its type.
fn assert_has_form(path: &str, answer: &HttpResponse) {
    let text = answer.text();
    assert!(!text.contains(is_harmful), "{path}: {text}");
    match answer.header("content-type") {
        Some("application/json" | "application/problem+json") => {
            let _: Value = answer.json();
            assert_eq!(text.lines().count(), 1, "{path}: {text}");
        }
        Some("text/html; charset=utf-8") => {
            // Pages have a script, and both elements, of their own.
            for markup in ["<script>", "=\"<b>", "=<b>"] {
                assert!(!text.contains(markup), "{path}: {text}");
            }
        }
        Some(other) => assert!(other.starts_with("text/plain"), "{path}: {other}"),
        None => panic!("{path} has no type"),
    }
}

/// Asserts that each line is a comment or a series.
fn assert_is_metrics(text: &str) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let known = ["gpukill_", "process_", "DCGM_FI_", "gpumon_"];
        let is_known = known.iter().any(|start| line.starts_with(start));
        let value = line.rsplit_once(' ').map(|(_, value)| value.parse::<f64>());
        assert!(is_known && value.is_some_and(|it| it.is_ok()), "{line}");
    }
}

#[test]
fn names_of_processes_are_data_everywhere() {
    let test_box = TestBox::new();
    let process = start_disguised(&test_box);
    let pid = process.pid();
    test_box.set_driver_state(&json!({"gpus": [{"utilization": {"gpu": 70, "memory": 0},
        "processes": [{"pid": pid, "memory": 1 << 30, "sm": 40}]}]}));
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "[metrics]\nprocesses = true\n");
    wait_until_ready(&gateway);
    eventually("the command line is known", || {
        let list = gateway.get("/api/v1/snapshot").json();
        let command = list["procs"][0]["command"].as_str()?.to_owned();
        command.contains("<script>alert(1)").then_some(())
    });
    let api = gateway.get("/api/v1/openapi.json").json();
    let paths = api["paths"].as_object().unwrap().keys();
    let mut answered = 0;
    for path in paths.filter(|path| !["/api/v1/live", "/ws"].contains(&path.as_str())) {
        let path = path.replace("{pid}", &pid.to_string());
        // The scenarios of the pages have addresses of GPUs, people and jobs.
        if path.contains('{') {
            continue;
        }
        let answer = gateway.get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_has_form(&path, &answer);
        answered += 1;
    }
    assert!(answered >= 20, "{answered}");
    for view in ["gpukill", "dcgm", "gpumon"] {
        assert_is_metrics(&gateway.get(&format!("/metrics?view={view}")).text());
    }
    // What a client sends comes back as data too.
    for path in [
        "/api/v1/gpus?gpu=",
        "/api/v1/processes?name=",
        "/api/v1/gpus?x=",
    ] {
        let sent: String = COMMAND.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_has_form(path, &gateway.get(&format!("{path}{sent}")));
    }
    let mut stream = gateway.live();
    let event = stream.next_named("snapshot");
    let command = event["procs"][0]["command"].as_str().unwrap();
    assert!(
        command.contains("alert(1)") && !command.contains(is_harmful),
        "{command}"
    );
    let (next, _) = stream.next_event().unwrap();
    assert_ne!(next, "end");
}
