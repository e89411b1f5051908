//! Which runs were ended by kills: the record says who was, the samples say when
//! it left its devices, and either may come first.

use super::row::count;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most processes that are looked for; more than one kill has.
const MOST: usize = 4_096;

/// So long is looked for the runs of one, and in so many samples: it departs at
/// the next poll, which is in one of the next two.
const LONG: Duration = Duration::from_secs(600);
const LOOKS: u32 = 3;

/// So long before the last sample may a kill have been asked for whose ends are not
/// in it: longer than a kill goes on. And so many of them are looked at.
const EARLIER_MS: i64 = 600_000;
const MOST_EARLIER: u32 = 64;

/// Whom a kill ended, from what came of it as JSON. What is no such JSON names
/// nobody.
pub(super) fn ended(outcome: &str) -> Vec<ProcessKey> {
    #[derive(Deserialize)]
    struct Report {
        outcomes: Vec<Outcome>,
    }
    #[derive(Deserialize)]
    struct Outcome {
        pid: u32,
        start_ticks: u64,
        ending: String,
    }
    let report: Option<Report> = serde_json::from_str(outcome).ok();
    let outcomes = report.into_iter().flat_map(|report| report.outcomes);
    let ended = outcomes.filter(|outcome| outcome.ending == "ended");
    let key = |Outcome {
                   pid, start_ticks, ..
               }| ProcessKey { pid, start_ticks };
    ended.map(key).collect()
}

/// Processes that kills ended, and whose runs may not be written yet.
#[derive(Default)]
pub(super) struct Killed {
    waiting: VecDeque<Waiting>,
    /// Whether those of earlier runs of the daemon are among them.
    are_recalled: bool,
}

struct Waiting {
    key: ProcessKey,
    /// The kill's row, and when it was asked for.
    action: i64,
    at: Timestamp,
    since: Instant,
    samples: u32,
    /// Where an earlier run of the daemon did it.
    earlier: Option<Earlier>,
}

/// A run of the daemon: in which boot of the box, and since when.
#[derive(Clone)]
struct Earlier {
    boot: String,
    started: i64,
}

impl Earlier {
    /// As the record names it.
    fn of(run: &str) -> Option<Self> {
        let (boot, started) = run.rsplit_once('/')?;
        Some(Self {
            boot: boot.to_owned(),
            started: started.parse().ok()?,
        })
    }
}

impl Killed {
    /// Takes those that a kill ended.
    pub(super) fn take(&mut self, action: i64, at: Timestamp, ended: &[ProcessKey], now: Instant) {
        self.take_of(None, (action, at), ended, now);
    }

    /// Takes, once, those that kills of earlier runs of the daemon ended, where it was
    /// stopped before a sample told of them. `ours` names this run.
    pub(super) fn recall(
        &mut self,
        (audit, samples): (&Connection, &Connection),
        ours: &str,
        now: Instant,
    ) -> rusqlite::Result<()> {
        if std::mem::replace(&mut self.are_recalled, true) {
            return Ok(());
        }
        let last = "SELECT at FROM sample ORDER BY id DESC LIMIT 1";
        let last = samples.query_row(last, [], |row| row.get(0)).optional()?;
        let last: i64 = last.unwrap_or(i64::MAX);
        let select = "SELECT id, at, run, outcome FROM action
            WHERE at >= ?1 AND kind = 'kill' AND run <> ?2 AND outcome IS NOT NULL
            ORDER BY at DESC LIMIT ?3";
        let since = last.saturating_sub(EARLIER_MS);
        let mut statement = audit.prepare(select)?;
        let mut rows = statement.query(params![since, ours, MOST_EARLIER])?;
        while let Some(row) = rows.next()? {
            let (run, outcome): (String, String) = (row.get(2)?, row.get(3)?);
            let kill = (row.get(0)?, Timestamp(row.get(1)?));
            if let Some(earlier) = Earlier::of(&run) {
                self.take_of(Some(&earlier), kill, &ended(&outcome), now);
            }
        }
        Ok(())
    }

    fn take_of(
        &mut self,
        earlier: Option<&Earlier>,
        (action, at): (i64, Timestamp),
        ended: &[ProcessKey],
        now: Instant,
    ) {
        let waiting = ended.iter().map(|key| Waiting {
            key: *key,
            action,
            at,
            since: now,
            samples: 0,
            earlier: earlier.cloned(),
        });
        self.waiting.extend(waiting);
        let too_many = self.waiting.len().saturating_sub(MOST);
        self.waiting.drain(..too_many);
    }

    /// Marks what is written of their runs by now.
    pub(super) fn mark(&self, connection: &mut Connection, boot: &str) -> rusqlite::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let whole = connection.transaction()?;
        for it in &self.waiting {
            // A run that was over before the kill is not its doing. That of which the
            // daemon that killed saw no end was not, if it saw it at all.
            let update = "UPDATE run SET ending = 'killed', action = ?1
                WHERE process = (SELECT id FROM process
                                 WHERE boot = ?2 AND pid = ?3 AND start_ticks = ?4)
                AND ended_at IS NOT NULL AND ending IS NOT 'killed'
                AND (ending = 'ended' OR ended_at >= ?5
                     OR (ending = 'unseen' AND ended_at >= ?6))";
            let earlier = it.earlier.as_ref();
            whole.prepare_cached(update)?.execute(params![
                it.action,
                earlier.map_or(boot, |it| &it.boot),
                it.key.pid,
                count(it.key.start_ticks),
                it.at.0,
                earlier.map(|it| it.started)
            ])?;
        }
        whole.commit()
    }

    /// After a sample was written and they were marked: lets go of those that are
    /// not to be found any more.
    pub(super) fn sampled(&mut self, now: Instant) {
        for it in &mut self.waiting {
            it.samples = it.samples.saturating_add(1);
        }
        self.waiting
            .retain(|it| it.samples < LOOKS || now.saturating_duration_since(it.since) < LONG);
    }
}

#[cfg(test)]
mod tests;
