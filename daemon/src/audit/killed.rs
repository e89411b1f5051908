//! Which runs were ended by kills: the record says who was, the samples say when
//! it left its devices, and either may come first.

use super::row::count;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most processes that are looked for; more than one kill has.
const MOST: usize = 4_096;

/// So long is looked for the runs of one, and in so many samples: it departs at
/// the next poll, which is in one of the next two.
const LONG: Duration = Duration::from_secs(600);
const LOOKS: u32 = 3;

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
}

struct Waiting {
    key: ProcessKey,
    /// The kill's row, and when it was asked for.
    action: i64,
    at: Timestamp,
    since: Instant,
    samples: u32,
}

impl Killed {
    /// Takes those that a kill ended.
    pub(super) fn take(&mut self, action: i64, at: Timestamp, ended: &[ProcessKey], now: Instant) {
        let waiting = ended.iter().map(|key| Waiting {
            key: *key,
            action,
            at,
            since: now,
            samples: 0,
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
            // A run that was over before the kill is not its doing.
            let update = "UPDATE run SET ending = 'killed', action = ?1
                WHERE process = (SELECT id FROM process
                                 WHERE boot = ?2 AND pid = ?3 AND start_ticks = ?4)
                AND ended_at IS NOT NULL AND ending IS NOT 'killed'
                AND (ending = 'ended' OR ended_at >= ?5)";
            whole.prepare_cached(update)?.execute(params![
                it.action,
                boot,
                it.key.pid,
                count(it.key.start_ticks),
                it.at.0
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
