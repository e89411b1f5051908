//! Queries over a long history, and absurd queries.

use super::super::raw::RawConnection;
use super::{ids, open_database, records};
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditRecord};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Daemon, TestBox, TestProcess, eventually};
use rusqlite::params;
use serde_json::json;
use std::time::SystemTime;

/// Samples of the past, each with one device and three processes: more records and more
/// bytes than one page holds.
const SAMPLES: i64 = 1_500;
const RECORDS_PER_SAMPLE: i64 = 4;

/// This many low bits of a record id number the record within its sample.
const RECORD_NUMBER_BITS: u32 = 20;

/// A box with a longer history than one page holds.
struct LongHistory {
    test_box: TestBox,
    daemon: Daemon,
    /// The inserted samples are older than this.
    until: Timestamp,
    /// The length of a sample.
    length_ms: i64,
}

impl LongHistory {
    /// Copies one sample of a daemon many times into the past.
    fn new() -> Self {
        let test_box = TestBox::new();
        let processes = ["a", "b", "c"].map(TestProcess::start);
        let listed = processes.iter().map(TestProcess::pid);
        let listed: Vec<_> = listed.map(|pid| json!({"pid": pid, "memory": 5})).collect();
        test_box.set_driver_state(&json!({"gpus": [{"processes": listed}]}));
        let daemon = test_box.start();
        let (whole, ended) = eventually("a whole sample", || {
            let page = query_audit(&test_box, &query_for_all(Timestamp(i64::MAX))).ok()?;
            let newest = page.records.first()?;
            let of_newest = |record: &&AuditRecord| {
                record.id >> RECORD_NUMBER_BITS == newest.id >> RECORD_NUMBER_BITS
            };
            let rows = page.records.iter().filter(of_newest).count();
            (rows == usize::try_from(RECORDS_PER_SAMPLE).unwrap())
                .then_some((newest.id >> RECORD_NUMBER_BITS, newest.at))
        });
        daemon.stop();
        drop(processes);
        test_box.set_driver_state(&json!({"gpus": [{}]}));
        let until = Timestamp::from(SystemTime::now()).plus_seconds(-60);
        let mut database = open_database(&test_box, "samples.db");
        let all = database.transaction().unwrap();
        let select = "SELECT usage, at FROM sample WHERE id = ?1";
        let (blob, started_at): (Vec<u8>, i64) = all
            .query_row(select, [whole.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        let length_ms = ended.0 - started_at;
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
            let at = sample_start(until, length_ms, sample).0;
            all.execute(
                "INSERT INTO sample VALUES (?1, ?2, ?3)",
                params![sample, at, blob],
            )
            .unwrap();
        }
        // The daemon stores the first minute with the first sample. Without it the retained
        // samples would start at the minutes of this test.
        let first_at = sample_start(until, length_ms, 1).0;
        all.execute(
            "INSERT INTO minute VALUES (1, ?1, ?2)",
            params![first_at, blob],
        )
        .unwrap();
        all.commit().unwrap();
        drop(database);
        let daemon = test_box.start();
        Self {
            test_box,
            daemon,
            until,
            length_ms,
        }
    }

    fn query(&self) -> AuditQuery {
        query_for_all(self.until)
    }

    fn query_with_filter(&self, change: impl FnOnce(&mut AuditFilter)) -> AuditQuery {
        let mut query = self.query();
        change(&mut query.filter);
        query
    }

    fn query_page(&self, query: &AuditQuery) -> Result<AuditPage, Refusal> {
        query_audit(&self.test_box, query)
    }

    fn pages(&self, mut query: AuditQuery) -> Vec<AuditPage> {
        let mut pages: Vec<AuditPage> = Vec::new();
        loop {
            let page = self.query_page(&query).unwrap();
            query.before = page.next;
            pages.push(page);
            if query.before.is_none() {
                return pages;
            }
        }
    }
}

/// All records before this time.
fn query_for_all(until: Timestamp) -> AuditQuery {
    AuditQuery {
        filter: AuditFilter::for_period(Timestamp(0), until),
        before: None,
        limit: u32::MAX,
    }
}

fn query_audit(test_box: &TestBox, query: &AuditQuery) -> Result<AuditPage, Refusal> {
    let call = GpukillRequest::Audit {
        query: query.clone(),
    };
    match RawConnection::connect_admitted(&test_box.socket()).call(&call) {
        GpukillResponse::Audit(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// When a sample of this length started: the newest ended a second before `until`.
fn sample_start(until: Timestamp, length_ms: i64, sample: i64) -> Timestamp {
    let newest = until.plus_seconds(-1).0 - length_ms;
    Timestamp(newest).plus_seconds(10 * (sample - SAMPLES))
}

#[test]
fn pages_are_newest_first_without_gaps() {
    let past = LongHistory::new();
    let until = past.until.to_rfc3339();
    let all = records(&past.test_box, &["--limit", "0", "--until", &until]);
    let expected: Vec<u64> = (1..=SAMPLES)
        .rev()
        .flat_map(|sample| {
            (0..RECORDS_PER_SAMPLE)
                .rev()
                .map(move |row| (sample << RECORD_NUMBER_BITS) + row)
        })
        .map(|id| u64::try_from(id).unwrap())
        .collect();
    assert_eq!(ids(&all), expected);
    // Each page covers its own time.
    let ends: Vec<&str> = all
        .iter()
        .map(|record| record["timestamp"].as_str().unwrap())
        .collect();
    let expected_ends = (1..=SAMPLES).rev().flat_map(|sample| {
        let end = Timestamp(sample_start(past.until, past.length_ms, sample).0 + past.length_ms)
            .to_rfc3339();
        std::iter::repeat_n(end, usize::try_from(RECORDS_PER_SAMPLE).unwrap())
    });
    assert_eq!(ends, expected_ends.collect::<Vec<_>>());

    let pages = past.pages(past.query());
    assert!(pages.len() > 2, "{}", pages.len());
    let paged = pages.iter().flat_map(|page| &page.records);
    assert_eq!(paged.map(|record| record.id).collect::<Vec<_>>(), expected);

    // One user and one name: every fourth record, in pages of seven.
    let narrow = AuditQuery {
        limit: 700,
        ..past.query_with_filter(|filter| {
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
fn limit_is_kept_and_reported() {
    let past = LongHistory::new();
    let until = past.until.to_rfc3339();
    for limit in [1u32, 2, 1_000, 1_001] {
        let text = limit.to_string();
        let ran = past.test_box.ctl(&[
            "audit",
            "--samples",
            "-o",
            "json",
            "--until",
            &until,
            "--limit",
            &text,
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            document["records"].as_array().unwrap().len(),
            limit as usize
        );
        assert_eq!(document["more"], true);
        assert_eq!(ran.stderr, "");
    }
    past.daemon.stop();
}

#[test]
fn absurd_arguments_are_answered_or_refused() {
    let past = LongHistory::new();
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
        (&["--gpu", "99"], 3),
        (&["--gpu", "4294967296"], 3),
        (&["--gpu", "*no such*"], 8),
        (&["--gpu", "0-4294967295"], 0),
        (&["--gpu", ""], 3),
        (&["--user", ""], 3),
        (&["--user", "99999999999999999999"], 8),
        (&["--user", "'; DROP TABLE sample; --"], 8),
    ];
    for (arguments, code) in cases {
        let ran = past
            .test_box
            .ctl(&[&["audit", "--samples", "-o", "ndjson"], *arguments].concat());
        assert_eq!(ran.code, *code, "{arguments:?}: {}", ran.stderr);
    }
    past.daemon.stop();
}

#[test]
fn daemon_handles_queries_no_client_sends() {
    let past = LongHistory::new();
    let whole = past.query();
    let answered = [
        past.query_with_filter(|it| {
            (it.since, it.until) = (Timestamp(i64::MIN), Timestamp(i64::MAX))
        }),
        past.query_with_filter(|it| {
            (it.since, it.until) = (Timestamp(i64::MAX), Timestamp(i64::MIN))
        }),
        AuditQuery {
            before: Some(0),
            ..whole.clone()
        },
        AuditQuery {
            before: Some(u64::MAX),
            ..whole.clone()
        },
        past.query_with_filter(|it| it.process = Some("(((((a*)*)*)*)*)*$".into())),
        past.query_with_filter(|it| it.user = Some("x".repeat(60_000))),
        past.query_with_filter(|it| it.container = Some("x".repeat(60_000))),
        past.query_with_filter(|it| it.job = Some("x".repeat(60_000))),
    ];
    for query in &answered {
        assert!(past.query_page(query).is_ok(), "{query:?}");
    }
    for process in ["[", "(?:(?:a{999}){999}){999}", &"(".repeat(60_000)] {
        let query = past.query_with_filter(|it| it.process = Some(process.into()));
        let answer = past.query_page(&query);
        assert!(matches!(answer, Err(Refusal::Invalid(_))), "{answer:?}");
    }
    // A limit of zero is invalid. Later queries still work.
    let none = past.query_page(&AuditQuery { limit: 0, ..whole });
    assert!(matches!(none, Err(Refusal::Invalid(_))), "{none:?}");
    let log = past.daemon.log();
    assert!(!log.contains("panic"), "{log}");
    past.daemon.stop();
}
