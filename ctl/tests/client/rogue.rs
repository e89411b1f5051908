//! `rogue scan`, and its findings in `list`.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{run, stderr, stdout};
use serde_json::{Value, json};

#[test]
fn scan_exits_0_and_is_safe_for_terminals() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let found = " RISK      SCORE  PID  USER  GPU  VERDICT       PROCESS
 critical   0.97  102  eve     0  crypto miner  \\x1b]0;x\\x07
    A 0.65     command line names a pool: \\x1b[2Jpool:4444
    rules      none may act on it: that takes a second indicator, of another family
    since      MOMENT
    do         gpukillctl kill 102 --scope job
    if honest  gpukillctl rogue allow executable PATH@eve

 A near a proof, B strong, C corroborates others and means nothing alone

1 finding: 3 processes of the last 24 h evaluated
";
    for (arguments, expected) in [
        ("rogue scan", found),
        ("rogue scan --hours 24", found),
        (
            "rogue scan --hours 1",
            "nothing found: 3 processes of the last 1 h evaluated\n",
        ),
    ] {
        let output = run(&daemon.socket, arguments);
        let (printed, warned) = (without_times(&stdout(&output)), stderr(&output));
        let result = (output.status.code(), printed.as_str(), warned.as_str());
        assert_eq!(result, (Some(0), expected, ""), "{arguments}");
    }
}

/// Removes times, because their form depends on the day.
fn without_times(printed: &str) -> String {
    let lines = printed.lines().map(|line| match line {
        since if since.starts_with("    since      ") => "    since      MOMENT\n".to_owned(),
        other => format!("{other}\n"),
    });
    lines.collect()
}

#[test]
fn scan_document_has_recommendations() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let output = run(&daemon.socket, "rogue scan -o json --hours 744");
    let text = stdout(&output);
    assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
    let document: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(document["since"], json!("2026-10-21T14:02:31.250Z"));
    let finding = &document["findings"][0];
    assert_eq!(finding["proc_name"], json!("\\x1b]0;x\\x07"));
    assert_eq!(finding["verdicts"][0]["score"], json!(0.973));
    let whats = [0, 1].map(|at| finding["recommendations"][at]["what"].clone());
    assert_eq!(whats, [json!("end"), json!("allow")]);
}

#[test]
fn list_marks_processes_on_all_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Script {
        marks_a_rogue: true,
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), script);
    let output = run(&daemon.socket, "list -o json");
    let document: Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    let marks = [0, 1, 2].map(|at| document["procs"][at]["rogue"].clone());
    let critical = json!({"risk": "critical", "threat": "crypto_miner"});
    assert_eq!(marks, [Value::Null, Value::Null, critical]);
    let details = stdout(&run(&daemon.socket, "list --details"));
    let marked = details
        .lines()
        .filter(|it| it.contains("critical crypto miner"));
    assert_eq!(marked.count(), 1, "{details}");
}
