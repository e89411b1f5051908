//! One page of what was done and what happened, newest first: two tables as one.

use super::super::ActKind;
use super::super::event_row::KINDS;
use super::super::row::count;
use super::{Chosen, Deadline, Failure, Whom, within_time};
use gpukill_proto::audit::{ActionPage, ActionPlace, ActionQuery, ActionRecord};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::transport::codec::encoded_size;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, Row, Rows, params};
use serde_json::json;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// The most entries of one page.
const MOST_RECORDS: u32 = 1_000;

/// The most bytes of one page, as they travel. One entry may have more, with a plan
/// and an outcome of 256 KiB each: it is a page of its own, an eighth of a frame.
const MOST_BYTES: u64 = 256 << 10;

/// The most people that are told of at once.
const MOST_PEOPLE: u32 = 1_000;

/// Whether the asker may see what this user asked for, planned and got.
type MayRead<'a> = &'a dyn Fn(Option<u32>) -> bool;

/// One page of what `query` asks for, by and to `whom`.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(in super::super) fn actions(
    connection: &mut Connection,
    query: &ActionQuery,
    whom: &Whom,
    may_read: MayRead<'_>,
) -> Result<ActionPage, Refusal> {
    within_time(connection, |connection, deadline| {
        check(query)?;
        // Both tables as they are at one moment.
        let moment = connection.unchecked_transaction()?;
        is_known(&moment, whom)?;
        read(&moment, query, whom, may_read, deadline)
    })
}

/// Everybody who asked for something; many are cut.
///
/// # Errors
/// When the store fails, or it takes too long.
pub(in super::super) fn who_acted(connection: &mut Connection) -> Result<Vec<u32>, Refusal> {
    within_time(connection, |connection, _| {
        let select = "SELECT uid FROM action WHERE uid IS NOT NULL
            UNION SELECT uid FROM event WHERE uid IS NOT NULL LIMIT ?1";
        let mut statement = connection.prepare_cached(select)?;
        let rows = statement.query_map([MOST_PEOPLE], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}

fn check(query: &ActionQuery) -> Result<(), Failure> {
    let invalid = |what: String| Err(Failure::Asked(Refusal::Invalid(what)));
    if query.limit == 0 {
        // An empty page could not say where the next one begins.
        return invalid("a limit of 0 asks for nothing".into());
    }
    let known = || ActKind::ALL.map(ActKind::name).into_iter().chain(KINDS);
    let stranger = kinds(query).find(|kind| !known().any(|known| known == *kind));
    match stranger {
        Some(kind) => {
            let kind: String = kind.chars().take(40).collect();
            let known: Vec<&str> = known().collect();
            let known = known.join(", ");
            invalid(format!("{kind:?} is no kind of entry: there are {known}"))
        }
        None => Ok(()),
    }
}

/// The kinds that are asked for; none for all.
fn kinds(query: &ActionQuery) -> impl Iterator<Item = &str> {
    let typed = query.kind.iter();
    typed.flat_map(|kinds| kinds.split(',')).map(str::trim)
}

/// Whether a device that is not there any more ever was, as far as the record
/// knows.
fn is_known(connection: &Connection, whom: &Whom) -> Result<(), Failure> {
    let Some(Chosen::Gone(id, mistake)) = &whom.devices else {
        return Ok(());
    };
    let select = "SELECT EXISTS (SELECT 1 FROM event WHERE device = ?1)";
    if connection.query_row(select, [id], |row| row.get(0))? {
        Ok(())
    } else {
        Err(Failure::Asked(mistake.clone()))
    }
}

// Ids of events are even, of acts odd: both tables count from one.

const EVENTS: &str = "SELECT id * 2 AS id, at, kind, detail, uid, device, number, times, content
    FROM event
    WHERE at >= ?1 AND at < ?2 AND (at < ?3 OR (at = ?3 AND id * 2 < ?4))
    AND (?5 IS NULL OR kind IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR uid IN (SELECT value FROM json_each(?6)))
    AND (?7 IS NULL OR device IN (SELECT value FROM json_each(?7)))
    ORDER BY event.at DESC, event.id DESC";

// What an act was about stands in its plan.
const ACTS: &str = "SELECT id * 2 + 1 AS id, at, kind, uid, times, finished_at, word, why, asked,
    CASE WHEN kind = 'reset' AND json_valid(plan) AND json_array_length(plan, '$.gpus') = 1
         THEN json_extract(plan, '$.gpus[0].gpu_id') END AS device,
    plan, outcome
    FROM action
    WHERE at >= ?1 AND at < ?2 AND (at < ?3 OR (at = ?3 AND id * 2 + 1 < ?4))
    AND (?5 IS NULL OR kind IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR uid IN (SELECT value FROM json_each(?6)))
    AND (?7 IS NULL OR EXISTS (
        SELECT 1 FROM json_tree(CASE WHEN json_valid(plan) THEN plan ELSE 'null' END) AS part
        WHERE part.key = 'gpu_id' AND part.atom IN (SELECT value FROM json_each(?7))))
    ORDER BY action.at DESC, action.id DESC";

fn read(
    connection: &Connection,
    query: &ActionQuery,
    whom: &Whom,
    may_read: MayRead<'_>,
    deadline: Deadline,
) -> Result<ActionPage, Failure> {
    let (at, id) = query.before.map_or((i64::MAX, i64::MAX), |before| {
        (before.at.0, count(before.id))
    });
    let uids = whom.uids.as_ref().map(|uids| json!(uids).to_string());
    let devices = whom.devices.as_ref();
    let devices = devices.map(|chosen| json!(chosen.ids()).to_string());
    let (since, until) = (query.since.0, query.until.0.min(at.saturating_add(1)));
    let kinds: BTreeSet<&str> = kinds(query).collect();
    let kinds = (!kinds.is_empty()).then(|| json!(kinds).to_string());
    let asked = params![since, until, at, id, kinds, uids, devices];
    let (mut events, mut acts) = (
        connection.prepare_cached(EVENTS)?,
        connection.prepare_cached(ACTS)?,
    );
    let may_match = |uid| devices.is_none() || may_read(uid);
    let mut events = Source {
        rows: events.query(asked)?,
        next: None,
        of: &|row| of_event(row, may_read).map(Some),
    };
    let of_act = |row: &Row<'_>| {
        // Which devices another's kill was about is said by its plan alone.
        if may_match(row.get("uid")?) {
            of_act(row, may_read).map(Some)
        } else {
            Ok(None)
        }
    };
    let mut acts = Source {
        rows: acts.query(asked)?,
        next: None,
        of: &of_act,
    };
    let mut page = Filling {
        records: Vec::new(),
        bytes: 0,
        limit: query.limit.min(MOST_RECORDS) as usize,
    };
    loop {
        deadline.check()?;
        let newest = match (events.place()?, acts.place()?) {
            (None, None) => break,
            (event, act) if event > act => events.take(),
            (_, _) => acts.take(),
        };
        if newest.is_some_and(|record| !page.take(record)) {
            let next = page.records.last().map(place);
            let records = page.records;
            return Ok(ActionPage { records, next });
        }
    }
    Ok(ActionPage {
        records: page.records,
        next: None,
    })
}

fn place(record: &ActionRecord) -> ActionPlace {
    ActionPlace {
        at: record.at,
        id: record.id,
    }
}

/// How a row becomes an entry; `None` for one that is left out.
type Of<'a> = &'a dyn Fn(&Row<'_>) -> rusqlite::Result<Option<ActionRecord>>;

/// The rows of one table, and the next of them.
struct Source<'a> {
    rows: Rows<'a>,
    next: Option<ActionRecord>,
    of: Of<'a>,
}

impl Source<'_> {
    /// Where the next entry stands.
    fn place(&mut self) -> Result<Option<ActionPlace>, Failure> {
        while self.next.is_none() {
            let Some(row) = self.rows.next()? else {
                return Ok(None);
            };
            self.next = (self.of)(row)?;
        }
        Ok(self.next.as_ref().map(place))
    }

    fn take(&mut self) -> Option<ActionRecord> {
        self.next.take()
    }
}

/// A page, and what it may still take.
struct Filling {
    records: Vec<ActionRecord>,
    bytes: u64,
    limit: usize,
}

impl Filling {
    /// Takes an entry; false when the page was full without it.
    fn take(&mut self, record: ActionRecord) -> bool {
        self.bytes += encoded_size(&record).unwrap_or(MOST_BYTES);
        let is_full = self.records.len() >= self.limit || self.bytes > MOST_BYTES;
        if is_full && !self.records.is_empty() {
            return false;
        }
        self.records.push(record);
        true
    }
}

fn of_event(row: &Row<'_>, may_read: MayRead<'_>) -> rusqlite::Result<ActionRecord> {
    let kind: String = row.get("kind")?;
    let what: Option<String> = row.get("detail")?;
    let until: Option<i64> = row.get("number")?;
    let until = until.filter(|_| kind == "quiesced");
    let until = until.map(|until| format!("until {}", Timestamp(until).to_rfc3339()));
    // Settings and rules name people and what is protected: they are nobody's act.
    let names_people = matches!(kind.as_str(), "settings" | "rules" | "rogue_rules");
    let plan = if !names_people || may_read(None) {
        document(row.get("content")?)
    } else {
        Reading::Withheld
    };
    let device: Option<String> = row.get("device")?;
    Ok(ActionRecord {
        id: unsigned(row.get("id")?),
        at: Timestamp(row.get("at")?),
        kind,
        uid: row.get("uid")?,
        user: None,
        device: device.map(DeviceId),
        what: what.or(until),
        times: unsigned(row.get("times")?),
        word: None,
        finished_at: None,
        why: None,
        plan,
        outcome: Reading::Unsupported,
    })
}

fn of_act(row: &Row<'_>, may_read: MayRead<'_>) -> rusqlite::Result<ActionRecord> {
    let uid: Option<u32> = row.get("uid")?;
    let finished_at: Option<i64> = row.get("finished_at")?;
    let record = ActionRecord {
        id: unsigned(row.get("id")?),
        at: Timestamp(row.get("at")?),
        kind: row.get("kind")?,
        uid,
        user: None,
        device: None,
        what: None,
        times: unsigned(row.get("times")?),
        word: row.get("word")?,
        finished_at: finished_at.map(Timestamp),
        why: None,
        plan: Reading::Withheld,
        outcome: Reading::Withheld,
    };
    if !may_read(uid) {
        return Ok(record);
    }
    let asked: String = row.get("asked")?;
    let device: Option<String> = row.get("device")?;
    Ok(ActionRecord {
        device: device.map(DeviceId),
        what: Some(asked).filter(|asked| !asked.is_empty()),
        why: row.get("why")?,
        plan: document(row.get("plan")?),
        outcome: document(row.get("outcome")?),
        ..record
    })
}

/// A document that there may not be.
fn document(text: Option<String>) -> Reading<String> {
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Reading::Unsupported, Reading::Value)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
