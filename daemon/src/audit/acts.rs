//! What people have the daemon do, in the record: a row before it is done, and
//! what came of it once that is known. An act whose row is on the disk stays in
//! memory until its end is there too, whatever becomes of the file meanwhile.

use super::refusals::Refused;
use super::row::count;
use super::{Act, ActId, ActKind};
use crate::catalogue::tell;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use std::collections::BTreeMap;

/// The most acts that may be under way. Each holds 512 KiB at most, see
/// [`super::cut`].
pub(super) const MOST_UNDER_WAY: usize = 128;

/// How an act ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) at: Timestamp,
    pub(super) word: &'static str,
    /// What came of it, as JSON, where that is known.
    pub(super) outcome: Option<String>,
    /// Why it is not known, where it is not.
    pub(super) why: Option<String>,
    /// Whom it ended, where it is a kill's.
    pub(super) ended: Vec<ProcessKey>,
}

/// A kill whose end is on the disk.
pub(super) struct Kill {
    pub(super) row: i64,
    pub(super) at: Timestamp,
    pub(super) ended: Vec<ProcessKey>,
}

impl End {
    /// Of an act that went on, or did not, without its row being waited for.
    pub(super) fn unrecorded(at: Timestamp) -> Self {
        let why = "it was on the disk too late to be waited for: what came of it is in the log";
        Self {
            at,
            word: "unrecorded",
            outcome: None,
            why: Some(why.into()),
            ended: Vec::new(),
        }
    }

    /// Of an act that a fault of the daemon's own broke off.
    pub(super) fn broken_off(at: Timestamp) -> Self {
        Self {
            at,
            word: "failed",
            outcome: None,
            why: Some("a fault of gpukilld broke it off: the log has it".into()),
            ended: Vec::new(),
        }
    }

    fn interrupted(at: Timestamp, why: String) -> Self {
        Self {
            at,
            word: "interrupted",
            outcome: None,
            why: Some(why),
            ended: Vec::new(),
        }
    }
}

/// An act whose end is not on the disk.
struct UnderWay {
    act: Act,
    at: Timestamp,
    row: i64,
    end: Option<End>,
}

/// The acts of this run of the daemon whose ends are not on the disk.
pub(super) struct Acts {
    run: String,
    last: i64,
    under_way: BTreeMap<i64, UnderWay>,
    /// What was done for kills that an earlier run left: their rows say it once they
    /// are found.
    pub(super) recovered: Option<String>,
}

impl Acts {
    /// `run` names this run of the daemon among all that wrote to the file.
    pub(super) fn new(run: String) -> Self {
        Self {
            run,
            last: 0,
            under_way: BTreeMap::new(),
            recovered: None,
        }
    }

    /// Whether one more may begin.
    pub(super) fn have_room(&self) -> bool {
        self.under_way.len() < MOST_UNDER_WAY
    }

    /// Writes down what is about to be done. It is on the disk when this returns.
    pub(super) fn begin(
        &mut self,
        connection: &Connection,
        act: Act,
        at: Timestamp,
    ) -> rusqlite::Result<ActId> {
        let row = insert(connection, &self.run, &act, at, None)?;
        self.last += 1;
        let under_way = UnderWay {
            act,
            at,
            row,
            end: None,
        };
        self.under_way.insert(self.last, under_way);
        Ok(ActId(self.last))
    }

    /// Takes note of an end, to be written by [`Self::write_ends`]. The first one
    /// holds.
    pub(super) fn end(&mut self, id: ActId, end: End) {
        match self.under_way.get_mut(&id.0) {
            Some(under_way) => {
                under_way.end.get_or_insert(end);
            }
            None => tracing::error!(act = id.0, "is settled already: not recorded again"),
        }
    }

    /// Writes the ends that are known; kills among them that ended somebody are added
    /// to these.
    pub(super) fn write_ends(
        &mut self,
        connection: &Connection,
        kills: &mut Vec<Kill>,
    ) -> rusqlite::Result<()> {
        let all = &mut self.under_way;
        while let Some((&id, it, end)) = all
            .iter()
            .find_map(|(id, it)| Some((id, it, it.end.as_ref()?)))
        {
            let row = match is_there(connection, &self.run, it)? {
                Some(Standing::UnderWay) => {
                    settle(connection, it.row, end)?;
                    it.row
                }
                // An error that was none.
                Some(Standing::Settled) => it.row,
                None => insert(connection, &self.run, &it.act, it.at, Some(end))?,
            };
            if !end.ended.is_empty() {
                let (at, ended) = (it.at, end.ended.clone());
                kills.push(Kill { row, at, ended });
            }
            all.remove(&id);
        }
        Ok(())
    }

    /// Makes a file that was just opened agree with what is under way. What is
    /// under way there and not here was interrupted when another run of the
    /// daemon ended; what is under way here and not there is in a file that was
    /// taken away, and begins anew. All of it or nothing.
    pub(super) fn adopt(
        &mut self,
        connection: &mut Connection,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let whole = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut missing = Vec::new();
        let mut ours = Vec::new();
        for (id, it) in &self.under_way {
            match is_there(&whole, &self.run, it)? {
                Some(Standing::UnderWay | Standing::Settled) => ours.push(it.row),
                None => missing.push(*id),
            }
        }
        for (row, run, kind) in under_way_there(&whole)? {
            if ours.contains(&row) {
                continue;
            }
            let end = if run == self.run {
                // Its commit failed, and yet it is there.
                End::unrecorded(now)
            } else {
                let found = format!(
                    "gpukilld had ended before it: found by its run {}",
                    self.run
                );
                let recovered = self.recovered.as_ref();
                let recovered = recovered.filter(|_| kind == ActKind::Kill.name());
                let why = recovered.map(|done| format!("{found}; {done}"));
                End::interrupted(now, why.unwrap_or(found))
            };
            tell!(ActInterrupted, act = row, word = end.word, why = end.why);
            settle(&whole, row, &end)?;
        }
        let mut rows = Vec::new();
        for id in missing {
            if let Some(it) = self.under_way.get(&id) {
                rows.push((id, insert(&whole, &self.run, &it.act, it.at, None)?));
            }
        }
        whole.commit()?;
        self.recovered = None;
        for (id, row) in rows {
            if let Some(it) = self.under_way.get_mut(&id) {
                it.row = row;
            }
        }
        Ok(())
    }

    /// Marks what is under way as interrupted: this run of the daemon ends.
    pub(super) fn interrupt(
        &mut self,
        connection: &Connection,
        at: Timestamp,
        kills: &mut Vec<Kill>,
    ) -> rusqlite::Result<()> {
        for it in self.under_way.values_mut() {
            let why = "gpukilld was stopped before it was done".to_owned();
            it.end.get_or_insert(End::interrupted(at, why));
        }
        self.write_ends(connection, kills)
    }
}

/// How a row stands on the disk.
enum Standing {
    UnderWay,
    Settled,
}

/// Whether an act is in this file. Its row may be another's in another file.
fn is_there(
    connection: &Connection,
    run: &str,
    it: &UnderWay,
) -> rusqlite::Result<Option<Standing>> {
    let select = "SELECT finished_at IS NULL FROM action WHERE id = ?1 AND run = ?2 AND at = ?3";
    let mut statement = connection.prepare_cached(select)?;
    let found = statement.query_row(params![it.row, run, it.at.0], |row| row.get(0));
    let under_way: Option<bool> = found.optional()?;
    Ok(under_way.map(|under_way| {
        if under_way {
            Standing::UnderWay
        } else {
            Standing::Settled
        }
    }))
}

/// The rows of this file that are not settled: their ids, whose they are, and their
/// kinds.
fn under_way_there(connection: &Connection) -> rusqlite::Result<Vec<(i64, String, String)>> {
    let select = "SELECT id, run, kind FROM action WHERE finished_at IS NULL";
    let mut statement = connection.prepare_cached(select)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// Writes a row of what is done, with its end where that is known.
pub(super) fn insert(
    connection: &Connection,
    run: &str,
    act: &Act,
    at: Timestamp,
    end: Option<&End>,
) -> rusqlite::Result<i64> {
    let insert = "INSERT INTO action
        (at, run, kind, uid, asked, plan, finished_at, word, outcome, why)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(insert)?.insert(params![
        at.0,
        run,
        act.kind.name(),
        act.uid,
        act.asked,
        act.plan,
        end.map(|end| end.at.0),
        end.map(|end| end.word),
        end.and_then(|end| end.outcome.as_deref()),
        end.and_then(|end| end.why.as_deref()),
    ])
}

fn settle(connection: &Connection, row: i64, end: &End) -> rusqlite::Result<()> {
    let update = "UPDATE action SET finished_at = ?2, word = ?3, outcome = ?4, why = ?5
        WHERE id = ?1 AND finished_at IS NULL";
    let mut statement = connection.prepare_cached(update)?;
    statement.execute(params![row, end.at.0, end.word, end.outcome, end.why])?;
    Ok(())
}

/// Writes down what was refused.
pub(super) fn refuse(connection: &Connection, run: &str, it: &Refused) -> rusqlite::Result<()> {
    let insert = "INSERT INTO action
        (at, run, kind, uid, asked, plan, times, finished_at, word, why)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'refused', ?9)";
    connection.prepare_cached(insert)?.execute(params![
        it.at.0,
        run,
        it.kind.name(),
        it.uid,
        it.asked,
        it.plan,
        count(it.times),
        it.last.0,
        it.why,
    ])?;
    Ok(())
}
