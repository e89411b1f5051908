//! `audit --summary`, `--weekly`, `actions` and `timeline`.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{run, stderr, stdout};
use serde_json::Value;

fn started() -> (tempfile::TempDir, FakeDaemon) {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    (directory, daemon)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn actions_are_paged_up_to_the_limit() {
    let (_directory, daemon) = started();
    let lines = |arguments: &str| {
        let output = run(&daemon.socket, &format!("audit actions {arguments}"));
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        (stdout(&output).lines().count(), stderr(&output))
    };
    assert_eq!(lines("-o ndjson"), (1000, String::new()));
    assert_eq!(lines("-o ndjson --limit 0"), (1500, String::new()));
    assert_eq!(lines("-o csv --limit 1500"), (1501, String::new()));
    assert_eq!(lines("--limit 7"), (10, String::new()));
    let output = run(&daemon.socket, "audit actions -o json --limit 801");
    let document = json(&stdout(&output));
    let actions = document["actions"].as_array().expect("it has them");
    let ids: Vec<_> = actions.iter().filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids, (700..=1500).rev().collect::<Vec<_>>());
    assert_eq!(document["more"], true);
    assert_eq!(actions[0]["plan"]["targets"][0]["pid"], 1);
}

#[test]
fn empty_table_says_when_recording_began() {
    let (_directory, daemon) = started();
    for (command, entries) in [
        ("audit", "runs"),
        ("audit --samples", "samples"),
        ("audit actions", "entries"),
    ] {
        let line = format!("{command} --since 1970-01-01 --until 1971-01-01");
        let output = run(&daemon.socket, &line);
        let expected = format!(
            "no {entries} · 1970-01-01 00:00:00 to 1971-01-01 00:00:00\n\
             recording began 2100-01-01 00:00:00\n"
        );
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (expected, String::new())
        );
    }
}

#[test]
fn timeline_is_paged_forward_up_to_the_limit() {
    let (_directory, daemon) = started();
    let lines = |arguments: &str| {
        let output = run(&daemon.socket, &format!("audit timeline {arguments}"));
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        (stdout(&output).lines().count(), stderr(&output))
    };
    // 400, 800 and 1200 are empty pages.
    assert_eq!(lines("-o ndjson --limit 0"), (1497, String::new()));
    assert_eq!(lines("-o ndjson"), (1000, String::new()));
    assert_eq!(lines("-o csv --limit 7"), (8, String::new()));
    let output = run(&daemon.socket, "audit timeline -o json --limit 500");
    let document = json(&stdout(&output));
    let entries = document["entries"].as_array().expect("it has them");
    let ids: Vec<_> = entries
        .iter()
        .filter_map(|it| it["record"]["id"].as_u64())
        .collect();
    let expected: Vec<u64> = (1..=501).filter(|id| *id != 400).collect();
    assert_eq!(ids, expected);
    assert_eq!(document["more"], true);
    assert_eq!(document["stretches_omitted"], true);
    let one = run(&daemon.socket, "audit timeline -o json --pid 51002");
    assert_eq!(json(&stdout(&one))["stretches_omitted"], false);
    // The heading, an empty line, the date and the entries.
    assert_eq!(lines("--limit 7 --pid 51002"), (10, String::new()));
}

#[test]
fn report_is_a_text_of_any_period() {
    let (_directory, daemon) = started();
    for arguments in [
        "audit report",
        "audit report --weekly",
        "audit report --since 30d",
    ] {
        let output = run(&daemon.socket, arguments);
        let result = (output.status.code(), stderr(&output));
        assert_eq!(result, (Some(0), String::new()), "{arguments}");
        let text = stdout(&output);
        assert!(text.starts_with("GPUs of "), "{text}");
        assert!(text.contains("\n\nPeople\n"), "{text}");
        let is_short = |line: &&str| line.chars().count() <= 78 || line.contains("gpukillctl");
        assert!(text.lines().all(|line| is_short(&line)), "{text}");
    }
    let output = run(&daemon.socket, "audit report --weekly --hours 3");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn refused_action_shows_the_reason() {
    let (_directory, daemon) = started();
    let output = run(&daemon.socket, "audit actions --limit 9");
    let shown = stdout(&output);
    assert_eq!(
        shown.lines().nth(11),
        Some(" 2026-11-21 14:02:27  alice  –    kill 1492  refused: it belongs to bob")
    );
}

#[test]
fn summary_has_a_screen_and_a_document_only() {
    let (_directory, daemon) = started();
    let output = run(&daemon.socket, "audit --summary --hours 24");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    let shown = stdout(&output);
    assert_eq!(
        shown.lines().nth(1),
        Some(" busy 50 %  ███████████████   held idle 25 %  ███████▌   free 25 %  ███████▌")
    );
    let document = json(&stdout(&run(&daemon.socket, "audit --summary -o json")));
    assert_eq!(document["owners"][0]["gpu_hours"], 18.0);
    for form in ["csv", "ndjson"] {
        let output = run(&daemon.socket, &format!("audit --summary -o {form}"));
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            stderr(&output),
            format!(
                "gpukillctl: --summary has no form {form}: it has table and json; \
                 --weekly has ndjson and csv too\n"
            )
        );
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn weeks_have_every_format() {
    let (_directory, daemon) = started();
    let output = |form: &str| stdout(&run(&daemon.socket, &format!("audit --weekly -o {form}")));
    assert_eq!(
        output("csv"),
        "monday,gpu_hours,busy_hours,held_idle_hours,free_hours,unknown_hours,top_owner,\
         top_owner_hours,reasons\n2026-11-16,24,12,6,6,0,alice,18,\n"
    );
    assert_eq!(json(&output("ndjson"))["top_owner"], "alice");
    assert_eq!(json(&output("json"))["weeks"][0]["monday"], "2026-11-16");
    let table = output("table");
    let (_, weeks) = table.split_once("BY\n").expect("a heading");
    assert_eq!(
        weeks,
        " 2026-11-16  12.0  50 %  6.0  25 %  6.0  25 %  alice 18.0\n\n\
         Not seen: 2026-11-21 12:02-13:02\n"
    );
}

#[test]
fn no_match_exits_8_unless_all_is_empty() {
    let (_directory, daemon) = started();
    for (arguments, message) in [
        ("audit --summary --user zoe", "no record matches"),
        ("audit --weekly --user zoe", "no record matches"),
        ("audit actions --kind prune", "no entry matches"),
    ] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(8), "{arguments}");
        assert_eq!(stderr(&output), format!("gpukillctl: {message}\n"));
        assert_eq!(stdout(&output), "", "{arguments}");
        let output = run(&daemon.socket, &format!("{arguments} -o json"));
        assert_eq!(output.status.code(), Some(8), "{arguments}");
        json(&stdout(&output));
    }
    let output = run(&daemon.socket, "audit --summary --gpu 1 --user alice");
    assert_eq!(output.status.code(), Some(8));
    // That no process used the GPU is an answer.
    let output = run(&daemon.socket, "audit --summary --gpu 1");
    assert_eq!(output.status.code(), Some(0));
    let output = run(
        &daemon.socket,
        "audit --summary --since 2020-01-01 --until 2020-01-08",
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        "nothing is recorded from 2020-01-01 00:00:00 to 2020-01-08 00:00:00\n\
         whether samples are written: gpukillctl status\n\
         further back: gpukillctl audit --summary --since 30d\n"
    );
}

#[test]
fn absurd_arguments_never_crash() {
    let (_directory, daemon) = started();
    for (arguments, exit) in [
        ("audit --summary --hours 4294967295", 0),
        ("audit --weekly --hours 4294967295", 0),
        ("audit actions --hours 4294967295 --limit 1", 0),
        ("audit --summary --since 0001-01-01", 0),
        ("audit --weekly --until 9999-12-31T23:59:59Z", 0),
        ("audit --summary --since 1h --until 2h", 3),
        ("audit --weekly --since 2100-01-01", 3),
        ("audit actions --since 1h --until 2h", 3),
        ("audit --summary --process [", 3),
        ("audit --user alice actions", 3),
        ("audit --summary actions", 3),
    ] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(
            output.status.code(),
            Some(exit),
            "{arguments}: {}",
            stderr(&output)
        );
    }
    let output = run(&daemon.socket, "audit --user alice actions");
    assert_eq!(
        stderr(&output),
        "gpukillctl: --user is before the command: move it after the command\n"
    );
}

#[test]
fn series_has_every_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let run = |arguments: &str| run(&daemon.socket, &format!("audit series {arguments}"));
    let printed = |arguments: &str| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(printed("").contains("  GPU 0  "), "{}", printed(""));
    assert!(printed("--plot --by user").contains("up to 1.0 GPUs"));
    let document = json(&printed("-o json"));
    assert_eq!(document["step_secs"], 3600.0);
    assert_eq!(document["series"][0]["buckets"][1]["busy_hours"], 0.5);
    assert_eq!(printed("-o ndjson").lines().count(), 2);
    let csv = printed("-o csv");
    assert!(csv.starts_with("timestamp,gpu_index,"), "{csv}");
    for (arguments, code) in [
        ("--user zoe", 8),
        ("--buckets 0", 3),
        ("--buckets 2001", 3),
        ("--by pid", 3),
        ("--command [", 3),
    ] {
        assert_eq!(run(arguments).status.code(), Some(code), "{arguments}");
    }
}
