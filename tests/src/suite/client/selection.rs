//! Selection in `list`: GPUs, users, process names, output formats and row limits.

use super::five_gpu_box::{self, NAMELESS_UID};
use gpukill_tests::harness::{CommandOutput, TestBox, eventually};
use serde_json::{Value, json};

/// A pid that no kernel assigns: pids end at 2²².
const UNUSED_PID: u32 = 4_194_999;

fn selected_gpus_and_pids(ran: &CommandOutput) -> (Vec<u64>, Vec<u64>) {
    let list: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let numbers = |of: &str, field: &str| -> Vec<u64> {
        let rows = list[of].as_array().unwrap();
        rows.iter()
            .map(|row| row[field].as_u64().unwrap())
            .collect()
    };
    (numbers("gpus", "gpu_index"), numbers("procs", "pid"))
}

fn list_json(test_box: &TestBox, arguments: &[&str]) -> CommandOutput {
    test_box.ctl(&[&["list", "-o", "json"], arguments].concat())
}

const TRAINING: [u64; 2] = [48_213, 48_214];
const BOARD: u64 = 50_001;
const NOTEBOOK: u64 = 51_002;
const FIRST: [u64; 3] = [TRAINING[0], TRAINING[1], BOARD];

#[test]
fn gpus_by_index_range_uuid_address_name_vendor() {
    let (test_box, daemon) = five_gpu_box::start();
    let everybody = [&FIRST[..], &[NOTEBOOK]].concat();
    let cases: [(&[&str], &[u64], &[u64]); 14] = [
        (&[], &[0, 1, 2, 3, 4], &everybody),
        (&["--gpu", "0"], &[0], &FIRST),
        (&["--gpu", "1-3"], &[1, 2, 3], &[NOTEBOOK]),
        (&["--gpu", "4,0"], &[0, 4], &FIRST),
        (
            &["--gpu", "GPU-8f3c1111-0000-0000-0000-000000000000"],
            &[0],
            &FIRST,
        ),
        (&["--gpu", "gpu-8F3C2"], &[1], &[NOTEBOOK]),
        (&["--gpu", "9abc"], &[3], &[]),
        (&["--gpu", "0000:43:00.0"], &[1], &[NOTEBOOK]),
        (&["--gpu", "00000000:1B:00.0"], &[0], &FIRST),
        (&["--gpu", "1b:00.0"], &[0], &FIRST),
        (&["--gpu", "*2080*"], &[3], &[]),
        (&["--gpu", "h100*"], &[0, 1, 2, 4], &everybody),
        (&["--vendor", "nvidia"], &[0, 1, 2, 3, 4], &everybody),
        (&["--vendor", "all", "--gpu", "1"], &[1], &[NOTEBOOK]),
    ];
    for (arguments, gpus, processes) in cases {
        let ran = list_json(&test_box, arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        assert_eq!(
            selected_gpus_and_pids(&ran),
            (gpus.to_vec(), processes.to_vec()),
            "{arguments:?}"
        );
    }
    daemon.stop();
}

#[test]
fn processes_by_user_and_name() {
    let (test_box, daemon) = five_gpu_box::start();
    let nameless = NAMELESS_UID.to_string();
    let cases: [(&[&str], &[u64]); 8] = [
        (&["--user", "root"], &FIRST),
        (&["--user", "0"], &FIRST),
        (&["--user", &nameless], &[NOTEBOOK]),
        (&["--filter", "pyth"], &TRAINING),
        (&["--filter", "t"], &[48_213, 48_214, BOARD, NOTEBOOK]),
        (&["--filter", "^t"], &[BOARD]),
        (
            &["--filter", "^(python|jupyter.*)$"],
            &[48_213, 48_214, NOTEBOOK],
        ),
        (
            &["--user", "root", "--filter", "board$", "--gpu", "0"],
            &[BOARD],
        ),
    ];
    for (arguments, processes) in cases {
        let ran = list_json(&test_box, arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        assert_eq!(selected_gpus_and_pids(&ran).1, processes, "{arguments:?}");
    }
    // The table for one user has the GPUs that they use and no unattributed memory.
    let table = test_box.table(&["list", "--user", &nameless]);
    assert_eq!(table.lines().count(), 4, "{table}");
    let heading = test_box.ctl(&["list", "--user", &nameless]).stdout;
    let heading = heading.lines().next().unwrap();
    assert!(
        heading.contains(" · 1 of 5 GPUs · ")
            && heading.ends_with(&format!(" · processes of {nameless}")),
        "{heading}"
    );
    daemon.stop();
}

/// The message for a prefix of two UUIDs of the five GPUs.
const AMBIGUOUS: &str = "\"8f3c\" is ambiguous: it is a prefix of \
                         GPU-8f3c1111-0000-0000-0000-000000000000 (GPU 0), \
                         GPU-8f3c2222-0000-0000-0000-000000000000 (GPU 1)";

#[test]
fn no_match_exits_8_nonsense_exits_3() {
    let (test_box, daemon) = five_gpu_box::start();
    let ambiguous = format!("{AMBIGUOUS}\nhint: type more of it");
    let cases: [(&[&str], i32, &str); 11] = [
        (
            &["--gpu", "5-2"],
            3,
            "the range \"5-2\" is reversed: write 2-5",
        ),
        (
            &["--gpu", "0,4-3"],
            3,
            "the range \"4-3\" is reversed: write 3-4",
        ),
        (
            &["--gpu", "9"],
            3,
            "no GPU matches \"9\": this host has GPU 0, 1, 2, 3, 4",
        ),
        (
            &["--gpu", "a100*"],
            8,
            "no GPU matches \"a100*\": this host has GPU 0, 1, 2, 3, 4",
        ),
        (&["--vendor", "amd"], 8, "no amd GPU here"),
        (
            &["--user", "no-such-person"],
            8,
            "no GPU here is used by processes of no-such-person: no user is called no-such-person",
        ),
        (
            &["--user", "nobody"],
            8,
            "no GPU here is used by processes of nobody",
        ),
        (
            &["--filter", "^train"],
            8,
            "no GPU here is used by processes like ^train",
        ),
        (
            &["--gpu", "2", "--filter", "python"],
            8,
            "no GPU here is used by processes like python",
        ),
        (&["--gpu", "8f3c"], 3, &ambiguous),
        (
            &["--filter", "(python"],
            3,
            "\"(python\" is not a regular expression: found open group without closing ')'",
        ),
    ];
    for (arguments, code, message) in cases {
        let ran = test_box.ctl(&[&["list"], arguments].concat());
        let expected = CommandOutput {
            code,
            stdout: String::new(),
            stderr: format!("gpukillctl: {message}\n"),
        };
        assert_eq!(ran, expected, "{arguments:?}");
        // Programs get a document even without a match, if the selection itself is valid.
        let document = list_json(&test_box, arguments);
        assert_eq!(document.code, code);
        let is_json = serde_json::from_str::<Value>(&document.stdout).is_ok();
        assert_eq!(is_json, !arguments.contains(&"(python"), "{document:?}");
    }
    daemon.stop();
}

#[test]
fn audit_records_by_gpu() {
    let (test_box, daemon) = five_gpu_box::start();
    for (typed, code, message) in [
        ("5-2", 3, "the range \"5-2\" is reversed: write 2-5"),
        ("8f3c", 3, AMBIGUOUS),
        (
            "9",
            3,
            "no GPU matches \"9\": this host has GPU 0, 1, 2, 3, 4",
        ),
    ] {
        let ran = eventually("all GPUs are recorded", || {
            let ran = test_box.ctl(&["audit", "-o", "ndjson", "--gpu", typed]);
            (!ran.stderr.contains("this host has none")).then_some(ran)
        });
        let stderr = format!("gpukillctl: {message}\n");
        assert_eq!((ran.code, ran.stderr), (code, stderr), "{typed}");
    }
    daemon.stop();
}

#[test]
fn unidentified_process_leaves_usage_unknown() {
    let test_box = TestBox::new();
    // The driver lists a process that does not exist here: its owner is unknown.
    test_box.set_driver_state(
        &json!({"gpus": [{"processes": [{"pid": UNUSED_PID, "memory": 1 << 30}]}]}),
    );
    let daemon = test_box.start();
    eventually("the process", || {
        (test_box.list()["procs"][0]["pid"] == UNUSED_PID).then_some(())
    });
    let message = |arguments: &[&str]| {
        let ran = test_box.ctl(&[&["list"], arguments].concat());
        (ran.code, ran.stderr)
    };
    let unknown = |owner: &str, what: &str| {
        let why = format!(
            "the {what} of process {UNUSED_PID} is unknown (no such process on this \
        host)"
        );
        let why = format!("it is not known whether GPU 0 is used by {owner}: {why}");
        let hint = "see gpukillctl status";
        (2, format!("gpukillctl: {why}\nhint: {hint}\n"))
    };
    let typo = "no GPU here is used by processes of no-such-person: \
                no user is called no-such-person";
    assert_eq!(
        message(&["--user", "no-such-person"]),
        (8, format!("gpukillctl: {typo}\n"))
    );
    assert_eq!(
        message(&["--user", "root"]),
        unknown("processes of root", "user")
    );
    assert_eq!(
        message(&["--user", "4242"]),
        unknown("processes of 4242", "user")
    );
    assert_eq!(
        message(&["--filter", "^x"]),
        unknown("processes like ^x", "name")
    );
    daemon.stop();
}

#[test]
fn table_limits_processes_per_gpu() {
    let (test_box, daemon) = five_gpu_box::start();
    let rows = |number: &str| -> Vec<String> {
        let table = test_box.table(&["list", "-d", "--gpu", "0", "--max-processes", number]);
        let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
        rows.map(|row| row.split_whitespace().nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(rows("0"), ["48213", "48214", "50001"]);
    assert_eq!(rows("3"), ["48213", "48214", "50001"]);
    assert_eq!(rows("1"), ["48213", "…"]);
    let table = test_box.table(&["list", "-d", "--max-processes", "1"]);
    let more = table.lines().nth(2);
    assert_eq!(
        more,
        Some("   0  … 2 more here: --max-processes 0 shows all")
    );
    // Documents for programs are complete.
    let ran = list_json(&test_box, &["--max-processes", "1"]);
    assert_eq!(selected_gpus_and_pids(&ran).1.len(), 4);
    daemon.stop();
}

#[test]
fn container_column_is_optional() {
    let (test_box, daemon) = five_gpu_box::start();
    for (arguments, title) in [
        (&["list", "--containers", "--width", "70"][..], "CONTAINERS"),
        (
            &["list", "-d", "--containers", "--width", "70"],
            "CONTAINER ",
        ),
    ] {
        let table = test_box.table(arguments);
        assert!(table.lines().next().unwrap().contains(title), "{table}");
        let with_container: Vec<&str> = table
            .lines()
            .filter(|line| line.contains("docker/0123456789ab"))
            .collect();
        assert_eq!(with_container.len(), 1, "{table}");
        assert!(with_container[0].starts_with("   1  "), "{table}");
    }
    daemon.stop();
}

#[test]
fn csv_and_json_have_every_table_field() {
    let (test_box, daemon) = five_gpu_box::start();
    let list = test_box.json(&["list", "-o", "json"]);
    let line = test_box.ctl(&["list", "-o", "ndjson"]).stdout;
    assert_eq!(line.matches('\n').count(), 1);
    let on_one_line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(keys(&on_one_line), keys(&list));
    for (arguments, rows, first) in [
        (
            &["list", "-o", "csv"][..],
            5,
            "ts,gpu_index,id,pci,name,vendor,state,",
        ),
        (
            &["list", "-d", "-o", "csv"],
            4,
            "ts,gpu_index,gpu_id,gpu_instance,compute_instance,pid,uid,user,proc_name,",
        ),
    ] {
        let csv = test_box.ctl(arguments).stdout;
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), rows + 1, "{csv}");
        assert!(lines[0].starts_with(first), "{csv}");
    }
    let csv = test_box.ctl(&["list", "--gpu", "3", "-o", "csv"]).stdout;
    let reasons = csv.lines().nth(1).unwrap();
    assert!(
        reasons.contains("; power_w: unsupported; ")
            && reasons.ends_with("; util_pct: failed: NVML reports an unknown error (999)"),
        "{csv}"
    );
    daemon.stop();
}

fn keys(document: &Value) -> Vec<&String> {
    document.as_object().unwrap().keys().collect()
}
