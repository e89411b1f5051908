//! Whoever tries rules costs the daemon little, whatever the rules are, and nobody is
//! told more of a file of rules than they may know.

use super::junk::{large_patterns, refuses_hostile_files};
use super::{GIB, has_rules, plays};
use gpukill_tests::harness::{
    Actor, Daemon, NOBODY, Stage, acting_as, can_act_as_others, eventually,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A daemon with a history of these many processes.
fn with_history(stage: &Stage, processes: usize, samples: usize) -> (Daemon, Vec<Actor>) {
    let actors: Vec<Actor> = (0..processes).map(|_| Actor::start("busy")).collect();
    let played: Vec<(u32, u64)> = actors.iter().map(|it| (it.pid(), GIB)).collect();
    plays(stage, &played);
    let daemon = stage.start();
    eventually("there is a history", || {
        let ran = stage.ctl(&["guard", "replay", "--since", "1h", "-o", "json"]);
        let report: Value = serde_json::from_str(&ran.stdout).ok()?;
        (report["judged"].as_u64()? >= samples as u64).then_some(())
    });
    (daemon, actors)
}

/// So many rules that say the same.
fn many(rules: usize, what: &str) -> String {
    let one = |nth| format!("[[rules]]\nname = \"r{nth}\"\naction = \"warn\"\n{what}\n");
    (0..rules).map(one).collect()
}

fn of_process(daemon: &Daemon, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).unwrap()
}

/// The most that it has held, in bytes.
fn peak(daemon: &Daemon) -> u64 {
    let status = of_process(daemon, "status");
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib = line.unwrap().split_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// What it holds now, in bytes.
fn resident(daemon: &Daemon) -> u64 {
    let status = of_process(daemon, "status");
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().split_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// How long it has run on processors, in ticks (fields 14 and 15 of proc_pid_stat(5)).
fn ticks(daemon: &Daemon) -> u64 {
    let stat = of_process(daemon, "stat");
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|it| it.parse::<u64>().unwrap()).sum()
}

#[test]
fn rules_that_tell_of_too_much_are_refused_and_cost_the_daemon_little() {
    let stage = Stage::new();
    let (daemon, _actors) = with_history(&stage, 64, 4);
    let before = peak(&daemon);
    let file = stage.path("many.toml");
    let violations = "gpukillctl: these rules tell of more than 1000 violations at once: try \
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
        std::fs::write(&file, many(10_000, what)).unwrap();
        let name = file.to_str().unwrap();
        let ran = stage.ctl(&["guard", "replay", "--rules", name, "--since", "1h"]);
        assert_eq!(ran.stderr, expected, "{what}");
    }
    let grown = peak(&daemon).saturating_sub(before);
    assert!(grown < 64 * MIB, "by {} MiB", grown / MIB);
    daemon.stop();
}

#[test]
fn a_replay_ends_when_whoever_asked_has_gone() {
    let stage = Stage::new();
    let (daemon, _actors) = with_history(&stage, 32, 12);
    let file = stage.path("slow.toml");
    std::fs::write(&file, many(3_000, "duration_limit_hours = 900")).unwrap();
    let slow = [
        "guard",
        "replay",
        "--rules",
        file.to_str().unwrap(),
        "--since",
        "1h",
    ];
    let (begun, before) = (Instant::now(), ticks(&daemon));
    let ran = stage.ctl(&slow);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (whole, cost) = (begun.elapsed(), ticks(&daemon) - before);

    let before = ticks(&daemon);
    let mut gone = stage.client(&slow);
    let mut gone = gone
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it has begun", || {
        (ticks(&daemon) - before > cost / 5).then_some(())
    });
    gone.kill().unwrap();
    gone.wait().unwrap();
    let begun = Instant::now();
    let ran = stage.ctl(&["guard", "replay", "--since", "1h"]);
    let waited = begun.elapsed();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(waited < whole / 2, "{waited:?} of {whole:?}");
    assert!(
        whole > Duration::from_millis(500),
        "{whole:?} tells nothing"
    );
    daemon.stop();
}

#[test]
fn rules_in_a_pipe_are_those_of_the_file_to_the_last_byte() {
    let stage = Stage::new();
    let text = "# \u{1b}[2J\r\n[user_policies.alice]\r\nmemory_limit_gb = 8\r\n";
    let text = &text.replace('\u{1b}', "\u{202e}");
    has_rules(&stage, text);
    let daemon = stage.start();
    for command in [&["guard", "export"], &["guard", "config"]] {
        let ran = stage.ctl(command);
        assert_eq!((ran.code, &ran.stdout), (0, text), "{command:?}");
    }
    daemon.stop();
}

#[test]
fn limits_that_hold_for_everybody_count_as_rules() {
    let stage = Stage::new();
    has_rules(
        &stage,
        "[global]\ndefault_memory_limit_gb = 8\ndefault_idle_limit_minutes = 9\n\
         [user_policies.root]\nmemory_limit_gb = 8\n",
    );
    let daemon = stage.start();
    let status = stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(3));
    let ran = stage.ctl(&["guard", "check", stage.path("guard.toml").to_str().unwrap()]);
    assert!(
        ran.stdout
            .ends_with("guard.toml: 3 rules, dry-run; no mistake\n"),
        "{ran:?}"
    );
    daemon.stop();
}

#[test]
fn a_stranger_is_told_what_is_in_force_and_not_what_the_file_holds_now() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    let rules = "[user_policies.alice]\nmemory_limit_gb = 8\n";
    has_rules(&stage, rules);
    let daemon = stage.start();
    stage.open_to_all();
    has_rules(&stage, "hunter2 = \"swordfish\"\n");
    // Before the daemon has heard of it, and after.
    let config = || acting_as(NOBODY, &[], || stage.ctl(&["guard", "config"]).stdout);
    assert_eq!(config(), rules);
    daemon.signal(Signal::HUP);
    let fault = eventually("it is said", || stage.faults().pop());
    assert_eq!(config(), rules);
    let told = |uid: u32| {
        acting_as(uid, &[], || {
            stage.json(&["guard", "status", "-o", "json"])["mistakes"].clone()
        })
    };
    assert_eq!(told(NOBODY), json!(["a mistake in line 1, column 1"]));
    let to_admin = told(0)[0].as_str().unwrap().to_owned();
    assert!(to_admin.contains("hunter2"), "{to_admin}");
    assert!(!fault.1.contains("hunter2"), "{fault:?}");
    daemon.stop();
}

#[test]
fn what_foreign_rules_need_goes_with_them() {
    let stage = Stage::new();
    let (daemon, _actors) = with_history(&stage, 4, 2);
    let before = resident(&daemon);
    let foreign = stage.path("foreign.toml");
    let name = foreign.to_str().unwrap();
    std::fs::write(&foreign, large_patterns(900)).unwrap();
    let rules = stage.path("guard.toml");
    let gives_back = |what: &str| {
        // The least that a debug build grows by while it is used for the first time.
        let bound = before + 4 * MIB;
        let mut last = 0;
        let given = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            last = resident(&daemon);
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
        let ran = stage.ctl(&["guard", "test", "--rules", name]);
        assert!([0, 3].contains(&ran.code), "{ran:?}");
        let ran = stage.ctl(&["guard", "replay", "--rules", name, "--since", "1h"]);
        assert!([0, 3].contains(&ran.code), "{ran:?}");
    }
    gives_back("foreign rules");
    refuses_hostile_files(&stage, &daemon, &rules);
    gives_back("junk");
    std::fs::remove_file(&rules).unwrap();
    daemon.stop();
}

#[test]
fn whoever_reads_foreign_rules_has_no_right_and_no_file_but_the_store() {
    let stage = Stage::new();
    let (daemon, _actors) = with_history(&stage, 4, 2);
    let file = stage.path("slow.toml");
    std::fs::write(&file, many(3_000, "duration_limit_hours = 900")).unwrap();
    let rules = file.to_str().unwrap();
    let mut client = stage.client(&["guard", "replay", "--rules", rules, "--since", "1h"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let open = eventually("it is confined", || {
        let of_child = format!("/proc/{}", daemon.child_named("gpukilld-rules")?);
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
    let is_of_the_store = |file: &&std::path::PathBuf| file.starts_with(stage.path("state"));
    let files: Vec<_> = open.iter().filter(|it| it.is_absolute()).collect();
    let of_store = files.iter().filter(|it| is_of_the_store(it)).count();
    let null = files.iter().filter(|it| it.ends_with("dev/null")).count();
    assert!(of_store > 0 && of_store + null == files.len(), "{open:?}");
    client.kill().unwrap();
    client.wait().unwrap();
    daemon.stop();
}
