//! Questions about a long history, and absurd ones.

use super::super::raw::Raw;
use super::{database, ids, records};
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditRecord};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Actor, Daemon, Stage, eventually};
use rusqlite::params;
use serde_json::json;
use std::time::SystemTime;

/// Samples of the past, each of one device and three processes: more than one
/// page in records, and in bytes.
const SAMPLES: i64 = 1_500;
const ROWS: i64 = 4;

/// So many bits of a record's id number it within its sample.
const ROW_BITS: u32 = 20;

/// A box that remembers more than any page holds.
struct Past {
    stage: Stage,
    daemon: Daemon,
    /// Nothing of the invented past is younger.
    until: Timestamp,
    /// From a sample's beginning to its end.
    length_ms: i64,
}

impl Past {
    /// One sample as a daemon wrote it, and told many times over.
    fn new() -> Self {
        let stage = Stage::new();
        let actors = ["a", "b", "c"].map(Actor::start);
        let processes = actors.iter().map(Actor::pid);
        let processes: Vec<_> = processes
            .map(|pid| json!({"pid": pid, "memory": 5}))
            .collect();
        stage.play(&json!({"gpus": [{"processes": processes}]}));
        let daemon = stage.start();
        let (whole, ended) = eventually("a whole sample", || {
            let page = ask(&stage, &everything(Timestamp(i64::MAX))).ok()?;
            let newest = page.records.first()?;
            let of_newest = |record: &&AuditRecord| record.id >> ROW_BITS == newest.id >> ROW_BITS;
            let rows = page.records.iter().filter(of_newest).count();
            (rows == usize::try_from(ROWS).unwrap()).then_some((newest.id >> ROW_BITS, newest.at))
        });
        daemon.stop();
        drop(actors);
        stage.play(&json!({"gpus": [{}]}));
        let until = Timestamp::from(SystemTime::now()).plus_seconds(-60);
        let mut database = database(&stage, "samples.db");
        let all = database.transaction().unwrap();
        let select = "SELECT usage, at FROM sample WHERE id = ?1";
        let (blob, began): (Vec<u8>, i64) = all
            .query_row(select, [whole.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        let length_ms = ended.0 - began;
        all.execute_batch("DELETE FROM sample; DELETE FROM minute; DELETE FROM hour;")
            .unwrap();
        let people = [
            (1001, "ann", "python"),
            (1002, "bob", "python"),
            (1002, "bob", "julia"),
        ];
        for (place, (uid, user, name)) in (0_i64..).zip(people) {
            let changed = all.execute(
                "UPDATE process SET boot = 'b', uid = ?2, user = ?3, owner = ?3, owner_uid = ?2,
                 name = ?4 WHERE id = (SELECT process FROM run ORDER BY id LIMIT 1 OFFSET ?1)",
                params![place, uid, user, name],
            );
            assert_eq!(changed, Ok(1));
        }
        all.execute(
            "UPDATE run SET first_at = 0, first_sample = 1, last_sample = ?1",
            [SAMPLES],
        )
        .unwrap();
        all.execute("UPDATE rolled SET sample = ?1", [SAMPLES])
            .unwrap();
        for sample in 1..=SAMPLES {
            let at = at(until, length_ms, sample).0;
            all.execute(
                "INSERT INTO sample VALUES (?1, ?2, ?3)",
                params![sample, at, blob],
            )
            .unwrap();
        }
        // As the daemon keeps it: the first minute begins with the first sample. Without it
        // the minutes that this test lasts would be those from which on samples are kept.
        let first_at = at(until, length_ms, 1).0;
        all.execute(
            "INSERT INTO minute VALUES (1, ?1, ?2)",
            params![first_at, blob],
        )
        .unwrap();
        all.commit().unwrap();
        drop(database);
        let daemon = stage.start();
        Self {
            stage,
            daemon,
            until,
            length_ms,
        }
    }

    fn query(&self) -> AuditQuery {
        everything(self.until)
    }

    /// The same, with other conditions.
    fn narrowed(&self, change: impl FnOnce(&mut AuditFilter)) -> AuditQuery {
        let mut query = self.query();
        change(&mut query.filter);
        query
    }

    fn ask(&self, query: &AuditQuery) -> Result<AuditPage, Refusal> {
        ask(&self.stage, query)
    }

    /// All pages of a question.
    fn pages(&self, mut query: AuditQuery) -> Vec<AuditPage> {
        let mut pages: Vec<AuditPage> = Vec::new();
        loop {
            let page = self.ask(&query).unwrap();
            query.before = page.next;
            pages.push(page);
            if query.before.is_none() {
                return pages;
            }
        }
    }
}

/// All records before this moment.
fn everything(until: Timestamp) -> AuditQuery {
    AuditQuery {
        filter: AuditFilter {
            since: Timestamp(0),
            until,
            user: None,
            process: None,
            gpu: None,
            container: None,
            job: None,
        },
        before: None,
        limit: u32::MAX,
    }
}

fn ask(stage: &Stage, query: &AuditQuery) -> Result<AuditPage, Refusal> {
    let call = GpukillRequest::Audit {
        query: query.clone(),
    };
    match Raw::welcomed(&stage.socket()).call(&call) {
        GpukillResponse::Audit(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// When a sample of this length began: the newest ended a second before `until`.
fn at(until: Timestamp, length_ms: i64, sample: i64) -> Timestamp {
    let newest = until.plus_seconds(-1).0 - length_ms;
    Timestamp(newest).plus_seconds(10 * (sample - SAMPLES))
}

#[test]
fn pages_come_newest_first_without_gaps_and_without_repeats() {
    let past = Past::new();
    let until = past.until.to_rfc3339();
    let all = records(&past.stage, &["--limit", "0", "--until", &until]);
    let expected: Vec<u64> = (1..=SAMPLES)
        .rev()
        .flat_map(|sample| (0..ROWS).rev().map(move |row| (sample << ROW_BITS) + row))
        .map(|id| u64::try_from(id).unwrap())
        .collect();
    assert_eq!(ids(&all), expected);
    // Each tells of its own time.
    let ends: Vec<&str> = all
        .iter()
        .map(|record| record["timestamp"].as_str().unwrap())
        .collect();
    let expected_ends = (1..=SAMPLES).rev().flat_map(|sample| {
        let end = Timestamp(at(past.until, past.length_ms, sample).0 + past.length_ms).to_rfc3339();
        std::iter::repeat_n(end, usize::try_from(ROWS).unwrap())
    });
    assert_eq!(ends, expected_ends.collect::<Vec<_>>());

    let pages = past.pages(past.query());
    assert!(pages.len() > 2, "{}", pages.len());
    let paged = pages.iter().flat_map(|page| &page.records);
    assert_eq!(paged.map(|record| record.id).collect::<Vec<_>>(), expected);

    // Of one user and one name: every fourth record, in pages of seven.
    let narrow = AuditQuery {
        limit: 700,
        ..past.narrowed(|filter| {
            filter.user = Some("bob".into());
            filter.process = Some("^jul".into());
        })
    };
    let pages = past.pages(narrow);
    let sizes: Vec<usize> = pages.iter().map(|page| page.records.len()).collect();
    assert_eq!(sizes, [700, 700, 100]);
    let paged = pages.iter().flat_map(|page| &page.records);
    let every_fourth: Vec<u64> = expected.iter().copied().filter(|id| id & 3 == 3).collect();
    assert_eq!(
        paged.map(|record| record.id).collect::<Vec<_>>(),
        every_fourth
    );
    past.daemon.stop();
}

#[test]
fn a_limit_is_kept_and_what_is_left_out_is_said() {
    let past = Past::new();
    let until = past.until.to_rfc3339();
    for limit in [1u32, 2, 1_000, 1_001] {
        let text = limit.to_string();
        let ran = past
            .stage
            .ctl(&["audit", "-o", "json", "--until", &until, "--limit", &text]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            document["records"].as_array().unwrap().len(),
            limit as usize
        );
        assert_eq!(document["more"], true);
        assert_eq!(
            ran.stderr,
            "gpukillctl: there are more records: --limit 0 shows all\n"
        );
    }
    past.daemon.stop();
}

#[test]
fn absurd_arguments_are_answered_or_refused() {
    let past = Past::new();
    let huge = "(?:(?:a{999}){999}){999}";
    let slow = "(((((a*)*)*)*)*)*$";
    let cases: &[(&[&str], i32)] = &[
        (&["--hours", "4294967295"], 0),
        (&["--hours", "0"], 3),
        (&["--hours", "-1"], 3),
        (&["--limit", "0"], 0),
        (&["--limit", "4294967295"], 0),
        (&["--limit", "4294967296"], 3),
        (&["--since", "1h ago", "--until", "2h ago"], 3),
        (&["--since", "1h ago", "--until", "1h ago"], 3),
        (&["--since", "9999-12-31"], 3),
        (&["--since", "0001-01-01", "--until", "9999-12-31"], 0),
        (&["--since", "-999999-01-01"], 3),
        (&["--process", "["], 3),
        (&["--process", huge], 3),
        (&["--process", slow], 0),
        (&["--process", ""], 3),
        (&["--gpu", "99"], 8),
        (&["--gpu", "4294967296"], 8),
        (&["--gpu", "0-4294967295"], 0),
        (&["--gpu", ""], 3),
        (&["--user", ""], 3),
        (&["--user", "99999999999999999999"], 8),
        (&["--user", "'; DROP TABLE sample; --"], 8),
    ];
    for (arguments, code) in cases {
        let ran = past
            .stage
            .ctl(&[&["audit", "-o", "ndjson"], *arguments].concat());
        assert_eq!(ran.code, *code, "{arguments:?}: {}", ran.stderr);
    }
    past.daemon.stop();
}

#[test]
fn the_daemon_itself_bears_what_its_client_would_not_send() {
    let past = Past::new();
    let whole = past.query();
    let answered = [
        past.narrowed(|it| (it.since, it.until) = (Timestamp(i64::MIN), Timestamp(i64::MAX))),
        past.narrowed(|it| (it.since, it.until) = (Timestamp(i64::MAX), Timestamp(i64::MIN))),
        AuditQuery {
            before: Some(0),
            ..whole.clone()
        },
        AuditQuery {
            before: Some(u64::MAX),
            ..whole.clone()
        },
        past.narrowed(|it| it.process = Some("(((((a*)*)*)*)*)*$".into())),
        past.narrowed(|it| it.user = Some("x".repeat(60_000))),
        past.narrowed(|it| it.container = Some("x".repeat(60_000))),
        past.narrowed(|it| it.job = Some("x".repeat(60_000))),
    ];
    for query in &answered {
        assert!(past.ask(query).is_ok(), "{query:?}");
    }
    for process in ["[", "(?:(?:a{999}){999}){999}", &"(".repeat(60_000)] {
        let query = past.narrowed(|it| it.process = Some(process.into()));
        let answer = past.ask(&query);
        assert!(matches!(answer, Err(Refusal::Invalid(_))), "{answer:?}");
    }
    // At most no record is no record; the rest is still to be had.
    let none = past.ask(&AuditQuery { limit: 0, ..whole });
    assert!(matches!(none, Err(Refusal::Invalid(_))), "{none:?}");
    let log = past.daemon.log();
    assert!(!log.contains("panic"), "{log}");
    past.daemon.stop();
}
