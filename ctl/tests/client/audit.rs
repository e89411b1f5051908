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
    // Rows do not tell that there are more, so that there are none.
    assert_eq!(lines("-o ndjson"), (1500, String::new()));
    assert_eq!(lines("-o csv"), (1501, String::new()));
    assert_eq!(lines("-o ndjson --limit 10"), (10, String::new()));
    assert_eq!(lines("-o csv --limit 1500"), (1501, String::new()));
    assert_eq!(lines("--limit 7"), (11, String::new()));
    assert_eq!(lines("--limit 0"), (1503, String::new()));
    let output = run(&daemon.socket, "audit actions -o json --limit 801");
    let document = json(&stdout(&output));
    let actions = document["actions"].as_array().expect("it has them");
    let ids: Vec<_> = actions.iter().filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids, (700..=1500).rev().collect::<Vec<_>>());
    assert_eq!(document["more"], true);
    assert_eq!(actions[0]["plan"]["targets"][0]["pid"], 1);
}

#[test]
fn cut_table_says_that_there_are_more() {
    let (_directory, daemon) = started();
    for (arguments, is_cut) in [
        ("audit", true),
        ("audit --limit 1", true),
        ("audit --samples", true),
        ("audit actions", true),
        ("audit timeline", true),
        ("audit --limit 0", false),
        ("audit --limit 2500", false),
        ("audit timeline --limit 0", false),
    ] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        let shown = stdout(&output);
        let last = shown.lines().last();
        let more = last == Some("there are more: --limit 0 shows all");
        assert_eq!(more, is_cut, "{arguments}: {last:?}");
    }
    for (arguments, rows) in [
        ("audit -o csv", 2_501),
        ("audit --samples -o ndjson", 2_500),
        ("audit --samples -o csv --limit 5", 6),
    ] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(stdout(&output).lines().count(), rows, "{arguments}");
    }
}

#[test]
fn empty_table_says_what_is_not_recorded() {
    let (_directory, daemon) = started();
    let years = "--since 1970-01-01 --until 1971-01-01";
    for (command, entries, before) in [
        ("audit", "runs", "2026-11-12 14:02:31"),
        ("audit --samples", "samples", "2026-11-12 14:02:31"),
        ("audit actions", "entries", "2100-01-01 00:00:00"),
    ] {
        let output = run(&daemon.socket, &format!("{command} {years}"));
        let expected = format!(
            "no {entries} · 1970-01-01 00:00:00 to 1971-01-01 00:00:00\n\
             Not seen: nothing is recorded before {before}\n"
        );
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (expected, String::new())
        );
    }
    // A filter does not make it a time in which nobody used a GPU.
    for (command, one) in [("audit", "run"), ("audit --samples", "sample")] {
        let output = run(&daemon.socket, &format!("{command} --gpu 0 {years}"));
        assert_eq!(output.status.code(), Some(8), "{command}");
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (
                "Not seen: nothing is recorded before 2026-11-12 14:02:31\n".to_owned(),
                format!("gpukillctl: no {one} matches\n")
            )
        );
        let output = run(
            &daemon.socket,
            &format!("{command} --gpu 0 {years} -o json"),
        );
        assert_eq!(output.status.code(), Some(8), "{command}");
        json(&stdout(&output));
    }
    let line = "audit --summary --gpu 0 --since 2020-01-01 --until 2020-01-08";
    let output = run(&daemon.socket, line);
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(
        stderr(&output),
        "gpukillctl: nothing is recorded of it in this time\n"
    );
}

#[test]
fn unknown_user_is_named() {
    let (_directory, daemon) = started();
    let output = run(
        &daemon.socket,
        "audit --user no-such-person-here --user root,1003",
    );
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(
        stderr(&output),
        "gpukillctl: no run matches: no user is called no-such-person-here\n"
    );
}

#[test]
fn unknown_group_is_named() {
    let (_directory, daemon) = started();
    let unknown = "no group is called no-such-group-here\n";
    for (arguments, what) in [
        ("audit", "no run matches: "),
        ("audit --samples", "no sample matches: "),
        ("audit --summary", "no record matches: "),
        ("audit series", "nothing was recorded of it in that time: "),
        ("audit report", ""),
    ] {
        let line = format!("{arguments} --group no-such-group-here");
        let output = run(&daemon.socket, &line);
        assert_eq!(output.status.code(), Some(8), "{line}");
        assert_eq!(stderr(&output), format!("gpukillctl: {what}{unknown}"));
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
    assert_eq!(lines("-o ndjson"), (1497, String::new()));
    assert_eq!(lines("-o ndjson --limit 1000"), (1000, String::new()));
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
    // The heading, an empty line, the date, the entries, and that there are more.
    assert_eq!(lines("--limit 7 --pid 51002"), (11, String::new()));
}

#[test]
fn report_is_a_text_of_any_period() {
    let (_directory, daemon) = started();
    for arguments in [
        "audit report",
        "audit report --weekly",
        "audit report --since 30d",
        "audit report --group ml",
    ] {
        let output = run(&daemon.socket, arguments);
        let result = (output.status.code(), stderr(&output));
        assert_eq!(result, (Some(0), String::new()), "{arguments}");
        let text = stdout(&output);
        assert!(text.starts_with("GPUs of "), "{text}");
        let of_group = if arguments.contains("ml") {
            " of group ml"
        } else {
            ""
        };
        assert!(text.contains(&format!("\n\nPeople{of_group}\n")), "{text}");
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
fn summary_has_every_format() {
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
    // Rows are those of the owners.
    let rows = stdout(&run(&daemon.socket, "audit --summary --group ml -o csv"));
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].starts_with("owner,owner_uid,owner_kind,gpu_hours,"));
    assert!(
        rows[1].starts_with("alice,1000,user,18,12,6,0,"),
        "{rows:?}"
    );
    let line = stdout(&run(&daemon.socket, "audit --summary -o ndjson"));
    assert_eq!(json(&line)["busy_hours"], 12.0);
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
        " 2026-11-16  12.0  50 %      6.0  25 %  6.0  25 %  alice 18.0 h\n\n\
         Not seen: 2026-11-21 12:02 to 13:02\n"
    );
}

#[test]
fn no_match_exits_8_unless_all_is_empty() {
    let (_directory, daemon) = started();
    let gap = "Not seen: 2026-11-21 12:02 to 13:02\n";
    for (arguments, message, missing) in [
        ("audit --summary --user 1003", "no record matches", gap),
        ("audit --weekly --user 1003", "no record matches", gap),
        (
            "audit actions --kind prune --since 2026-11-20 --until 2026-11-21",
            "no entry matches",
            "Not seen: nothing is recorded before 2100-01-01 00:00:00\n",
        ),
    ] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(8), "{arguments}");
        assert_eq!(stderr(&output), format!("gpukillctl: {message}\n"));
        assert_eq!(stdout(&output), missing, "{arguments}");
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
         the oldest record is of 2026-11-12 14:02:31\n"
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
