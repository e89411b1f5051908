//! Limits on the evaluation of foreign rules: it costs the daemon little, and it discloses no
//! more of a rule file than the caller may know.

use super::hostile_files::{large_patterns, refuses_hostile_files};
use super::{GIB, set_gpu_processes, write_rules};
use gpukill_tests::harness::{
    Daemon, NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually, run_as_user,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Starts a daemon and waits until it has stored samples of this many processes.
fn start_with_history(
    test_box: &TestBox,
    count: usize,
    samples: usize,
) -> (Daemon, Vec<TestProcess>) {
    let processes: Vec<TestProcess> = (0..count).map(|_| TestProcess::start("busy")).collect();
    let usage: Vec<(u32, u64)> = processes.iter().map(|it| (it.pid(), GIB)).collect();
    set_gpu_processes(test_box, &usage);
    let daemon = test_box.start();
    eventually("there is a history", || {
        let ran = test_box.ctl(&["guard", "replay", "--since", "1h", "-o", "json"]);
        let report: Value = serde_json::from_str(&ran.stdout).ok()?;
        (report["evaluated"].as_u64()? >= samples as u64).then_some(())
    });
    (daemon, processes)
}

/// This many rules with the same condition.
fn repeat_rule(rules: usize, what: &str) -> String {
    let one = |nth| format!("[[rules]]\nname = \"r{nth}\"\naction = \"warn\"\n{what}\n");
    (0..rules).map(one).collect()
}

fn process_file(daemon: &Daemon, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).unwrap()
}

/// The peak of resident memory, in bytes.
fn peak_memory(daemon: &Daemon) -> u64 {
    let status = process_file(daemon, "status");
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib = line.unwrap().split_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Resident memory, in bytes.
fn resident_memory(daemon: &Daemon) -> u64 {
    let status = process_file(daemon, "status");
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().split_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Processor time in clock ticks (fields 14 and 15 of proc_pid_stat(5)).
fn processor_ticks(daemon: &Daemon) -> u64 {
    let stat = process_file(daemon, "stat");
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|it| it.parse::<u64>().unwrap()).sum()
}

#[test]
fn excessive_replays_are_refused() {
    let test_box = TestBox::new();
    let (daemon, _processes) = start_with_history(&test_box, 64, 4);
    let before = peak_memory(&daemon);
    let file = test_box.path("many.toml");
    let violations = "gpukillctl: these rules find more than 1000 violations at once: try \
                      fewer rules, or a shorter time\n";
    let looked_back = "gpukillctl: these rules look back over more than 3000 jobs and processes \
                       at once: try fewer rules, or a shorter time\n";
    for (what, expected) in [
        ("duration_limit_hours = 0", violations),
        (
            "waste_below_pct = 5\nwaste_min_memory_gb = 0\nwaste_hours = 2",
            looked_back,
        ),
        ("growth_gb = 1\ngrowth_hours = 2", looked_back),
    ] {
        std::fs::write(&file, repeat_rule(10_000, what)).unwrap();
        let name = file.to_str().unwrap();
        let ran = test_box.ctl(&["guard", "replay", "--rules", name, "--since", "1h"]);
        assert_eq!(ran.stderr, expected, "{what}");
    }
    let grown = peak_memory(&daemon).saturating_sub(before);
    assert!(grown < 64 * MIB, "by {} MiB", grown / MIB);
    daemon.stop();
}

#[test]
fn replay_ends_when_the_client_disconnects() {
    let test_box = TestBox::new();
    let (daemon, _processes) = start_with_history(&test_box, 32, 12);
    let file = test_box.path("slow.toml");
    std::fs::write(&file, repeat_rule(3_000, "duration_limit_hours = 900")).unwrap();
    let slow = [
        "guard",
        "replay",
        "--rules",
        file.to_str().unwrap(),
        "--since",
        "1h",
    ];
    let (started_at, before) = (Instant::now(), processor_ticks(&daemon));
    let ran = test_box.ctl(&slow);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (whole, cost) = (started_at.elapsed(), processor_ticks(&daemon) - before);

    let before = processor_ticks(&daemon);
    let mut gone = test_box.client_command(&slow);
    let mut gone = gone
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the replay has started", || {
        (processor_ticks(&daemon) - before > cost / 5).then_some(())
    });
    gone.kill().unwrap();
    gone.wait().unwrap();
    let started_at = Instant::now();
    let ran = test_box.ctl(&["guard", "replay", "--since", "1h"]);
    let waited = started_at.elapsed();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(waited < whole / 2, "{waited:?} of {whole:?}");
    assert!(
        whole > Duration::from_millis(500),
        "{whole:?} is too short to measure"
    );
    daemon.stop();
}

#[test]
fn export_is_byte_identical() {
    let test_box = TestBox::new();
    let text = "# \u{1b}[2J\r\n[user_policies.alice]\r\nmemory_limit_gb = 8\r\n";
    let text = &text.replace('\u{1b}', "\u{202e}");
    write_rules(&test_box, text);
    let daemon = test_box.start();
    for command in [&["guard", "export"], &["guard", "config"]] {
        let ran = test_box.ctl(command);
        assert_eq!((ran.code, &ran.stdout), (0, text), "{command:?}");
    }
    daemon.stop();
}

#[test]
fn default_limits_count_as_rules() {
    let test_box = TestBox::new();
    write_rules(
        &test_box,
        "[global]\ndefault_memory_limit_gb = 8\ndefault_idle_limit_minutes = 9\n\
         [user_policies.root]\nmemory_limit_gb = 8\n",
    );
    let daemon = test_box.start();
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(3));
    let ran = test_box.ctl(&[
        "guard",
        "check",
        test_box.path("guard.toml").to_str().unwrap(),
    ]);
    assert!(
        ran.stdout
            .ends_with("guard.toml: 3 rules, dry-run; no mistake\n"),
        "{ran:?}"
    );
    daemon.stop();
}

#[test]
fn unread_file_is_hidden_from_users() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    let rules = "[user_policies.alice]\nmemory_limit_gb = 8\n";
    write_rules(&test_box, rules);
    let daemon = test_box.start();
    test_box.make_world_accessible();
    write_rules(&test_box, "hunter2 = \"swordfish\"\n");
    // Before and after the daemon has read the new file.
    let config = || {
        run_as_user(NOBODY_UID, &[], || {
            test_box.ctl(&["guard", "config"]).stdout
        })
    };
    assert_eq!(config(), rules);
    daemon.signal(Signal::HUP);
    let fault = eventually("the mistake is reported", || test_box.faults().pop());
    assert_eq!(config(), rules);
    let mistakes = |uid: u32| {
        run_as_user(uid, &[], || {
            test_box.json(&["guard", "status", "-o", "json"])["mistakes"].clone()
        })
    };
    assert_eq!(
        mistakes(NOBODY_UID),
        json!(["a mistake in line 1, column 1"])
    );
    let to_admin = mistakes(0)[0].as_str().unwrap().to_owned();
    assert!(to_admin.contains("hunter2"), "{to_admin}");
    assert!(!fault.1.contains("hunter2"), "{fault:?}");
    daemon.stop();
}

#[test]
fn memory_of_foreign_rules_is_released() {
    let test_box = TestBox::new();
    let (daemon, _processes) = start_with_history(&test_box, 4, 2);
    let before = resident_memory(&daemon);
    let foreign = test_box.path("foreign.toml");
    let name = foreign.to_str().unwrap();
    std::fs::write(&foreign, large_patterns(900)).unwrap();
    let rules = test_box.path("guard.toml");
    let gives_back = |what: &str| {
        // A debug build grows by at least this much during its first use.
        let bound = before + 4 * MIB;
        let mut last = 0;
        let given = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            last = resident_memory(&daemon);
            last <= bound
        });
        eprintln!(
            "{what}: {} KiB before, {} KiB after",
            before >> 10,
            last >> 10
        );
        assert!(
            given,
            "{what}: {} MiB, then {} MiB",
            before / MIB,
            last / MIB
        );
    };
    for _ in 0..3 {
        let ran = test_box.ctl(&["guard", "test", "--rules", name]);
        assert!([0, 3].contains(&ran.code), "{ran:?}");
        let ran = test_box.ctl(&["guard", "replay", "--rules", name, "--since", "1h"]);
        assert!([0, 3].contains(&ran.code), "{ran:?}");
    }
    gives_back("foreign rules");
    refuses_hostile_files(&test_box, &daemon, &rules);
    gives_back("junk");
    std::fs::remove_file(&rules).unwrap();
    daemon.stop();
}

#[test]
fn rule_reader_is_confined() {
    let test_box = TestBox::new();
    let (daemon, _processes) = start_with_history(&test_box, 4, 2);
    let file = test_box.path("slow.toml");
    std::fs::write(&file, repeat_rule(3_000, "duration_limit_hours = 900")).unwrap();
    let rules = file.to_str().unwrap();
    let mut client =
        test_box.client_command(&["guard", "replay", "--rules", rules, "--since", "1h"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let open = eventually("it is confined", || {
        let of_child = format!("/proc/{}", daemon.child_pid("gpukilld-rules")?);
        let status = std::fs::read_to_string(format!("{of_child}/status")).ok()?;
        let has = |line: &str| status.lines().any(|it| it == line);
        let is_confined = has("Seccomp:\t2") && has("NoNewPrivs:\t1");
        if !is_confined || !has("CapEff:\t0000000000000000") {
            return None;
        }
        let descriptors = std::fs::read_dir(format!("{of_child}/fd")).ok()?;
        let open = descriptors.map(|it| std::fs::read_link(it.ok()?.path()).ok());
        open.collect::<Option<Vec<_>>>()
    });
    let is_of_the_store = |file: &&std::path::PathBuf| file.starts_with(test_box.path("state"));
    let files: Vec<_> = open.iter().filter(|it| it.is_absolute()).collect();
    let of_store = files.iter().filter(|it| is_of_the_store(it)).count();
    let null = files.iter().filter(|it| it.ends_with("dev/null")).count();
    assert!(of_store > 0 && of_store + null == files.len(), "{open:?}");
    client.kill().unwrap();
    client.wait().unwrap();
    daemon.stop();
}
