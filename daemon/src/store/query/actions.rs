//! One page of actions and events, newest first, merged from two tables.

use super::super::ActionKind;
use super::super::event_row::EVENT_KINDS;
use super::super::sql_values::saturating_i64;
use super::{Deadline, QueryError, page_room, run_query};
use gpukill_proto::audit::{ActionCursor, ActionPage, ActionQuery, ActionRecord, GUARD_USER};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::settings::value::choice_error;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, Row, Rows, params};
use serde_json::json;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// The most encoded bytes of one page. A single entry may be larger, with a plan and an outcome of
/// 256 KiB each: it is a page of its own, an eighth of a frame.
const MAX_PAGE_BYTES: u64 = 256 << 10;

/// The most users that are listed.
const MAX_USERS: u32 = 1_000;

/// Restricts a query to users who acted and devices that were affected, resolved to ids: the record
/// has neither user names nor GPU indexes. `None` for all.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActionFilter {
    pub(crate) uids: Option<BTreeSet<u32>>,
    pub(crate) devices: Option<SelectedDevices>,
}

/// The devices that a selector names.
#[derive(Debug, Clone)]
pub(crate) enum SelectedDevices {
    /// Present devices, by id.
    Present(Vec<String>),
    /// No present device: the text is the full id of a former device, or else an error, which is
    /// the second field.
    Gone(String, Refusal),
}

impl SelectedDevices {
    fn ids(&self) -> &[String] {
        match self {
            Self::Present(ids) => ids,
            Self::Gone(id, _) => std::slice::from_ref(id),
        }
    }
}

/// Whether the caller may see the request, plan and outcome of this user's actions.
type MayReadAction<'a> = &'a dyn Fn(Option<u32>) -> bool;

/// Returns one page of the entries that match `query` and `filter`.
pub(in super::super) fn action_page(
    connection: &mut Connection,
    query: &ActionQuery,
    filter: &ActionFilter,
    may_read: MayReadAction<'_>,
) -> Result<ActionPage, Refusal> {
    run_query(connection, |connection, deadline| {
        validate(query)?;
        // One transaction, so that both tables are read at one moment.
        let moment = connection.unchecked_transaction()?;
        check_device_known(&moment, filter)?;
        read_page(&moment, query, filter, may_read, deadline)
    })
}

/// The users with a recorded action or event, up to a limit.
pub(in super::super) fn acting_uids(connection: &mut Connection) -> Result<Vec<u32>, Refusal> {
    run_query(connection, |connection, _| {
        let select = "SELECT uid FROM action WHERE uid IS NOT NULL
            UNION SELECT uid FROM event WHERE uid IS NOT NULL LIMIT ?1";
        let mut statement = connection.prepare_cached(select)?;
        let rows = statement.query_map([MAX_USERS], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}

/// Those of `uids` that had this name, and no other one, whenever they used a device: the record has
/// no names.
pub(in super::super) fn former_uids(
    connection: &mut Connection,
    name: &str,
    uids: &[u32],
) -> Result<Vec<u32>, Refusal> {
    run_query(connection, |connection, _| {
        Ok(select_former_uids(connection, name, uids)?)
    })
}

/// Reads each process of these users at most twice.
fn select_former_uids(
    connection: &Connection,
    name: &str,
    uids: &[u32],
) -> rusqlite::Result<Vec<u32>> {
    let select = "SELECT value FROM json_each(?1) AS acting
        WHERE EXISTS (SELECT 1 FROM process WHERE uid = acting.value AND user = ?2)
        AND NOT EXISTS (SELECT 1 FROM process WHERE uid = acting.value AND user <> ?2)";
    let mut statement = connection.prepare_cached(select)?;
    let rows = statement.query_map(params![json!(uids).to_string(), name], |row| row.get(0))?;
    rows.collect()
}

fn validate(query: &ActionQuery) -> Result<(), QueryError> {
    let invalid = |what: String| Err(QueryError::Refused(Refusal::Invalid(what)));
    let known = || {
        ActionKind::ALL
            .map(ActionKind::name)
            .into_iter()
            .chain(EVENT_KINDS)
    };
    let stranger = requested_kinds(query).find(|kind| !known().any(|known| known == *kind));
    match stranger {
        Some(kind) => {
            let kind: String = kind.chars().take(40).collect();
            let known: Vec<&str> = known().collect();
            invalid(choice_error(&format_args!("{kind:?}"), &known))
        }
        None => Ok(()),
    }
}

/// The requested kinds; none means all.
fn requested_kinds(query: &ActionQuery) -> impl Iterator<Item = &str> {
    let typed = query.kind.iter();
    typed.flat_map(|kinds| kinds.split(',')).map(str::trim)
}

/// Checks that the record has an event of a device that is no longer present.
fn check_device_known(connection: &Connection, filter: &ActionFilter) -> Result<(), QueryError> {
    let Some(SelectedDevices::Gone(id, mistake)) = &filter.devices else {
        return Ok(());
    };
    let select = "SELECT EXISTS (SELECT 1 FROM event WHERE device = ?1)";
    if connection.query_row(select, [id], |row| row.get(0))? {
        Ok(())
    } else {
        Err(QueryError::Refused(mistake.clone()))
    }
}

// Ids of events are even, ids of actions odd: both tables count from one.

pub(super) const fn action_entry_id(row: i64) -> u64 {
    row.saturating_mul(2).saturating_add(1).cast_unsigned()
}

pub(super) const fn row_of_action(id: u64) -> i64 {
    (id / 2).cast_signed()
}

const SELECT_EVENTS: &str =
    "SELECT id * 2 AS id, at, kind, detail, uid, device, number, times, content
    FROM event
    WHERE at >= ?1 AND at < ?2 AND (at < ?3 OR (at = ?3 AND id * 2 < ?4))
    AND (?5 IS NULL OR kind IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR uid IN (SELECT value FROM json_each(?6)))
    AND (?7 IS NULL OR device IN (SELECT value FROM json_each(?7)))
    ORDER BY event.at DESC, event.id DESC";

// The devices of an action are in its plan.
const SELECT_ACTIONS: &str =
    "SELECT id * 2 + 1 AS id, at, kind, uid, times, finished_at, result, reason, request,
    CASE WHEN kind = 'reset' AND json_valid(plan) AND json_array_length(plan, '$.gpus') = 1
         THEN json_extract(plan, '$.gpus[0].gpu_id') END AS device,
    plan, outcome
    FROM action
    WHERE at >= ?1 AND at < ?2 AND (at < ?3 OR (at = ?3 AND id * 2 + 1 < ?4))
    AND (?5 IS NULL OR kind IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR uid IN (SELECT value FROM json_each(?6)) OR (?8 AND request LIKE 'guard: %'))
    AND (?7 IS NULL OR EXISTS (
        SELECT 1 FROM json_tree(CASE WHEN json_valid(plan) THEN plan ELSE 'null' END) AS part
        WHERE part.key = 'gpu_id' AND part.atom IN (SELECT value FROM json_each(?7))))
    ORDER BY action.at DESC, action.id DESC";

fn read_page(
    connection: &Connection,
    query: &ActionQuery,
    filter: &ActionFilter,
    may_read: MayReadAction<'_>,
    deadline: Deadline,
) -> Result<ActionPage, QueryError> {
    let (at, id) = query.before.map_or((i64::MAX, i64::MAX), |before| {
        (before.at.0, saturating_i64(before.id))
    });
    let uids = filter.uids.as_ref().map(|uids| json!(uids).to_string());
    let devices = filter.devices.as_ref();
    let devices = devices.map(|chosen| json!(chosen.ids()).to_string());
    let (since, until) = (query.since.0, query.until.0.min(at.saturating_add(1)));
    let kinds: BTreeSet<&str> = requested_kinds(query).into_set();
    let kinds = (!kinds.is_empty()).then(|| json!(kinds).to_string());
    let typed = query.user.iter().flat_map(|users| users.split(','));
    let has_guard = typed.map(str::trim).any(|user| user == GUARD_USER);
    let asked_events = params![since, until, at, id, kinds, uids, devices];
    let asked_actions = params![since, until, at, id, kinds, uids, devices, has_guard];
    let (mut events, mut actions) = (
        connection.prepare_cached(SELECT_EVENTS)?,
        connection.prepare_cached(SELECT_ACTIONS)?,
    );
    let may_match = |uid| devices.is_none() || may_read(uid);
    let mut events = EntrySource {
        rows: events.query(asked_events)?,
        next: None,
        to_entry: &|row| event_entry(row, may_read).map(Some),
    };
    let to_action = |row: &Row<'_>| {
        // The devices of another user's kill are known only from its withheld plan.
        if !may_match(row.get("uid")?) {
            return Ok(None);
        }
        let record = action_entry(row, may_read)?;
        // Which actions are the guard's is known from the request, which may be withheld.
        let is_selected = filter
            .uids
            .as_ref()
            .is_none_or(|uids| match record.guard_rule() {
                Some(_) => has_guard,
                None => record.uid.is_some_and(|uid| uids.contains(&uid)),
            });
        Ok(is_selected.then_some(record))
    };
    let mut actions = EntrySource {
        rows: actions.query(asked_actions)?,
        next: None,
        to_entry: &to_action,
    };
    let mut room = page_room(query.limit, MAX_PAGE_BYTES)?;
    let mut page = ActionPage {
        records: Vec::new(),
        next: None,
    };
    loop {
        deadline.check()?;
        let newest = match (events.next_position()?, actions.next_position()?) {
            (None, None) => break,
            (event, action) if event > action => events.take(),
            (_, _) => actions.take(),
        };
        if newest.as_ref().is_some_and(|record| !room.take(record)) {
            page.next = page.records.last().map(entry_position);
            break;
        }
        page.records.extend(newest);
    }
    Ok(page)
}

fn entry_position(record: &ActionRecord) -> ActionCursor {
    ActionCursor {
        at: record.at,
        id: record.id,
    }
}

/// Converts a row to an entry; `None` for a row that is left out.
type RowToEntry<'a> = &'a dyn Fn(&Row<'_>) -> rusqlite::Result<Option<ActionRecord>>;

/// The rows of one table, and the next entry.
struct EntrySource<'a> {
    rows: Rows<'a>,
    next: Option<ActionRecord>,
    to_entry: RowToEntry<'a>,
}

impl EntrySource<'_> {
    fn next_position(&mut self) -> Result<Option<ActionCursor>, QueryError> {
        while self.next.is_none() {
            let Some(row) = self.rows.next()? else {
                return Ok(None);
            };
            self.next = (self.to_entry)(row)?;
        }
        Ok(self.next.as_ref().map(entry_position))
    }

    fn take(&mut self) -> Option<ActionRecord> {
        self.next.take()
    }
}

pub(super) fn event_entry(
    row: &Row<'_>,
    may_read: MayReadAction<'_>,
) -> rusqlite::Result<ActionRecord> {
    let kind: String = row.get("kind")?;
    let what: Option<String> = row.get("detail")?;
    let until: Option<i64> = row.get("number")?;
    let until = until.filter(|_| kind == "quiesced");
    let until = until.map(|until| format!("until {}", Timestamp(until).to_rfc3339()));
    // Settings and rules name people and protected processes, and are no user's action.
    let names_people = matches!(kind.as_str(), "settings" | "rules" | "rogue_rules");
    let plan = if !names_people || may_read(None) {
        document_reading(row.get("content")?)
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
        result: None,
        finished_at: None,
        why: None,
        plan,
        outcome: Reading::Unsupported,
    })
}

pub(super) fn action_entry(
    row: &Row<'_>,
    may_read: MayReadAction<'_>,
) -> rusqlite::Result<ActionRecord> {
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
        result: row.get("result")?,
        finished_at: finished_at.map(Timestamp),
        why: None,
        plan: Reading::Withheld,
        outcome: Reading::Withheld,
    };
    if !may_read(uid) {
        return Ok(record);
    }
    let request: String = row.get("request")?;
    let device: Option<String> = row.get("device")?;
    Ok(ActionRecord {
        device: device.map(DeviceId),
        what: Some(request).filter(|request| !request.is_empty()),
        why: row.get("reason")?,
        plan: document_reading(row.get("plan")?),
        outcome: document_reading(row.get("outcome")?),
        ..record
    })
}

/// A document that may be missing.
fn document_reading(text: Option<String>) -> Reading<String> {
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Reading::Unsupported, Reading::Value)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
