//! How runs ended, by the record of actions: who ended them, which reset or which reboot.

use super::super::super::sql_values::ids_json;
use super::super::actions::action_entry_id;
use super::super::{QueryError, run_query};
use super::{StoredEnding, UnresolvedRuns};
use gpukill_policy::usage::job_runs::ProcessEnding;
use gpukill_proto::audit::{GUARD_REQUEST, RunEnd, RunPage, RunRecord};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use std::collections::BTreeMap;

/// A process is seen to leave a device up to some polls after its reset.
const RESET_MARGIN_MS: i64 = 30_000;

/// Longer than a reset takes, of all devices of a host and with the ends of their processes.
const MAX_RESET_MS: i64 = 24 * 3_600_000;

/// The most resets that are compared with the runs of a page, the newest first.
const MAX_RESETS: u32 = 1_000;

/// How a run ended, without the record of actions.
pub(super) const fn end_without_record(ending: ProcessEnding) -> RunEnd {
    match ending {
        ProcessEnding::Running => RunEnd::Running,
        ProcessEnding::Exited => RunEnd::Exited,
        ProcessEnding::Released => RunEnd::Released,
        ProcessEnding::Killed(action) => RunEnd::Killed {
            action: action_entry_id(action),
            by: None,
            by_name: None,
        },
        ProcessEnding::Unobserved => RunEnd::Unobserved,
    }
}

impl UnresolvedRuns {
    /// Whether the record of actions may have more about how one of the runs ended.
    pub(in super::super::super) fn need_record(&self) -> bool {
        self.endings.iter().any(|stored| match stored.ending {
            ProcessEnding::Exited | ProcessEnding::Killed(_) | ProcessEnding::Unobserved => true,
            ProcessEnding::Running | ProcessEnding::Released => false,
        })
    }
}

/// Completes the ends of the runs from the record of actions.
pub(in super::super::super) fn resolve_ends(
    connection: &mut Connection,
    runs: UnresolvedRuns,
) -> Result<RunPage, Refusal> {
    run_query(connection, |connection, deadline| {
        let UnresolvedRuns { mut page, endings } = runs;
        let actions = ending_actions(connection, &endings)?;
        let resets = resets(connection, &page.runs)?;
        for (run, stored) in page.runs.iter_mut().zip(&endings) {
            deadline.check()?;
            match stored.ending {
                ProcessEnding::Killed(action) => {
                    if let Some(found) = actions.get(&action) {
                        run.end = found.end(action, stored.may_read);
                    }
                }
                ProcessEnding::Exited => {
                    if let Some(reset) = resets.iter().find(|reset| reset.ended(run)) {
                        run.end = RunEnd::Reset {
                            action: action_entry_id(reset.action),
                        };
                    }
                }
                ProcessEnding::Unobserved => {
                    if was_rebooted(connection, run.until, &stored.boot)? {
                        run.end = RunEnd::Rebooted;
                    }
                }
                ProcessEnding::Running | ProcessEnding::Released => {}
            }
        }
        Ok(page)
    })
}

/// An action that ended a run.
struct EndingAction {
    uid: Option<u32>,
    request: String,
}

impl EndingAction {
    fn end(&self, action: i64, may_read: bool) -> RunEnd {
        let action = action_entry_id(action);
        match self.request.strip_prefix(GUARD_REQUEST) {
            Some(rule) => RunEnd::EndedByGuard {
                action,
                rule: may_read.then(|| rule.to_owned()),
            },
            None => RunEnd::Killed {
                action,
                by: self.uid,
                by_name: None,
            },
        }
    }
}

fn ending_actions(
    connection: &Connection,
    endings: &[StoredEnding],
) -> Result<BTreeMap<i64, EndingAction>, QueryError> {
    let actions = endings.iter().filter_map(|stored| match stored.ending {
        ProcessEnding::Killed(action) => Some(action),
        ProcessEnding::Running
        | ProcessEnding::Exited
        | ProcessEnding::Released
        | ProcessEnding::Unobserved => None,
    });
    let actions: Vec<i64> = actions.collect();
    let mut statement = connection.prepare_cached(
        "SELECT id, uid, request FROM action WHERE id IN (SELECT value FROM json_each(?1))",
    )?;
    let mut rows = statement.query([ids_json(&actions)])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let action = EndingAction {
            uid: row.get(1)?,
            request: row.get(2)?,
        };
        found.insert(row.get(0)?, action);
    }
    Ok(found)
}

struct StoredReset {
    action: i64,
    device: String,
    from: i64,
    until: i64,
}

impl StoredReset {
    fn ended(&self, run: &RunRecord) -> bool {
        let during = self.from..=self.until.saturating_add(RESET_MARGIN_MS);
        during.contains(&run.until.0) && run.gpus.iter().any(|gpu| gpu.device.0 == self.device)
    }
}

/// The devices that were reset by actions that began from `?1` to `?2` and finished at `?3` or
/// later. A reset may have left some of the devices in its plan alone.
pub(super) const SELECT_RESETS: &str = "SELECT action.id,
        json_extract(part.value, '$.gpu_id'), action.at, finished_at
    FROM action, json_each(CASE WHEN json_valid(outcome) THEN outcome ELSE '{}' END,
        '$.outcomes') AS part
    WHERE action.at >= ?1 AND action.at <= ?2 AND kind = 'reset'
        AND result IN ('done', 'partly') AND finished_at >= ?3
        AND CASE part.type WHEN 'object' THEN json_extract(part.value, '$.outcome') = 'reset'
            AND json_type(part.value, '$.gpu_id') = 'text' END
    ORDER BY action.at DESC, action.id DESC LIMIT ?4";

/// The resets in the time in which these runs ended.
fn resets(connection: &Connection, runs: &[RunRecord]) -> Result<Vec<StoredReset>, QueryError> {
    let ends = || runs.iter().map(|run| run.until.0);
    let (Some(first), Some(last)) = (ends().min(), ends().max()) else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(SELECT_RESETS)?;
    let earliest = first.saturating_sub(RESET_MARGIN_MS);
    let begin = earliest.saturating_sub(MAX_RESET_MS);
    let rows = statement.query_map(params![begin, last, earliest, MAX_RESETS], |row| {
        Ok(StoredReset {
            action: row.get(0)?,
            device: row.get(1)?,
            from: row.get(2)?,
            until: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Whether the first start of gpukilld after this moment was in another boot of the host.
pub(in super::super) fn was_rebooted(
    connection: &Connection,
    at: Timestamp,
    boot: &str,
) -> Result<bool, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT CASE WHEN json_valid(content) THEN json_extract(content, '$.boot') END
         FROM event WHERE kind = 'started' AND at >= ?1 ORDER BY at, id LIMIT 1",
    )?;
    let next: Option<Option<String>> = statement.query_row([at.0], |row| row.get(0)).optional()?;
    Ok(next.flatten().is_some_and(|next| next != boot))
}
