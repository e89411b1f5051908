//! Questions about a long history, and absurd ones.

use super::super::raw::Raw;
use super::{database, ids, number, records};
use gpukill_proto::audit::{AuditPage, AuditQuery};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Daemon, Stage};
use std::time::SystemTime;

/// Samples of the past, each of one device and three processes: more than one
/// page in records, and in bytes.
const SAMPLES: i64 = 1_500;
const ROWS: i64 = 4;

/// A box that remembers more than any page holds.
struct Past {
    stage: Stage,
    daemon: Daemon,
    /// Nothing of the invented past is younger.
    until: Timestamp,
}

impl Past {
    fn new() -> Self {
        let stage = Stage::new();
        stage.start().stop();
        let until = Timestamp::from(SystemTime::now()).plus_seconds(-60);
        let mut database = database(&stage, "samples.db");
        let all = database.transaction().unwrap();
        all.execute_batch(
            "DELETE FROM sample;
             INSERT INTO device (id, uuid, gpu_index, name) VALUES (1, 'GPU-1', 0, 'H100');
             INSERT INTO process (id, boot, pid, start_ticks, uid, user, name, command) VALUES
             (1, 'b', 11, 1, 1001, 'ann', 'python', 'python a.py'),
             (2, 'b', 12, 1, 1002, 'bob', 'python', 'python b.py'),
             (3, 'b', 13, 1, 1002, 'bob', 'julia', 'julia');",
        )
        .unwrap();
        for sample in 1..=SAMPLES {
            let at = until.plus_seconds(10 * (sample - SAMPLES) - 1).0;
            all.execute("INSERT INTO sample VALUES (?1, ?2)", [sample, at])
                .unwrap();
            let id = sample << 20;
            all.execute(
                "INSERT INTO device_sample VALUES (?1, 1, 0, ?1, 50, 60, 70000)",
                [id],
            )
            .unwrap();
            for process in 1..ROWS {
                all.execute(
                    "INSERT INTO process_sample VALUES (?1, 1, 0, ?2, ?1, 5)",
                    [id + process, process],
                )
                .unwrap();
            }
        }
        all.commit().unwrap();
        drop(database);
        let daemon = stage.start();
        Self {
            stage,
            daemon,
            until,
        }
    }

    fn query(&self) -> AuditQuery {
        AuditQuery {
            since: Timestamp(0),
            until: self.until,
            user: None,
            process: None,
            gpu: None,
            before: None,
            limit: u32::MAX,
        }
    }

    fn ask(&self, query: &AuditQuery) -> Result<AuditPage, Refusal> {
        let call = GpukillRequest::Audit {
            query: query.clone(),
        };
        match Raw::welcomed(&self.stage.socket()).call(&call) {
            GpukillResponse::Audit(answer) => answer,
            other => panic!("{other:?}"),
        }
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

#[test]
fn pages_come_newest_first_without_gaps_and_without_repeats() {
    let past = Past::new();
    let until = past.until.to_rfc3339();
    let all = records(&past.stage, &["--limit", "0", "--until", &until]);
    let expected: Vec<u64> = (1..=SAMPLES)
        .rev()
        .flat_map(|sample| (0..ROWS).rev().map(move |row| (sample << 20) + row))
        .map(|id| u64::try_from(id).unwrap())
        .collect();
    assert_eq!(ids(&all), expected);
    for record in &all {
        assert_eq!(
            number(record, "memory_used_bytes") & !0xf_ffff,
            number(record, "id") & !0xf_ffff
        );
    }

    let pages = past.pages(past.query());
    assert!(pages.len() > 2, "{}", pages.len());
    let paged = pages.iter().flat_map(|page| &page.records);
    assert_eq!(paged.map(|record| record.id).collect::<Vec<_>>(), expected);

    // Of one user and one name: every fourth record, in pages of seven.
    let narrow = AuditQuery {
        user: Some("bob".into()),
        process: Some("^jul".into()),
        limit: 700,
        ..past.query()
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
        AuditQuery {
            since: Timestamp(i64::MIN),
            until: Timestamp(i64::MAX),
            ..whole.clone()
        },
        AuditQuery {
            since: Timestamp(i64::MAX),
            until: Timestamp(i64::MIN),
            ..whole.clone()
        },
        AuditQuery {
            before: Some(0),
            ..whole.clone()
        },
        AuditQuery {
            before: Some(u64::MAX),
            ..whole.clone()
        },
        AuditQuery {
            process: Some("(((((a*)*)*)*)*)*$".into()),
            ..whole.clone()
        },
        AuditQuery {
            user: Some("x".repeat(60_000)),
            ..whole.clone()
        },
    ];
    for query in &answered {
        assert!(past.ask(query).is_ok(), "{query:?}");
    }
    for process in ["[", "(?:(?:a{999}){999}){999}", &"(".repeat(60_000)] {
        let query = AuditQuery {
            process: Some(process.into()),
            ..whole.clone()
        };
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
