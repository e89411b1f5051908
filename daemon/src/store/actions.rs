//! Actions in the record: a row before the action starts, and its outcome once that is known. An
//! action with its row on the disk stays in memory until its end is on the disk too, whatever
//! happens to the file meanwhile.

use super::refusals::RefusalRow;
use super::sql_values::saturating_i64;
use super::{Action, ActionId, ActionKind};
use crate::log_events::event;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use std::collections::BTreeMap;

/// The most actions that may be open. Each holds at most 512 KiB, see [`super::truncate`].
pub(super) const MAX_OPEN_ACTIONS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionEnd {
    pub(super) at: Timestamp,
    pub(super) result: &'static str,
    /// The outcome as JSON, if known.
    pub(super) outcome: Option<String>,
    /// Why the outcome is unknown.
    pub(super) why: Option<String>,
    pub(super) ended: Vec<ProcessKey>,
}

pub(super) struct RecordedKill {
    pub(super) row: i64,
    pub(super) at: Timestamp,
    pub(super) ended: Vec<ProcessKey>,
}

impl ActionEnd {
    /// The end of an action if its caller did not wait for the row.
    pub(super) fn unrecorded(at: Timestamp) -> Self {
        let why = "its row was written too late: see the log for the outcome";
        Self {
            at,
            result: "unrecorded",
            outcome: None,
            why: Some(why.into()),
            ended: Vec::new(),
        }
    }

    /// The end of an action that a fault of the daemon aborted.
    pub(super) fn aborted(at: Timestamp) -> Self {
        Self {
            at,
            result: "failed",
            outcome: None,
            why: Some("a fault of gpukilld aborted it: see the log".into()),
            ended: Vec::new(),
        }
    }

    fn interrupted(at: Timestamp, why: String) -> Self {
        Self {
            at,
            result: "interrupted",
            outcome: None,
            why: Some(why),
            ended: Vec::new(),
        }
    }
}

/// An action without its end on the disk.
struct PendingAction {
    action: Action,
    at: Timestamp,
    row: i64,
    end: Option<ActionEnd>,
}

/// The actions of this run of the daemon without their ends on the disk.
pub(super) struct OpenActions {
    run: String,
    last_id: i64,
    open: BTreeMap<i64, PendingAction>,
    /// What was done for kills that an earlier run left unfinished. Their rows get this text as
    /// part of their reason.
    pub(super) recovered: Option<String>,
}

impl OpenActions {
    /// `run` identifies this run of the daemon among all runs that wrote to the file.
    pub(super) fn new(run: String) -> Self {
        Self {
            run,
            last_id: 0,
            open: BTreeMap::new(),
            recovered: None,
        }
    }

    /// Whether another action may begin.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < MAX_OPEN_ACTIONS
    }

    /// Writes the row of an action that is about to start. The row is on the disk when this
    /// returns.
    pub(super) fn begin(
        &mut self,
        connection: &Connection,
        action: Action,
        at: Timestamp,
    ) -> rusqlite::Result<ActionId> {
        let row = insert(connection, &self.run, &action, at, None)?;
        self.last_id += 1;
        let under_way = PendingAction {
            action,
            at,
            row,
            end: None,
        };
        self.open.insert(self.last_id, under_way);
        Ok(ActionId(self.last_id))
    }

    /// Keeps an end for [`Self::write_ends`]. The first end of an action counts.
    pub(super) fn end(&mut self, id: ActionId, end: ActionEnd) {
        match self.open.get_mut(&id.0) {
            Some(under_way) => {
                under_way.end.get_or_insert(end);
            }
            None => tracing::error!(action = id.0, "already settled: not recorded again"),
        }
    }

    /// Writes the known ends. Adds the kills among them that ended processes to `kills`.
    pub(super) fn write_ends(
        &mut self,
        connection: &Connection,
        kills: &mut Vec<RecordedKill>,
    ) -> rusqlite::Result<()> {
        let all = &mut self.open;
        while let Some((&id, it, end)) = all
            .iter()
            .find_map(|(id, it)| Some((id, it, it.end.as_ref()?)))
        {
            let row = match row_state(connection, &self.run, it)? {
                Some(ActionRowState::Open) => {
                    settle(connection, it.row, end)?;
                    it.row
                }
                // SQLite reported an error for a successful commit.
                Some(ActionRowState::Settled) => it.row,
                None => insert(connection, &self.run, &it.action, it.at, Some(end))?,
            };
            if !end.ended.is_empty() {
                let (at, ended) = (it.at, end.ended.clone());
                kills.push(RecordedKill { row, at, ended });
            }
            all.remove(&id);
        }
        Ok(())
    }

    /// Makes a file that was just opened agree with the open actions, in one transaction. An action
    /// that is open only in the file was interrupted when another run of the daemon ended. An
    /// action that is open only in memory was in a file that was moved away, and gets a new row.
    pub(super) fn adopt(
        &mut self,
        connection: &mut Connection,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut missing = Vec::new();
        let mut own_ids = Vec::new();
        for (id, action) in &self.open {
            match row_state(&transaction, &self.run, action)? {
                Some(ActionRowState::Open | ActionRowState::Settled) => own_ids.push(action.row),
                None => missing.push(*id),
            }
        }
        for (row, run, kind) in open_rows(&transaction)? {
            if own_ids.contains(&row) {
                continue;
            }
            let end = if run == self.run {
                // Its commit was reported as failed, but the row is there.
                ActionEnd::unrecorded(now)
            } else {
                let found = format!(
                    "gpukilld ended before the action did: found by its run {}",
                    self.run
                );
                let recovered = self.recovered.as_ref();
                let recovered = recovered.filter(|_| kind == ActionKind::Kill.name());
                let why = recovered.map(|done| format!("{found}; {done}"));
                ActionEnd::interrupted(now, why.unwrap_or(found))
            };
            event!(
                ActionInterrupted,
                action_id = row,
                result = end.result,
                why = end.why
            );
            settle(&transaction, row, &end)?;
        }
        let mut rows = Vec::new();
        for id in missing {
            if let Some(action) = self.open.get(&id) {
                rows.push((
                    id,
                    insert(&transaction, &self.run, &action.action, action.at, None)?,
                ));
            }
        }
        transaction.commit()?;
        self.recovered = None;
        for (id, row) in rows {
            if let Some(action) = self.open.get_mut(&id) {
                action.row = row;
            }
        }
        Ok(())
    }

    /// Marks the open actions as interrupted, because this run of the daemon ends.
    pub(super) fn interrupt(
        &mut self,
        connection: &Connection,
        at: Timestamp,
        kills: &mut Vec<RecordedKill>,
    ) -> rusqlite::Result<()> {
        for action in self.open.values_mut() {
            let why = "gpukilld was stopped before it was done".to_owned();
            action.end.get_or_insert(ActionEnd::interrupted(at, why));
        }
        self.write_ends(connection, kills)
    }
}

enum ActionRowState {
    Open,
    Settled,
}

/// Looks for an action in this file. In another file its row id may belong to another action.
fn row_state(
    connection: &Connection,
    run: &str,
    action: &PendingAction,
) -> rusqlite::Result<Option<ActionRowState>> {
    let select = "SELECT finished_at IS NULL FROM action WHERE id = ?1 AND run = ?2 AND at = ?3";
    let mut statement = connection.prepare_cached(select)?;
    let found = statement.query_row(params![action.row, run, action.at.0], |row| row.get(0));
    let under_way: Option<bool> = found.optional()?;
    Ok(under_way.map(|under_way| {
        if under_way {
            ActionRowState::Open
        } else {
            ActionRowState::Settled
        }
    }))
}

/// The open rows of this file: id, daemon run and kind.
fn open_rows(connection: &Connection) -> rusqlite::Result<Vec<(i64, String, String)>> {
    let select = "SELECT id, run, kind FROM action WHERE finished_at IS NULL";
    let mut statement = connection.prepare_cached(select)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// Inserts an action, with its end if that is known.
pub(super) fn insert(
    connection: &Connection,
    run: &str,
    action: &Action,
    at: Timestamp,
    end: Option<&ActionEnd>,
) -> rusqlite::Result<i64> {
    let insert = "INSERT INTO action
        (at, run, kind, uid, request, plan, finished_at, result, outcome, reason)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(insert)?.insert(params![
        at.0,
        run,
        action.kind.name(),
        action.uid,
        action.request,
        action.plan,
        end.map(|end| end.at.0),
        end.map(|end| end.result),
        end.and_then(|end| end.outcome.as_deref()),
        end.and_then(|end| end.why.as_deref()),
    ])
}

fn settle(connection: &Connection, row: i64, end: &ActionEnd) -> rusqlite::Result<()> {
    let update = "UPDATE action SET finished_at = ?2, result = ?3, outcome = ?4, reason = ?5
        WHERE id = ?1 AND finished_at IS NULL";
    let mut statement = connection.prepare_cached(update)?;
    statement.execute(params![row, end.at.0, end.result, end.outcome, end.why])?;
    Ok(())
}

pub(super) fn insert_refusal(
    connection: &Connection,
    run: &str,
    row: &RefusalRow,
) -> rusqlite::Result<()> {
    let insert = "INSERT INTO action
        (at, run, kind, uid, request, plan, times, finished_at, result, reason)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'refused', ?9)";
    connection.prepare_cached(insert)?.execute(params![
        row.at.0,
        run,
        row.kind.name(),
        row.uid,
        row.request,
        row.plan,
        saturating_i64(row.times),
        row.last.0,
        row.why,
    ])?;
    Ok(())
}
