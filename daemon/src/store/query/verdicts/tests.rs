//! The guard's decisions are returned as they were recorded.

use super::super::super::database::{AUDIT, OpenDatabase, open};
use super::super::super::verdicts::insert;
use super::*;
use gpukill_proto::guard::{
    Evidence, GuardMode, GuardStep, Person, RuleKind, RuleName, RuleSource, ViolationSubject,
};
use gpukill_proto::units::Timestamp;

fn record(at: i64, name: &str, uid: Option<u32>) -> GuardRecord {
    GuardRecord {
        at: Timestamp(at),
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Memory,
        },
        subject: ViolationSubject::Person(Person {
            name: name.into(),
            uid,
        }),
        mode: GuardMode::DryRun,
        step: GuardStep::Violated,
        evidence: Evidence {
            measured: None,
            since: Timestamp(at - 10),
            runs: Vec::new(),
            count: 0,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: Some("'quoted'; \u{1b}[31m".into()),
    }
}

fn file(all: &[Vec<GuardRecord>]) -> (tempfile::TempDir, OpenDatabase) {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path(), &AUDIT).unwrap();
    for records in all {
        insert(&opened.connection, records).unwrap();
    }
    (directory, opened)
}

fn query(user: Option<&str>, limit: u32) -> ViolationQuery {
    ViolationQuery {
        since: Timestamp(i64::MIN),
        until: Timestamp(i64::MAX),
        user: user.map(str::to_owned),
        before: None,
        limit,
    }
}

#[test]
fn pages_join_to_the_record() {
    let records: Vec<GuardRecord> = (0..7).map(|at| record(at, "ann", Some(1000))).collect();
    let (_directory, mut opened) = file(&[records[..3].to_vec(), records[3..].to_vec()]);
    let mut asked = query(None, 3);
    let mut read = Vec::new();
    loop {
        let (page, next) = verdict_page(&mut opened.connection, &asked).unwrap();
        assert!(page.len() <= 3);
        read.extend(page.into_iter().map(|(_, record)| record));
        asked.before = next;
        if next.is_none() {
            break;
        }
    }
    let newest_first: Vec<GuardRecord> = records.into_iter().rev().collect();
    assert_eq!(read, newest_first);
}

#[test]
fn filters_by_name_or_uid() {
    let all = [
        record(1, "ann", Some(1000)),
        record(2, "container web", None),
        record(3, "1000", Some(1001)),
    ];
    let (_directory, mut opened) = file(&[all.to_vec()]);
    for (user, expected) in [
        ("ann", vec![1]),
        ("container web", vec![2]),
        ("1000", vec![1]),
        ("1001", vec![3]),
        ("nobody", vec![]),
        ("' OR 1 --", vec![]),
    ] {
        let (page, next) = verdict_page(&mut opened.connection, &query(Some(user), 10)).unwrap();
        let at: Vec<i64> = page.iter().map(|(_, record)| record.at.0).collect();
        assert_eq!((at, next), (expected, None), "{user}");
    }
}

#[test]
fn verdicts_are_append_only() {
    let (_directory, opened) = file(&[vec![record(1, "ann", None)]]);
    for sql in ["UPDATE verdict SET at = 2", "DELETE FROM verdict"] {
        opened.connection.execute(sql, []).unwrap_err();
    }
}
