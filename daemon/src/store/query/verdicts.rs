//! One page of the guard's decisions, newest first.

use super::{Deadline, QueryError, page_room, run_query};
use crate::store::sql_values::saturating_i64;
use gpukill_policy::select::names_user;
use gpukill_proto::guard::{GuardRecord, ViolationQuery};
use gpukill_proto::refusal::Refusal;
use rusqlite::{Connection, params};

#[cfg(test)]
mod tests;

/// The most stored bytes of one page.
const MAX_PAGE_BYTES: u64 = 256 << 10;

/// The records with their ids, and the id from which the next page continues.
pub(crate) type VerdictPage = (Vec<(u64, GuardRecord)>, Option<u64>);

/// Returns one page of the decisions that `query` selects.
pub(in super::super) fn verdict_page(
    connection: &mut Connection,
    query: &ViolationQuery,
) -> Result<VerdictPage, Refusal> {
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
    let mut room = page_room(query.limit, MAX_PAGE_BYTES)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
        // An unreadable record is skipped.
        let Ok(record) = serde_json::from_str(&text) else {
            continue;
        };
        if !room.take(&text) {
            let next = records.last().map(|(id, _)| *id);
            return Ok((records, next));
        }
        records.push((id.unsigned_abs(), record));
    }
    Ok((records, None))
}
