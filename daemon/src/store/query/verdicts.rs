//! One page of the guard's decisions, newest first.

use super::{Deadline, QueryError, run_query};
use crate::store::sql_values::saturating_i64;
use gpukill_policy::select::names_user;
use gpukill_proto::guard::{GuardRecord, ViolationQuery};
use gpukill_proto::refusal::Refusal;
use rusqlite::{Connection, params};

#[cfg(test)]
mod tests;

/// The most records of one page.
const MAX_RECORDS: u32 = 1_000;

/// The most stored bytes of one page.
const MAX_PAGE_BYTES: usize = 256 << 10;

/// The records with their ids, and the id from which the next page continues.
pub(crate) type VerdictPage = (Vec<(u64, GuardRecord)>, Option<u64>);

/// Returns one page of the decisions that `query` selects.
///
/// # Errors
/// When the query is invalid, the store fails, or the query takes too long.
pub(in super::super) fn verdict_page(
    connection: &mut Connection,
    query: &ViolationQuery,
) -> Result<VerdictPage, Refusal> {
    if query.limit == 0 {
        // An empty page could not say where the next one starts.
        return Err(Refusal::Invalid("the limit must be greater than 0".into()));
    }
    run_query(connection, |connection, deadline| {
        read_page(connection, query, deadline)
    })
}

fn read_page(
    connection: &Connection,
    query: &ViolationQuery,
    deadline: Deadline,
) -> Result<VerdictPage, QueryError> {
    let select = "SELECT id, record FROM verdict
        WHERE at >= ?1 AND at < ?2 AND id < ?3
        AND ((?4 IS NULL AND ?5 IS NULL) OR owner = ?4 OR uid = ?5)
        ORDER BY id DESC";
    let number: Option<u32> = query.user.as_deref().and_then(|user| {
        let number = user.parse().ok();
        number.filter(|uid| names_user(user, Some(*uid), None))
    });
    // A name of digits only is always a uid.
    let name = query.user.as_deref().filter(|_| number.is_none());
    let before = query.before.map_or(i64::MAX, saturating_i64);
    let mut statement = connection.prepare_cached(select)?;
    let (since, until) = (query.since.0, query.until.0);
    let mut rows = statement.query(params![since, until, before, name, number])?;
    let limit = query.limit.min(MAX_RECORDS) as usize;
    let (mut records, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
        bytes += text.len();
        let is_full = records.len() >= limit || bytes > MAX_PAGE_BYTES;
        if is_full && !records.is_empty() {
            let next = records.last().map(|(id, _)| *id);
            return Ok((records, next));
        }
        // An unreadable record is skipped.
        if let Ok(record) = serde_json::from_str(&text) {
            records.push((id.unsigned_abs(), record));
        }
    }
    Ok((records, None))
}
