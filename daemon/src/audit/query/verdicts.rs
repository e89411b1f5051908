//! One page of what the guard decided, newest first.

use super::{Deadline, Failure, within_time};
use crate::audit::row::count;
use gpukill_policy::select::is_user;
use gpukill_proto::guard::{GuardRecord, ViolationQuery};
use gpukill_proto::refusal::Refusal;
use rusqlite::{Connection, params};

#[cfg(test)]
mod tests;

/// The most records of one page.
const MOST_RECORDS: u32 = 1_000;

/// The most bytes of one page, as they are stored.
const MOST_BYTES: usize = 256 << 10;

/// Some records with their ids, and the id that the next page goes on from.
pub(crate) type Verdicts = (Vec<(u64, GuardRecord)>, Option<u64>);

/// One page of what `query` asks for.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(in super::super) fn verdicts(
    connection: &mut Connection,
    query: &ViolationQuery,
) -> Result<Verdicts, Refusal> {
    if query.limit == 0 {
        // An empty page could not say where the next one begins.
        return Err(Refusal::Invalid("a limit of 0 asks for nothing".into()));
    }
    within_time(connection, |connection, deadline| {
        read(connection, query, deadline)
    })
}

fn read(
    connection: &Connection,
    query: &ViolationQuery,
    deadline: Deadline,
) -> Result<Verdicts, Failure> {
    let select = "SELECT id, record FROM verdict
        WHERE at >= ?1 AND at < ?2 AND id < ?3
        AND ((?4 IS NULL AND ?5 IS NULL) OR owner = ?4 OR uid = ?5)
        ORDER BY id DESC";
    let number: Option<u32> = query.user.as_deref().and_then(|user| {
        let number = user.parse().ok();
        number.filter(|uid| is_user(user, Some(*uid), None))
    });
    // A name that is all digits is only ever a number.
    let name = query.user.as_deref().filter(|_| number.is_none());
    let before = query.before.map_or(i64::MAX, count);
    let mut statement = connection.prepare_cached(select)?;
    let (since, until) = (query.since.0, query.until.0);
    let mut rows = statement.query(params![since, until, before, name, number])?;
    let limit = query.limit.min(MOST_RECORDS) as usize;
    let (mut records, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        deadline.check()?;
        let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
        bytes += text.len();
        let is_full = records.len() >= limit || bytes > MOST_BYTES;
        if is_full && !records.is_empty() {
            let next = records.last().map(|(id, _)| *id);
            return Ok((records, next));
        }
        // One that cannot be read is left out.
        if let Ok(record) = serde_json::from_str(&text) {
            records.push((id.unsigned_abs(), record));
        }
    }
    Ok((records, None))
}
