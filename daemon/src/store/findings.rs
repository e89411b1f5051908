//! Rogue findings as rows of the record.

use super::query::{Deadline, QueryError};
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};

/// The most findings that one query reads, newest first.
const MAX_FINDINGS: u32 = 4_096;

/// Inserts findings in one transaction.
pub(super) fn insert(
    connection: &Connection,
    boot: &str,
    findings: &[RogueFinding],
) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    {
        let insert = "INSERT INTO finding
            (at, boot, pid, start_ticks, uid, owner, threat, risk, record)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let mut insert = transaction.prepare_cached(insert)?;
        for finding in findings {
            let worst = finding.verdicts.first();
            insert.execute(params![
                finding.last_seen.0,
                boot,
                finding.process.pid,
                i64::try_from(finding.process.start_ticks).unwrap_or(i64::MAX),
                finding.uid,
                finding.owner.as_ref().map(|owner| &owner.name),
                worst.map_or("", |worst| worst.threat.name()),
                worst.map_or("", |worst| worst.risk.name()),
                // Serialization to JSON cannot fail.
                serde_json::to_string(finding).unwrap_or_default(),
            ])?;
        }
    }
    transaction.commit()
}

/// The findings since this moment, newest first, of one boot if given.
pub(super) fn read_since(
    connection: &Connection,
    since: Timestamp,
    boot: Option<&str>,
    deadline: Deadline,
) -> Result<Vec<RogueFinding>, QueryError> {
    let select = "SELECT record FROM finding
        WHERE at >= ?1 AND (?2 IS NULL OR boot = ?2) ORDER BY id DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(select)?;
    let mut rows = statement.query(params![since.0, boot, MAX_FINDINGS])?;
    let mut findings = Vec::new();
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let text: String = row.get(0)?;
        // An unreadable finding is skipped.
        findings.extend(serde_json::from_str::<RogueFinding>(&text));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database::{AUDIT, open};
    use crate::store::query::run_query;
    use gpukill_proto::model::ProcessKey;
    use gpukill_proto::rogue::{Risk, Share, Threat, Verdict};

    fn finding(pid: u32, at: i64) -> RogueFinding {
        RogueFinding {
            process: ProcessKey {
                pid,
                start_ticks: 7,
            },
            owner: None,
            uid: Some(1004),
            name: Some("x".into()),
            executable: None,
            gpus: vec![2],
            since: Timestamp(at),
            last_seen: Timestamp(at),
            is_present: true,
            verdicts: vec![Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::ONE,
                score: Share::ONE,
                risk: Risk::Critical,
                indicators: Vec::new(),
            }],
        }
    }

    #[test]
    fn round_trips_and_never_changes() {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = open(directory.path(), &AUDIT).unwrap();
        let connection = &mut opened.connection;
        insert(connection, "one", &[finding(1, 10), finding(2, 20)]).unwrap();
        insert(connection, "two", &[finding(1, 30)]).unwrap();
        let mut found_since = |at: i64, boot: Option<&str>| {
            let found_since = run_query(connection, |file, deadline| {
                read_since(file, Timestamp(at), boot, deadline)
            });
            found_since.unwrap()
        };
        assert_eq!(
            found_since(0, None),
            [finding(1, 30), finding(2, 20), finding(1, 10)]
        );
        assert_eq!(found_since(20, None), [finding(1, 30), finding(2, 20)]);
        assert_eq!(
            found_since(0, Some("one")),
            [finding(2, 20), finding(1, 10)]
        );
        for change in ["DELETE FROM finding", "UPDATE finding SET risk = 'low'"] {
            connection.execute_batch(change).unwrap_err();
        }
    }
}
