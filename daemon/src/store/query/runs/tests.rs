//! Runs of a store with known rows.

use super::super::super::database::{AUDIT, SAMPLES, open};
use super::super::super::retention::delete_before;
use super::super::super::sample::{DepartedProcess, Departure};
use super::super::sample_store::{HOUR, MINUTE, MONDAY, SampleStore, between, device, process};
use super::super::summary::summary;
use super::*;
use gpukill_proto::audit::RunEnd;
use gpukill_proto::model::GpuProcess;
use gpukill_proto::text::NO_PROCESS;
use rusqlite::Connection;
use serde_json::json;

const SECOND: i64 = 1000;
const HOUR_MS: u64 = 3_600_000;
const NOW: Timestamp = Timestamp(100_000 * SECOND);

/// Both files, with two GPUs. Alice's job has two processes on GPU 0 and one on both; bob runs
/// two jobs; a pid without a process holds GPU 1.
fn files() -> (tempfile::TempDir, Connection, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let samples = open(directory.path(), &SAMPLES).unwrap().connection;
    let audit = open(directory.path(), &AUDIT).unwrap().connection;
    samples
        .execute_batch(
            "INSERT INTO device (id, uuid, gpu_index) VALUES (1, 'GPU-a', 0), (2, 'GPU-b', 1);
             INSERT INTO process (id, boot, pid, start_ticks, uid, user, owner, owner_uid,
                owner_kind, name, command, container, container_name, job) VALUES
             (1, 'boot', 11, 1, 1000, 'alice', 'alice', 1000, 0, 'python',
                'python train.py', NULL, NULL, 'slurm 7'),
             (2, 'boot', 12, 1, 1000, 'alice', 'alice', 1000, 0, 'python',
                'python train.py --rank 1', NULL, NULL, 'slurm 7'),
             (3, 'boot', 13, 1, 1001, 'bob', 'bob', 1001, 0, 'vllm', '/usr/bin/vllm serve x',
                'docker/0123', 'web', 'docker web'),
             (4, 'boot', 14, 1, 1001, 'bob', 'bob', 1001, 0, 'sleep', NULL, NULL, NULL, NULL),
             (5, 'boot', 15, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);",
        )
        .unwrap();
    (directory, samples, audit)
}

/// Adds a run from one second to another; it goes on without an ending.
fn run(
    samples: &Connection,
    (process, device): (i64, i64),
    (from, until): (i64, i64),
    ending: Option<&str>,
    action: Option<i64>,
) {
    let insert = "INSERT INTO run (process, device, instance, first_at, last_at, first_sample,
        last_sample, busy_ms, idle_ms, memory_max, memory_mib_s, ended_at, ending, action)
        VALUES (?1, ?2, '', ?3, ?4, 1, 1, ?5, ?5, ?6, ?7, ?8, ?9, ?10)";
    let length = (until - from) * SECOND;
    let (from, until) = (from * SECOND, until * SECOND);
    let ended = ending.map(|_| until);
    let memory = process << 20;
    samples
        .execute(
            insert,
            rusqlite::params![
                process,
                device,
                from,
                until,
                length / 2,
                memory,
                process * length / 1000,
                ended,
                ending,
                action
            ],
        )
        .unwrap();
}

fn everything() -> AuditFilter {
    AuditFilter::for_period(Timestamp(0), NOW)
}

fn query(filter: AuditFilter, unit: RunUnit) -> RunQuery {
    RunQuery {
        filter,
        unit,
        extent: RunExtent::Whole,
        before: None,
        limit: 100,
    }
}

fn page(samples: &mut Connection, query: &RunQuery) -> UnresolvedRuns {
    unresolved_runs(samples, query, &|_, _| true, NOW).unwrap()
}

fn labels(samples: &mut Connection, filter: AuditFilter) -> Vec<String> {
    let found = page(samples, &query(filter, RunUnit::Job)).page;
    found.runs.into_iter().map(|run| run.label).collect()
}

#[test]
fn processes_of_a_job_are_one_run() {
    let (_directory, mut samples, _audit) = files();
    run(&samples, (1, 1), (100, 7_300), Some("ended"), None);
    run(&samples, (1, 2), (200, 7_400), Some("ended"), None);
    run(&samples, (2, 1), (7_500, 11_100), Some("released"), None);
    run(&samples, (3, 2), (300, 400), Some("ended"), None);
    let found = page(&mut samples, &query(everything(), RunUnit::Job)).page;
    let [bobs, alices] = found.runs.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (bobs.label.as_str(), bobs.container.as_deref()),
        ("vllm serve", Some("web"))
    );
    assert_eq!(alices.from, Timestamp(100 * SECOND));
    assert_eq!(alices.until, Timestamp(11_100 * SECOND));
    assert_eq!(
        (alices.processes, alices.pids.as_slice()),
        (2, &[11, 12][..])
    );
    let gpus: Vec<u32> = alices.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(gpus, [0, 1]);
    // Two hours on each GPU, and one hour of the other process.
    assert_eq!(alices.used.total_ms(), 5 * HOUR_MS);
    assert_eq!(alices.used.memory_max, Some(Bytes::mib(2)));
    assert_eq!(alices.end, RunEnd::Released);
    assert_eq!(found.next, None);

    let found = page(&mut samples, &query(everything(), RunUnit::Process)).page;
    let pids: Vec<&[u32]> = found.runs.iter().map(|run| run.pids.as_slice()).collect();
    assert_eq!(pids, [&[12][..], &[13], &[11]]);
}

#[test]
fn process_that_its_driver_lists_after_its_end_is_no_second_run() {
    let (_directory, mut samples, _audit) = files();
    samples
        .execute_batch(
            "INSERT INTO process (id, boot, pid, start_ticks, uid, user, owner, owner_uid,
                owner_kind, name, command, job)
             SELECT 10 * id, boot, pid, -2 - start_ticks, uid, user, owner, owner_uid, owner_kind,
                name, command, job FROM process WHERE id IN (1, 4)",
        )
        .unwrap();
    run(&samples, (1, 1), (100, 200), Some("killed"), Some(5));
    run(&samples, (10, 1), (200, 300), Some("ended"), None);
    // It was observed only after its end.
    run(&samples, (40, 2), (50, 90), Some("ended"), None);
    for unit in [RunUnit::Process, RunUnit::Job] {
        let found = page(&mut samples, &query(everything(), unit));
        let [alices, bobs] = found.page.runs.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(
            (alices.processes, alices.until),
            (1, Timestamp(200 * SECOND))
        );
        assert_eq!(found.endings[0].ending, ProcessEnding::Killed(5));
        // Its memory counts.
        assert_eq!(alices.used.memory_mib_s, 100 + 1_000);
        assert_eq!(
            (bobs.pids.as_slice(), &bobs.end),
            (&[14][..], &RunEnd::Exited)
        );
    }
}

/// The limit of parts relies on it.
#[test]
fn parts_and_groups_are_small() {
    let bytes = size_of::<RunPart>() + size_of::<PartGroup<'_>>();
    assert!(bytes <= 256, "{bytes}");
}

#[test]
fn pause_separates_runs_of_a_job() {
    let (_directory, mut samples, _audit) = files();
    run(&samples, (1, 1), (100, 200), Some("ended"), None);
    run(&samples, (2, 1), (501, 600), Some("ended"), None);
    let found = page(&mut samples, &query(everything(), RunUnit::Job)).page;
    let from: Vec<i64> = found.runs.iter().map(|run| run.from.0 / SECOND).collect();
    assert_eq!(from, [501, 100]);
}

#[test]
fn run_of_another_boot_or_owner_is_another_run() {
    let (_directory, mut samples, _audit) = files();
    for change in ["boot = 'later'", "owner = 'carol'"] {
        samples.execute_batch("DELETE FROM run").unwrap();
        run(&samples, (1, 1), (100, 200), Some("ended"), None);
        run(&samples, (2, 1), (150, 200), Some("ended"), None);
        let update = format!("UPDATE process SET {change} WHERE id = 2");
        samples.execute_batch(&update).unwrap();
        let found = page(&mut samples, &query(everything(), RunUnit::Job)).page;
        assert_eq!(found.runs.len(), 2, "{change}");
    }
}

#[test]
fn running_run_lasts_until_now_and_counts_recent_samples() {
    use super::super::super::blob::encode;
    use gpukill_policy::usage::Usage;

    let (_directory, mut samples, _audit) = files();
    run(&samples, (4, 1), (100, 160), None, None);
    let mut usage: Usage<i64, i64> = Usage::starting_at(Timestamp(160 * SECOND));
    let mut recent = RunUsage::default();
    (recent.held_ms, recent.busy_ms) = (10_000, 10_000);
    usage.runs.insert(1, recent);
    samples
        .execute(
            "INSERT INTO sample (id, at, usage) VALUES (1, 160000, ?1)",
            [encode(&usage)],
        )
        .unwrap();
    let found = page(&mut samples, &query(everything(), RunUnit::Job)).page;
    let run = &found.runs[0];
    assert_eq!((run.until, &run.end), (NOW, &RunEnd::Running));
    assert_eq!(run.used.busy_ms, 30_000 + 10_000);
    assert_eq!(found.recorded_since, Some(Timestamp(160 * SECOND)));
}

#[test]
fn filters_select_runs_by_what_the_screen_shows() {
    let (_directory, mut samples, _audit) = files();
    run(&samples, (1, 1), (100, 200), Some("ended"), None);
    run(&samples, (3, 2), (300, 400), Some("ended"), None);
    run(&samples, (4, 2), (1_000, 1_100), Some("ended"), None);
    run(&samples, (5, 2), (2_000, 2_100), Some("ended"), None);
    samples
        .execute_batch(
            "UPDATE process SET groups = '[\"ml\",\"hpc\"]' WHERE id = 1;
             UPDATE process SET groups = '[\"video\"]' WHERE id = 3;",
        )
        .unwrap();
    let [nobody, sleep, vllm, python] = [NO_PROCESS, "sleep", "vllm serve", "python train.py"];
    let text = |text: &str| Some(text.to_owned());
    let cases: Vec<(AuditFilter, Vec<&str>)> = vec![
        (everything(), vec![nobody, sleep, vllm, python]),
        (
            AuditFilter {
                user: text("bob"),
                ..everything()
            },
            vec![sleep, vllm],
        ),
        (
            AuditFilter {
                user: text("1000"),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                user: text("bob, 1000"),
                ..everything()
            },
            vec![sleep, vllm, python],
        ),
        (
            AuditFilter {
                group: text("ml"),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                group: text("video,hpc"),
                ..everything()
            },
            vec![vllm, python],
        ),
        (
            AuditFilter {
                group: text("m"),
                ..everything()
            },
            vec![],
        ),
        (
            AuditFilter {
                user: text("bob"),
                group: text("ml,video"),
                ..everything()
            },
            vec![vllm],
        ),
        (
            AuditFilter {
                process: text("^python train"),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                process: text("^vllm$"),
                ..everything()
            },
            vec![vllm],
        ),
        (
            AuditFilter {
                command: text("usr/bin"),
                ..everything()
            },
            vec![vllm],
        ),
        (
            AuditFilter {
                gpu: text("0"),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                container: text("web"),
                ..everything()
            },
            vec![vllm],
        ),
        (
            AuditFilter {
                job: text("slurm 7"),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                since: Timestamp(200 * SECOND),
                until: Timestamp(300 * SECOND),
                ..everything()
            },
            vec![python],
        ),
        (
            AuditFilter {
                since: Timestamp(201 * SECOND),
                until: Timestamp(301 * SECOND),
                ..everything()
            },
            vec![vllm],
        ),
        (
            AuditFilter {
                since: Timestamp(401 * SECOND),
                until: Timestamp(999 * SECOND),
                ..everything()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(labels(&mut samples, filter.clone()), expected, "{filter:?}");
    }
}

#[test]
fn unreadable_command_lines_are_neither_shown_nor_matched() {
    let (_directory, mut samples, _audit) = files();
    run(&samples, (1, 1), (100, 200), Some("ended"), None);
    run(&samples, (3, 2), (300, 400), Some("ended"), None);
    let of_bob = |uid: Option<u32>, _: Option<u32>| uid == Some(1001);
    let mut select = |filter| {
        let query = query(filter, RunUnit::Job);
        let found = unresolved_runs(&mut samples, &query, &of_bob, NOW).unwrap();
        let runs = found.page.runs.into_iter();
        runs.map(|run| (run.label, run.command)).collect::<Vec<_>>()
    };
    let bobs = (
        "vllm serve".to_owned(),
        Reading::Value("/usr/bin/vllm serve x".to_owned()),
    );
    let alices = ("python".to_owned(), Reading::Withheld);
    assert_eq!(select(everything()), [bobs, alices]);
    for filter in [
        AuditFilter {
            command: Some("train".into()),
            ..everything()
        },
        AuditFilter {
            process: Some("train".into()),
            ..everything()
        },
    ] {
        assert_eq!(select(filter), []);
    }
}

#[test]
fn pages_have_each_run_once() {
    let (_directory, mut samples, _audit) = files();
    samples
        .execute_batch(
            "INSERT INTO process (id, boot, pid, start_ticks) SELECT value, 'boot', value, 1
             FROM json_each('[21,22,23,24,25,26,27]');
             INSERT INTO run (process, device, instance, first_at, last_at, first_sample,
                last_sample, ended_at, ending)
             SELECT value, 1, '', value / 2 * 1000000, 90000000, 1, 1, 90000000, 'ended'
             FROM json_each('[21,22,23,24,25,26,27]');",
        )
        .unwrap();
    for limit in 1..=8 {
        let mut before = None;
        let mut pids = Vec::new();
        loop {
            let query = RunQuery {
                before,
                limit,
                ..query(everything(), RunUnit::Process)
            };
            let found = page(&mut samples, &query).page;
            pids.extend(found.runs.iter().map(|run| run.pids[0]));
            before = found.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(pids, [27, 26, 25, 24, 23, 22, 21], "{limit}");
    }
    let nothing = RunQuery {
        limit: 0,
        ..query(everything(), RunUnit::Job)
    };
    let refused = unresolved_runs(&mut samples, &nothing, &|_, _| true, NOW);
    assert!(matches!(refused, Err(Refusal::Invalid(_))));
}

/// Adds an action with this id.
fn action(
    audit: &Connection,
    id: i64,
    kind: &str,
    request: &str,
    (at, end): (i64, i64),
    plan: &str,
) {
    let insert = "INSERT INTO action (id, at, run, kind, uid, finished_at, result, request, plan)
        VALUES (?1, ?2, 'boot/0', ?3, 1002, ?4, 'done', ?5, ?6)";
    let (at, end) = (at * SECOND, end * SECOND);
    let values = rusqlite::params![id, at, kind, end, request, plan];
    audit.execute(insert, values).unwrap();
}

fn started(audit: &Connection, at: i64, boot: &str) {
    let insert = "INSERT INTO event (at, kind, content) VALUES (?1, 'started', ?2)";
    let content = json!({ "boot": boot }).to_string();
    audit
        .execute(insert, rusqlite::params![at * SECOND, content])
        .unwrap();
}

/// How the only run ended, for a caller who may read all command lines or none.
fn end(samples: &mut Connection, audit: &mut Connection, may_read: bool) -> RunEnd {
    let query = query(everything(), RunUnit::Job);
    let found = unresolved_runs(samples, &query, &|_, _| may_read, NOW).unwrap();
    let page = resolve_ends(audit, found).unwrap();
    page.runs[0].end.clone()
}

#[test]
fn record_of_actions_says_who_ended_a_run() {
    let (_directory, mut samples, mut audit) = files();
    run(&samples, (1, 1), (100, 200), Some("killed"), Some(4));
    action(&audit, 4, "kill", "--pid 11", (190, 201), "{}");
    let killed = RunEnd::Killed {
        action: 9,
        by: Some(1002),
        by_name: None,
    };
    assert_eq!(end(&mut samples, &mut audit, false), killed);

    samples.execute_batch("UPDATE run SET action = 5").unwrap();
    action(
        &audit,
        5,
        "kill",
        "guard: default: idle over 120 min",
        (190, 201),
        "{}",
    );
    let rule = |rule: Option<&str>| RunEnd::EndedByGuard {
        action: 11,
        rule: rule.map(ToOwned::to_owned),
    };
    let shown = rule(Some("default: idle over 120 min"));
    assert_eq!(end(&mut samples, &mut audit, true), shown);
    assert_eq!(end(&mut samples, &mut audit, false), rule(None));

    // The record was replaced.
    samples.execute_batch("UPDATE run SET action = 6").unwrap();
    let unknown = RunEnd::Killed {
        action: 13,
        by: None,
        by_name: None,
    };
    assert_eq!(end(&mut samples, &mut audit, true), unknown);
}

/// Adds a reset with this outcome, which planned to reset GPU-a.
fn reset(audit: &Connection, id: i64, (at, end): (i64, i64), outcome: &str) {
    let insert = "INSERT INTO action (id, at, run, kind, uid, finished_at, result, request, plan,
        outcome) VALUES (?1, ?2, 'boot/0', 'reset', 1002, ?3, 'partly', '--gpu 0-1', ?4, ?5)";
    let plan = json!({"gpus": [{"gpu_id": "GPU-a", "holders": []}]}).to_string();
    let values = rusqlite::params![id, at * SECOND, end * SECOND, plan, outcome];
    audit.execute(insert, values).unwrap();
}

#[test]
fn reset_of_the_gpu_ends_a_run() {
    let (_directory, mut samples, mut audit) = files();
    run(&samples, (1, 1), (100, 200), Some("ended"), None);
    let outcome = |gpu: &str, outcome: &str| {
        let other = json!({"gpu_id": "GPU-c", "outcome": "reset"});
        let gpu = json!({"gpu_id": gpu, "outcome": outcome});
        json!({"outcomes": [other, gpu]}).to_string()
    };
    let of_others = [
        (1, (190, 201), outcome("GPU-b", "reset")),
        (2, (100, 150), outcome("GPU-a", "reset")),
        (3, (201, 210), outcome("GPU-a", "reset")),
    ];
    for (id, time, outcome) in of_others {
        reset(&audit, id, time, &outcome);
    }
    // What was planned and not done, and what the daemon never writes.
    let not_done = ["blocked", "unsupported", "failed", "unreachable"];
    let mut outcomes: Vec<String> = not_done.map(|it| outcome("GPU-a", it)).into();
    outcomes.extend(["broken", "[]", r#"{"outcomes": "reset"}"#].map(ToOwned::to_owned));
    let odd = json!({"outcomes": ["reset", 7, null, {"outcome": "reset", "gpu_id": 1}]});
    outcomes.push(odd.to_string());
    for (id, outcome) in (4..).zip(&outcomes) {
        reset(&audit, id, (190, 199), outcome);
    }
    assert_eq!(end(&mut samples, &mut audit, true), RunEnd::Exited);
    reset(&audit, 40, (190, 199), &outcome("GPU-a", "reset"));
    assert_eq!(
        end(&mut samples, &mut audit, true),
        RunEnd::Reset { action: 81 }
    );
}

#[test]
fn resets_are_found_by_their_time() {
    let (_directory, _samples, audit) = files();
    let explain = format!("EXPLAIN QUERY PLAN {}", ends::SELECT_RESETS);
    let mut explain = audit.prepare(&explain).unwrap();
    let steps = explain
        .query_map([1_i64, 2, 3, 4], |row| row.get::<_, String>(3))
        .unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    let by_time = "SEARCH action USING INDEX action_at (at>? AND at<?)";
    assert_eq!(steps[0], by_time, "{steps:?}");
    assert_eq!(steps.len(), 2, "nothing is sorted: {steps:?}");
}

#[test]
fn reboot_ends_what_was_not_observed() {
    let (_directory, mut samples, mut audit) = files();
    run(&samples, (1, 1), (100, 200), Some("unobserved"), None);
    assert_eq!(end(&mut samples, &mut audit, true), RunEnd::Unobserved);
    started(&audit, 50, "before");
    started(&audit, 300, "boot");
    started(&audit, 400, "later");
    assert_eq!(end(&mut samples, &mut audit, true), RunEnd::Unobserved);
    samples
        .execute_batch("UPDATE process SET boot = 'earlier'")
        .unwrap();
    assert_eq!(end(&mut samples, &mut audit, true), RunEnd::Rebooted);
}

const MIDNIGHT: i64 = MONDAY + 24 * HOUR;

/// Samples of 25 s, one of which began 10 s before midnight. Process 1 is there all the time, 2
/// until 320 s before midnight, 3 from 5 s after it on, 4 from 2 s until 12 s after it.
fn over_midnight() -> SampleStore {
    let mut store = SampleStore::new();
    let at = |ms| Timestamp(MIDNIGHT + ms);
    let first_seen = |pid, name, ms| GpuProcess {
        first_seen: Reading::Value(at(ms)),
        ..process(0, pid, name, 50)
    };
    let [alice, bob, carol, dave] = [
        first_seen(1, "alice", -600_000),
        first_seen(2, "bob", -600_000),
        first_seen(3, "carol", 5_000),
        first_seen(4, "dave", 2_000),
    ];
    for from in (-610_000..310_000).step_by(25_000) {
        let present: &[&GpuProcess] = match from {
            ..-310_000 => &[&alice, &bob],
            -310_000..-10_000 => &[&alice],
            -10_000 => &[&alice, &carol, &dave],
            _ => &[&alice, &carol],
        };
        let left = match from {
            -310_000 => Some((&bob, -320_000)),
            15_000 => Some((&dave, 12_000)),
            _ => None,
        };
        let departed = left.map(|(process, last_seen)| DepartedProcess {
            process: process.clone(),
            departure: Departure::Ended,
            last_seen: at(last_seen),
        });
        store.sample_with_departed(
            (MIDNIGHT + from, 25_000),
            vec![device(0, 50, 100)],
            present.iter().map(|process| (*process).clone()).collect(),
            departed.into_iter().collect(),
        );
    }
    store
}

/// The parts of runs within a period, in milliseconds from midnight on: pid, start, end, how it
/// ended, and device time.
fn parts_within(
    store: &mut SampleStore,
    since: i64,
    until: i64,
) -> Vec<(u32, i64, i64, RunEnd, u64)> {
    let query = RunQuery {
        extent: RunExtent::WithinPeriod,
        ..query(between(since, until), RunUnit::Job)
    };
    let now = Timestamp(MIDNIGHT + 48 * HOUR);
    let found = unresolved_runs(&mut store.opened.connection, &query, &|_, _| true, now);
    let runs = found.unwrap().page.runs.into_iter();
    let from_midnight = |at: Timestamp| at.0 - MIDNIGHT;
    runs.map(|run| {
        let period = (from_midnight(run.from), from_midnight(run.until));
        (
            run.pids[0],
            period.0,
            period.1,
            run.end,
            run.used.total_ms(),
        )
    })
    .collect()
}

#[test]
fn days_divide_runs_without_a_rest() {
    use RunEnd::{Exited, Running};
    let mut store = over_midnight();
    let day = 24 * HOUR;
    let days = [(MONDAY, MIDNIGHT), (MIDNIGHT, MIDNIGHT + day)];
    let expected = [
        vec![
            (4, -1, 0, Exited, 25_000),
            (3, -1, 0, Running, 25_000),
            (2, -600_000, -320_000, Exited, 300_000),
            (1, -600_000, 0, Running, 625_000),
        ],
        vec![
            (3, 5_000, day, Running, 300_000),
            (1, 0, day, Running, 300_000),
        ],
    ];
    let device_ms = |store: &mut SampleStore, (since, until): (i64, i64)| -> u64 {
        let filter = between(since, until);
        let summary = summary(&mut store.opened.connection, &filter, &|_, _| true).unwrap();
        summary
            .owners
            .iter()
            .map(|owner| owner.used.total_ms())
            .sum()
    };
    for step in ["samples", "minutes"] {
        let mut sum = 0;
        for (period, expected) in days.into_iter().zip(&expected) {
            let parts = parts_within(&mut store, period.0, period.1);
            assert_eq!(parts, *expected, "{step}");
            let of_day: u64 = parts.iter().map(|part| part.4).sum();
            assert_eq!(of_day, device_ms(&mut store, period), "{step}");
            sum += of_day;
        }
        assert_eq!(sum, device_ms(&mut store, (MONDAY, MIDNIGHT + day)));
        let later = Timestamp(MIDNIGHT + 2 * MINUTE);
        let oldest = ["sample", "minute", "hour"].map(|table| match table {
            "sample" => (table, later),
            _ => (table, Timestamp(0)),
        });
        while delete_before(&mut store.opened.connection, oldest).unwrap() {}
    }
    // A day in which nothing was recorded, and a period that ends before it starts.
    assert_eq!(
        parts_within(&mut store, MIDNIGHT + day, MIDNIGHT + 2 * day),
        []
    );
    assert_eq!(parts_within(&mut store, MIDNIGHT, MONDAY), []);
}

#[test]
fn run_with_times_of_another_clock_is_in_the_day_of_its_samples() {
    let mut store = over_midnight();
    // The clock was years ahead when two of the runs began, and years behind when they ended.
    let (ahead, behind) = (MIDNIGHT + 9_000 * HOUR, MONDAY - 9_000 * HOUR);
    store.execute(&format!(
        "UPDATE run SET first_at = {ahead} WHERE id <= 2;
         UPDATE run SET ended_at = {behind} WHERE id <= 2 AND ended_at IS NOT NULL"
    ));
    let parts = parts_within(&mut store, MONDAY, MIDNIGHT);
    let pids: BTreeSet<u32> = parts.iter().map(|part| part.0).collect();
    assert_eq!(pids, [1, 2, 3, 4].into());
}

#[test]
fn process_beside_a_busy_one_of_its_owner_has_times_of_its_own() {
    let mut store = SampleStore::new();
    let present = [process(0, 1, "alice", 80), process(0, 2, "alice", 0)];
    // The last sample is in no minute yet.
    store.samples(
        MONDAY,
        MONDAY + 10 * MINUTE,
        30_000,
        &[device(0, 80, 100)],
        &present,
    );
    let mut times = |unit| {
        let query = query(between(MONDAY, MONDAY + HOUR), unit);
        let now = Timestamp(MONDAY + HOUR);
        let found = unresolved_runs(&mut store.opened.connection, &query, &|_, _| true, now);
        let runs = found.unwrap().page.runs.into_iter();
        let mut times: Vec<_> = runs
            .map(|run| {
                let used = run.used;
                let times = [used.busy_ms, used.idle_ms, used.unknown_ms];
                (run.pids[0], times, run.utilization)
            })
            .collect();
        times.sort_unstable();
        times
    };
    let ten_minutes = 600_000;
    let (busy, idle) = (Some(Percent(80)), Some(Percent(0)));
    let of_processes = [
        (1, [ten_minutes, 0, 0], busy),
        (2, [0, ten_minutes, 0], idle),
    ];
    assert_eq!(times(RunUnit::Process), of_processes);
    // The time of an owner counts once.
    let of_jobs = [(1, [ten_minutes, 0, 0], busy), (2, [0, 0, 0], idle)];
    assert_eq!(times(RunUnit::Job), of_jobs);
}
