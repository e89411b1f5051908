//! Whatever the guard does is in a real journal once, of its kind, as grave as it is and
//! with the fields that `docs/journal.md` promises, and is found by the lines it gives.

mod expected;

use super::{Box, JOB, TEARDOWN};
use expected::{BY_THE_LINES, expected};
use gpukill_tests::harness::{
    Daemon, Driver, Journald, Login, Stage, Troupe, acting_as, becomes, can_act_as_others, is_over,
    user,
};
use serde_json::{Map, Value, json};
use std::process::Command;

const ALICE: u32 = user(141);
const BOB: u32 = user(142);

/// The GPU of the stand-in driver.
const GPU: &str = "GPU-00000000-0000-0000-0000-000000000000";

/// Everybody may hold half a GiB, but for whoever runs the tests; one job is ended, and
/// before another one is the guard stops.
const RULES: &str = "[global]\ndry_run = true\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\ngrace_period_seconds = 4\nmax_warnings = 1\nsnooze_minutes = 0.05\n\
    max_ended_per_10_minutes = 1\nsettled_after_minutes = 0.02\n[user_policies.root]\nmemory_limit_gb = 8\n";

/// What journald adds, what every entry of the daemon has, and what is different at each
/// run: of these only whether it is there is compared.
const VARYING: &[&str] = &[
    "GPUKILL_ACT",
    "GPUKILL_DEADLINE",
    "GPUKILL_JOB",
    "GPUKILL_OUTCOME",
    "GPUKILL_PLAN",
    "GPUKILL_REVISION",
];

/// What an entry tells: its fields, and its words up to the first field.
fn told(entry: &Value) -> Value {
    let of_all = ["SYSLOG_IDENTIFIER", "GPUKILL_TARGET", "MESSAGE_ID"];
    let mut told = Map::new();
    for (name, value) in entry.as_object().unwrap() {
        let value = match name.as_str() {
            name if name.starts_with('_') || of_all.contains(&name) => continue,
            name if VARYING.contains(&name) => json!("it varies"),
            "MESSAGE" => {
                let words = value.as_str().unwrap().split(' ');
                let words: Vec<&str> = words.take_while(|word| !word.contains('=')).collect();
                json!(words.join(" "))
            }
            _ => value.clone(),
        };
        told.insert(name.clone(), value);
    }
    Value::Object(told)
}

/// A real journal of a daemon.
struct Told {
    journald: Journald,
    stage: Stage,
}

impl Told {
    /// What the entries of this kind tell.
    fn of(&self, kind: &str) -> Vec<Value> {
        let id = format!("MESSAGE_ID={}", Journald::id_of(kind));
        self.journald.entries(&[&id]).iter().map(told).collect()
    }

    /// Waits for so many of them.
    fn becomes(&self, kind: &str, count: usize) {
        becomes(&count, || self.of(kind).len());
    }

    /// The kinds of what each line of the document finds, where the daemon is known by its
    /// name, for here no unit has it.
    fn by_the_lines(&self, meant: &[(&str, &str)]) -> Vec<Vec<&'static str>> {
        let document = include_str!("../../../../../docs/journal.md");
        let (_, lines) = document.split_once("```console\n").unwrap();
        let (lines, _) = lines.split_once("```").unwrap();
        let lines = lines.replace("\\\n", " ");
        let lines = lines.lines().map(|line| {
            let line = line.strip_prefix("$ ").expect("a command");
            let (command, _) = line.split_once("  #").unwrap_or((line, ""));
            // It would not end.
            let mut command = command.replace(" -f ", " ");
            for (example, ours) in meant {
                command = command.replace(example, ours);
            }
            let directory = self.journald.directory().display().to_string();
            let daemon = format!("--directory {directory} SYSLOG_IDENTIFIER=gpukilld");
            let command = command.replace("-u gpukilld", &daemon);
            let shell = format!("{command} -o json");
            let output = Command::new("/bin/sh").args(["-c", &shell]).output();
            let found = String::from_utf8(output.unwrap().stdout).unwrap();
            let mut kinds: Vec<&str> = found.lines().map(|line| kind_of(document, line)).collect();
            kinds.sort_unstable();
            kinds
        });
        lines.collect()
    }
}

/// The name that the document has for the kind of this entry.
fn kind_of(document: &'static str, line: &str) -> &'static str {
    let entry: Value = serde_json::from_str(line).unwrap();
    let Some(id) = entry["MESSAGE_ID"].as_str() else {
        return "none";
    };
    let is_it = |row: &&str| row.contains(&format!("| `{id}` |"));
    let row = document.lines().find(is_it).expect("it is documented");
    row.split(' ').nth(1).unwrap()
}

/// A daemon with these rules whose log is a real journal; `None` where there is none.
fn starts(rules: &str, environment: &[(&str, &str)]) -> Option<(Told, Daemon)> {
    if !can_act_as_others() {
        return None;
    }
    let journald = Journald::start()?;
    let stage = Box::stage(rules)?;
    // What a troupe makes in the box's directory, root makes.
    drop(Troupe::run(&stage, "true"));
    let mut daemon = stage.daemon();
    daemon.envs(environment.iter().copied());
    let daemon = journald.starts(&stage, &daemon);
    Some((Told { journald, stage }, daemon))
}

#[test]
fn each_step_of_the_guard_is_one_entry_that_an_admin_finds() {
    let environment = [
        ("GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS", "85"),
        ("GPUKILLD_GUARD_TERMINALS", "/dev"),
    ];
    let Some((it, daemon)) = starts(RULES, &environment) else {
        return;
    };
    let stage = &it.stage;
    for (temperature, kind) in [(91, "alert-begins"), (80, "alert-over")] {
        stage.play(&json!({"gpus": [{"temperature": temperature}]}));
        it.becomes(kind, 1);
    }
    assert_eq!(stage.ctl(&["guard", "soft"]).code, 0);
    let driver = Driver::start(stage, TEARDOWN);
    let _terminal = Login::of(ALICE);
    let jobs = [ALICE, BOB].map(|uid| acting_as(uid, &[], || Troupe::run(stage, JOB)));
    let [[_, alices], [bobs_launcher, bobs]] = jobs.each_ref().map(Troupe::pids::<2>);
    driver.lists(&[alices, bobs]);
    it.becomes("warned", 2);
    let pid = alices.to_string();
    let ask = |uid: u32, what: &[&str]| {
        let asked = [what, &[&pid]].concat();
        acting_as(uid, &[], || stage.ctl(&asked)).code
    };
    assert_eq!(ask(ALICE, &["guard", "snooze"]), 0);
    assert_eq!(ask(BOB, &["kill", "--yes"]), 4);
    // bob is ended; and alice, who had more time, would be one too many.
    it.becomes("job-gone", 1);
    it.becomes("breaker-tripped", 1);
    // From then on it is rehearsed.
    it.becomes("job-ended", 2);
    let [alices_job, bobs_job] = jobs;
    drop((alices_job, bobs_job));
    it.becomes("rule-kept", 2);
    assert_eq!(stage.ctl(&["guard", "soft"]).code, 0);
    it.becomes("breaker-reset", 1);
    it.becomes("fault-over", 1);
    assert_eq!(stage.list()["gpus"][0]["id"], GPU);
    daemon.stop();
    // The last one: all are there.
    it.becomes("stopped", 1);
    for (kind, expected) in expected([alices, bobs, bobs_launcher]) {
        assert_eq!(Value::from(it.of(kind)), expected, "{kind}");
    }
    let pid = alices.to_string();
    let uid = format!("UID={ALICE}");
    let found = it.by_the_lines(&[
        ("48213", &pid),
        ("UID=1000", &uid),
        ("GPU-8a7c3f5e-1d2b-4c6a-9e0f-5b4d3c2a1f00", GPU),
        // Also where it is just after midnight.
        ("today", "-1hour"),
    ]);
    let counted: Vec<Vec<(&str, usize)>> = found.iter().map(|kinds| counted(kinds)).collect();
    assert_eq!(counted, BY_THE_LINES);
}

/// How often each of these sorted kinds is there.
fn counted(kinds: &[&'static str]) -> Vec<(&'static str, usize)> {
    let same = kinds.chunk_by(|one, other| one == other);
    same.map(|same| (same[0], same.len())).collect()
}

#[test]
fn what_a_dry_run_would_do_is_told_as_that() {
    let rules = RULES.replace(
        "grace_period_seconds = 4",
        "soft_enforcement = false\nhard_enforcement = true",
    );
    let Some((it, daemon)) = starts(&rules, &[]) else {
        return;
    };
    let driver = Driver::start(&it.stage, TEARDOWN);
    let jobs = [ALICE, BOB].map(|uid| acting_as(uid, &[], || Troupe::run(&it.stage, JOB)));
    let workers = jobs.each_ref().map(|job| job.pids::<2>()[1]);
    driver.lists(&workers);
    it.becomes("job-ended", 2);
    daemon.stop();
    it.becomes("stopped", 1);
    let said = ["job-ended", "breaker-tripped"].map(|kind| {
        let told = it.of(kind).into_iter();
        Value::from_iter(told.map(|it| json!([it["PRIORITY"], it["GPUKILL_MODE"], it["MESSAGE"]])))
    });
    let ended = json!(["4", "dry-run", "a job would be ended"]);
    let stops = "too many jobs would be ended: the guard would end nobody any more";
    let expected = [json!([ended, ended]), json!([["3", "dry-run", stops]])];
    assert_eq!(said, expected);
    assert!(workers.iter().all(|pid| !is_over(*pid)));
}
