//! Who was found to be up to no good, as rows of the record.

use super::query::{Deadline, Failure};
use gpukill_proto::rogue::Finding;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};

/// So many findings are read at once, the newest.
const MOST: u32 = 4_096;

/// Writes down what was told: all of it or nothing.
pub(super) fn insert(
    connection: &Connection,
    boot: &str,
    findings: &[Finding],
) -> rusqlite::Result<()> {
    let whole = connection.unchecked_transaction()?;
    {
        let insert = "INSERT INTO finding
            (at, boot, pid, start_ticks, uid, owner, threat, risk, record)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let mut insert = whole.prepare_cached(insert)?;
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
                // Nothing in it can fail to be written as JSON.
                serde_json::to_string(finding).unwrap_or_default(),
            ])?;
        }
    }
    whole.commit()
}

/// What was told from this moment on, the newest first, of this boot alone where one is
/// named.
pub(super) fn since(
    connection: &Connection,
    since: Timestamp,
    boot: Option<&str>,
    deadline: Deadline,
) -> Result<Vec<Finding>, Failure> {
    let select = "SELECT record FROM finding
        WHERE at >= ?1 AND (?2 IS NULL OR boot = ?2) ORDER BY id DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(select)?;
    let mut rows = statement.query(params![since.0, boot, MOST])?;
    let mut findings = Vec::new();
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let text: String = row.get(0)?;
        // One that cannot be read is left out.
        findings.extend(serde_json::from_str::<Finding>(&text));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::database::{AUDIT, open};
    use crate::audit::query::within_time;
    use gpukill_proto::rogue::{Risk, Share, Threat, Verdict};
    use gpukill_proto::snapshot::ProcessKey;

    fn finding(pid: u32, at: i64) -> Finding {
        Finding {
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
                signs: Vec::new(),
            }],
        }
    }

    #[test]
    fn what_was_told_is_read_again_and_never_changes() {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = open(directory.path(), &AUDIT).unwrap();
        let connection = &mut opened.connection;
        insert(connection, "one", &[finding(1, 10), finding(2, 20)]).unwrap();
        insert(connection, "two", &[finding(1, 30)]).unwrap();
        let mut told = |at: i64, boot: Option<&str>| {
            let told = within_time(connection, |file, deadline| {
                since(file, Timestamp(at), boot, deadline)
            });
            told.unwrap()
        };
        assert_eq!(
            told(0, None),
            [finding(1, 30), finding(2, 20), finding(1, 10)]
        );
        assert_eq!(told(20, None), [finding(1, 30), finding(2, 20)]);
        assert_eq!(told(0, Some("one")), [finding(2, 20), finding(1, 10)]);
        for change in ["DELETE FROM finding", "UPDATE finding SET risk = 'low'"] {
            connection.execute_batch(change).unwrap_err();
        }
    }
}
