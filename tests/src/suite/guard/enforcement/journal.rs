//! The guard's entries in a real journal: one for each event, with the priority and fields that
//! `docs/journal.md` promises. The commands of that document find them.

mod expected;

use super::{GuardBox, MEMORY_RELEASE_TIME, RESPAWNING_JOB};
use expected::{KINDS_BY_COMMAND, expected_entries};
use gpukill_tests::harness::{
    Daemon, FakeDriver, Journald, LoginTerminal, Script, TestBox, can_run_as_other_users,
    eventually_equals, process_has_ended, run_as_user, test_uid,
};
use serde_json::{Map, Value, json};
use std::process::Command;

const ALICE: u32 = test_uid(141);
const BOB: u32 = test_uid(142);

/// The GPU of the stand-in NVML.
const GPU: &str = "GPU-00000000-0000-0000-0000-000000000000";

/// A limit of 0.5 GiB for every person but root. The guard ends one job, and the circuit
/// breaker prevents a second end.
const RULES: &str = "[global]\ndry_run = true\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\ngrace_period_seconds = 4\nmax_warnings = 1\nsnooze_minutes = 0.05\n\
    max_ended_per_10_minutes = 1\nsettled_after_minutes = 0.02\n[user_policies.root]\nmemory_limit_gb = 8\n";

/// Fields that differ in each run. Only their presence is compared.
const VARYING: &[&str] = &[
    "GPUKILL_ACTION_ID",
    "GPUKILL_DEADLINE",
    "GPUKILL_JOB",
    "GPUKILL_OUTCOME",
    "GPUKILL_PLAN",
    "GPUKILL_REVISION",
];

/// The fields of an entry without those that journald adds or every entry has; `MESSAGE`
/// without its fields.
fn comparable_fields(entry: &Value) -> Value {
    let of_all = ["SYSLOG_IDENTIFIER", "GPUKILL_TARGET", "MESSAGE_ID"];
    let mut fields = Map::new();
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
        fields.insert(name.clone(), value);
    }
    Value::Object(fields)
}

/// A daemon's journal.
struct DaemonJournal {
    journald: Journald,
    test_box: TestBox,
}

impl DaemonJournal {
    /// The entries of this kind.
    fn entries(&self, kind: &str) -> Vec<Value> {
        let id = format!("MESSAGE_ID={}", Journald::message_id(kind));
        self.journald
            .entries(&[&id])
            .iter()
            .map(comparable_fields)
            .collect()
    }

    /// Waits for this many entries of this kind.
    fn wait_for(&self, kind: &str, count: usize) {
        eventually_equals(&count, || self.entries(kind).len());
    }

    /// The kinds of entries that each command of the document finds. The commands name a unit;
    /// here the daemon is selected by its name instead.
    fn kinds_by_command(&self, meant: &[(&str, &str)]) -> Vec<Vec<&'static str>> {
        let document = include_str!("../../../../../docs/journal.md");
        let (_, lines) = document.split_once("```console\n").unwrap();
        let (lines, _) = lines.split_once("```").unwrap();
        let lines = lines.replace("\\\n", " ");
        let lines = lines.lines().map(|line| {
            let line = line.strip_prefix("$ ").expect("a command");
            let (command, _) = line.split_once("  #").unwrap_or((line, ""));
            // `-f` would not end.
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
            let mut kinds: Vec<&str> = found
                .lines()
                .map(|line| documented_kind(document, line))
                .collect();
            kinds.sort_unstable();
            kinds
        });
        lines.collect()
    }
}

/// The kind of this entry according to the document.
fn documented_kind(document: &'static str, line: &str) -> &'static str {
    let entry: Value = serde_json::from_str(line).unwrap();
    let Some(id) = entry["MESSAGE_ID"].as_str() else {
        return "none";
    };
    let is_it = |row: &&str| row.contains(&format!("| `{id}` |"));
    let row = document.lines().find(is_it).expect("it is documented");
    row.split(' ').nth(1).unwrap()
}

/// Starts a daemon with these rules and a journal; `None` where journald cannot run.
fn start(rules: &str, environment: &[(&str, &str)]) -> Option<(DaemonJournal, Daemon)> {
    if !can_run_as_other_users() {
        return None;
    }
    let journald = Journald::start()?;
    let test_box = GuardBox::test_box_with_rules(rules)?;
    // Creates the links in the box's directory as root.
    drop(Script::run(&test_box, "true"));
    let mut daemon = test_box.daemon_command();
    daemon.envs(environment.iter().copied());
    let daemon = journald.start_daemon(&test_box, &daemon);
    Some((DaemonJournal { journald, test_box }, daemon))
}

#[test]
fn each_step_is_one_journal_entry() {
    let environment = [
        ("GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS", "85"),
        ("GPUKILLD_GUARD_TERMINALS", "/dev"),
    ];
    let Some((it, daemon)) = start(RULES, &environment) else {
        return;
    };
    let test_box = &it.test_box;
    for (temperature, kind) in [(91, "alert-started"), (80, "alert-over")] {
        test_box.set_driver_state(&json!({"gpus": [{"temperature": temperature}]}));
        it.wait_for(kind, 1);
    }
    assert_eq!(test_box.ctl(&["guard", "soft"]).code, 0);
    let driver = FakeDriver::start(test_box, MEMORY_RELEASE_TIME);
    let _terminal = LoginTerminal::new(ALICE);
    let jobs =
        [ALICE, BOB].map(|uid| run_as_user(uid, &[], || Script::run(test_box, RESPAWNING_JOB)));
    let [[_, alices], [bobs_launcher, bobs]] = jobs.each_ref().map(Script::next_pids::<2>);
    driver.add_processes(&[alices, bobs]);
    it.wait_for("warned", 2);
    let pid = alices.to_string();
    let ask = |uid: u32, what: &[&str]| {
        let asked = [what, &[&pid]].concat();
        run_as_user(uid, &[], || test_box.ctl(&asked)).code
    };
    assert_eq!(ask(ALICE, &["guard", "snooze"]), 0);
    assert_eq!(ask(BOB, &["kill", "--yes"]), 4);
    // bob's job is ended; alice's job, which has a snooze, would exceed the limit of the
    // circuit breaker.
    it.wait_for("job-gone", 1);
    it.wait_for("breaker-tripped", 1);
    // From then on ends are simulated.
    it.wait_for("job-ended", 2);
    let [alices_job, bobs_job] = jobs;
    drop((alices_job, bobs_job));
    it.wait_for("rule-satisfied", 2);
    assert_eq!(test_box.ctl(&["guard", "soft", "--yes"]).code, 0);
    it.wait_for("breaker-reset", 1);
    it.wait_for("fault-over", 1);
    assert_eq!(test_box.list()["gpus"][0]["id"], GPU);
    daemon.stop();
    // This is the daemon's last entry, so all entries exist.
    it.wait_for("stopped", 1);
    for (kind, expected) in expected_entries([alices, bobs, bobs_launcher]) {
        assert_eq!(Value::from(it.entries(kind)), expected, "{kind}");
    }
    let pid = alices.to_string();
    let uid = format!("UID={ALICE}");
    let found = it.kinds_by_command(&[
        ("48213", &pid),
        ("UID=1000", &uid),
        ("GPU-8a7c3f5e-1d2b-4c6a-9e0f-5b4d3c2a1f00", GPU),
        // "today" fails just after midnight.
        ("today", "-1hour"),
    ]);
    let counted: Vec<Vec<(&str, usize)>> = found.iter().map(|kinds| count_kinds(kinds)).collect();
    assert_eq!(counted, KINDS_BY_COMMAND);
}

/// Counts the kinds, which are sorted.
fn count_kinds(kinds: &[&'static str]) -> Vec<(&'static str, usize)> {
    let same = kinds.chunk_by(|one, other| one == other);
    same.map(|same| (same[0], same.len())).collect()
}

#[test]
fn dry_run_entries_say_would() {
    let rules = RULES.replace(
        "grace_period_seconds = 4",
        "soft_enforcement = false\nhard_enforcement = true",
    );
    let Some((it, daemon)) = start(&rules, &[]) else {
        return;
    };
    let driver = FakeDriver::start(&it.test_box, MEMORY_RELEASE_TIME);
    let jobs =
        [ALICE, BOB].map(|uid| run_as_user(uid, &[], || Script::run(&it.test_box, RESPAWNING_JOB)));
    let workers = jobs.each_ref().map(|job| job.next_pids::<2>()[1]);
    driver.add_processes(&workers);
    it.wait_for("job-ended", 2);
    daemon.stop();
    it.wait_for("stopped", 1);
    let reported = ["job-ended", "breaker-tripped"].map(|kind| {
        let entries = it.entries(kind).into_iter();
        let fields = |it: Value| json!([it["PRIORITY"], it["GPUKILL_MODE"], it["MESSAGE"]]);
        Value::from_iter(entries.map(fields))
    });
    let ended = json!(["4", "dry-run", "a job would be ended"]);
    let stops = "too many jobs would be ended: the guard would end no more jobs";
    let expected = [json!([ended, ended]), json!([["3", "dry-run", stops]])];
    assert_eq!(reported, expected);
    assert!(workers.iter().all(|pid| !process_has_ended(*pid)));
}
