//! Marks the runs that kills ended. The record has the ended processes, the samples have the time
//! at which each left its devices; either may come first.

use super::sql_values::saturating_i64;
use gpukill_policy::round_robin::interleave;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most processes that are tracked: more than one kill has.
const MAX_PROCESSES: usize = 4_096;

/// How long the runs of a process are looked for, in time and in samples. A process departs at the
/// next poll, which belongs to one of the next two samples.
const MIN_SEARCH_TIME: Duration = Duration::from_secs(600);
const MIN_SEARCH_SAMPLES: u32 = 3;

/// How long before the last sample a kill may have started if its ends are not in that sample, and
/// how long before a kill the run that it ended may have been observed last: longer than a kill
/// and a sample take. And the most such kills that are read, of one caller and of all.
const EARLIER_KILL_MS: i64 = 600_000;
const MAX_EARLIER_KILLS_PER_CALLER: u32 = 64;
const MAX_EARLIER_KILLS: u32 = 1_024;

/// How many ended processes the short form of an outcome has: each GPU process of most jobs.
const MAX_SHORT_PROCESSES: usize = 64;

/// The processes that a kill ended, from its outcome as JSON, or from the short form of it. Other
/// JSON yields no process.
pub(super) fn ended_processes(outcome: &str) -> Vec<ProcessKey> {
    #[derive(Deserialize)]
    struct StoredKillReport {
        #[serde(default)]
        outcomes: Vec<StoredKillOutcome>,
        #[serde(default)]
        ended_processes: Vec<(u32, u64)>,
    }
    #[derive(Deserialize)]
    struct StoredKillOutcome {
        pid: u32,
        start_ticks: u64,
        outcome: String,
    }
    let Ok(report) = serde_json::from_str::<StoredKillReport>(outcome) else {
        return Vec::new();
    };
    let outcomes = report.outcomes.into_iter();
    let ended = outcomes.filter(|outcome| outcome.outcome == "ended");
    ended
        .map(|outcome| (outcome.pid, outcome.start_ticks))
        .chain(report.ended_processes)
        .map(|(pid, start_ticks)| ProcessKey { pid, start_ticks })
        .collect()
}

/// Adds the processes that a kill ended to the short form of its outcome, a JSON object: after a
/// restart of the daemon their runs are marked from the record.
pub(super) fn add_ended_processes(short: String, ended: &[ProcessKey]) -> String {
    if ended.is_empty() {
        return short;
    }
    let Ok(Value::Object(mut object)) = serde_json::from_str(&short) else {
        return short;
    };
    let listed = ended.iter().take(MAX_SHORT_PROCESSES);
    let listed: Value = listed
        .map(|key| json!([key.pid, key.start_ticks]))
        .collect();
    object.insert("ended_processes".to_owned(), listed);
    Value::Object(object).to_string()
}

/// Processes that kills ended, while their runs may not be written yet.
#[derive(Default)]
pub(super) struct KilledRuns {
    waiting: VecDeque<KilledProcess>,
    /// Whether kills of earlier runs of the daemon were added.
    has_earlier_kills: bool,
}

struct KilledProcess {
    key: ProcessKey,
    /// The row of the kill, and when it was requested.
    action: i64,
    at: Timestamp,
    since: Instant,
    samples: u32,
    /// The earlier run of the daemon that made the kill, if any.
    earlier: Option<EarlierDaemonRun>,
}

/// A run of the daemon: the boot of the host, and when the daemon started.
#[derive(Clone)]
struct EarlierDaemonRun {
    boot: String,
    started: i64,
}

impl EarlierDaemonRun {
    /// Parses the name of a run in the record.
    fn parse(run: &str) -> Option<Self> {
        let (boot, started) = run.rsplit_once('/')?;
        Some(Self {
            boot: boot.to_owned(),
            started: started.parse().ok()?,
        })
    }
}

impl KilledRuns {
    pub(super) fn add(&mut self, action: i64, at: Timestamp, ended: &[ProcessKey], now: Instant) {
        self.add_processes(None, (action, at), ended, now);
    }

    /// Adds once the processes that kills of earlier runs of the daemon ended before a sample
    /// recorded their departure. `ours` names this run.
    pub(super) fn add_earlier_kills(
        &mut self,
        (audit, samples): (&Connection, &Connection),
        ours: &str,
        now: Instant,
    ) -> rusqlite::Result<()> {
        if std::mem::replace(&mut self.has_earlier_kills, true) {
            return Ok(());
        }
        let last = "SELECT at FROM sample ORDER BY id DESC LIMIT 1";
        let last = samples.query_row(last, [], |row| row.get(0)).optional()?;
        let last: i64 = last.unwrap_or(i64::MAX);
        let select = "SELECT action.id, at, run, outcome FROM action JOIN
                (SELECT id, row_number() OVER (PARTITION BY uid ORDER BY at DESC) AS nth
                 FROM action
                 WHERE at >= ?1 AND kind = 'kill' AND run <> ?2 AND outcome IS NOT NULL) AS newest
            ON newest.id = action.id
            WHERE nth <= ?3 ORDER BY nth LIMIT ?4";
        let since = last.saturating_sub(EARLIER_KILL_MS);
        let mut statement = audit.prepare(select)?;
        let limits = (MAX_EARLIER_KILLS_PER_CALLER, MAX_EARLIER_KILLS);
        let mut rows = statement.query(params![since, ours, limits.0, limits.1])?;
        while let Some(row) = rows.next()? {
            let (run, outcome): (String, String) = (row.get(2)?, row.get(3)?);
            let kill = (row.get(0)?, Timestamp(row.get(1)?));
            if let Some(earlier) = EarlierDaemonRun::parse(&run) {
                self.add_processes(Some(&earlier), kill, &ended_processes(&outcome), now);
            }
        }
        Ok(())
    }

    fn add_processes(
        &mut self,
        earlier: Option<&EarlierDaemonRun>,
        (action, at): (i64, Timestamp),
        ended: &[ProcessKey],
        now: Instant,
    ) {
        let waiting = ended.iter().map(|key| KilledProcess {
            key: *key,
            action,
            at,
            since: now,
            samples: 0,
            earlier: earlier.cloned(),
        });
        self.waiting.extend(waiting);
        if self.waiting.len() > MAX_PROCESSES {
            // Any user can kill thousands of their own processes: of each kill as many stay.
            let newest_first = std::mem::take(&mut self.waiting).into_iter().rev();
            let by_kill = newest_first.map(|run| (run.action, run));
            self.waiting = interleave(by_kill)
                .into_iter()
                .take(MAX_PROCESSES)
                .collect();
        }
    }

    /// Marks the runs of these processes that are written by now.
    pub(super) fn mark_runs(
        &self,
        connection: &mut Connection,
        boot: &str,
    ) -> rusqlite::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let transaction = connection.transaction()?;
        for run in &self.waiting {
            // The kill did not end a run that ended before it. It did end a run that the daemon
            // observed, if that daemon did not observe the end. The run was last observed before
            // the kill, but ended after it; much later only by a changed clock.
            let update = "UPDATE run SET ending = 'killed', action = ?1,
                ended_at = CASE WHEN ended_at BETWEEN ?5 - ?7 AND ?5 THEN ?5 ELSE ended_at END
                WHERE process = (SELECT id FROM process
                                 WHERE boot = ?2 AND pid = ?3 AND start_ticks = ?4)
                AND ended_at IS NOT NULL AND ending IS NOT 'killed'
                AND (ending = 'ended' OR ended_at >= ?5
                     OR (ending = 'unobserved' AND ended_at >= ?6))";
            let earlier = run.earlier.as_ref();
            transaction.prepare_cached(update)?.execute(params![
                run.action,
                earlier.map_or(boot, |run| &run.boot),
                run.key.pid,
                saturating_i64(run.key.start_ticks),
                run.at.0,
                earlier.map(|run| run.started),
                EARLIER_KILL_MS
            ])?;
        }
        transaction.commit()
    }

    /// Counts a written sample after the runs were marked, and drops the processes that were looked
    /// for long enough.
    pub(super) fn count_sample(&mut self, now: Instant) {
        for run in &mut self.waiting {
            run.samples = run.samples.saturating_add(1);
        }
        self.waiting.retain(|run| {
            run.samples < MIN_SEARCH_SAMPLES
                || now.saturating_duration_since(run.since) < MIN_SEARCH_TIME
        });
    }
}

#[cfg(test)]
mod tests;
