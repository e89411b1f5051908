//! `guard violations`.

use crate::daemon::{Daemon, Script};
use crate::{run, stderr, stdout};
use serde_json::Value;

#[test]
fn violations_are_asked_for_page_by_page_up_to_the_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    let ids = |arguments: &str| {
        let arguments = format!("guard violations -o json {arguments}");
        let output = run(&daemon.socket, &arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        let document: Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
        let records = document["records"].as_array().expect("a list").clone();
        let ids = records.iter().filter_map(|record| record["id"].as_u64());
        (ids.collect::<Vec<u64>>(), stderr(&output))
    };
    let more = || "gpukillctl: there are more records: --limit 0 shows all\n".to_owned();
    let down_to = |last: u64| (last..=2500).rev().collect::<Vec<u64>>();
    assert_eq!(ids(""), (down_to(2401), more()));
    assert_eq!(ids("--limit 1500"), (down_to(1001), more()));
    assert_eq!(ids("--limit 2500"), (down_to(1), String::new()));
    assert_eq!(ids("--limit 0"), (down_to(1), String::new()));
    // A page without a record is not the last.
    assert_eq!(ids("--limit 5 --user bob"), (Vec::new(), String::new()));
}
