//! Busy and idle stretches of a few runs, from the minutes or hours.

use super::super::super::blob::{BlobError, BlobReader};
use super::super::range::{RollupLevel, find_rollup_ranges, for_each_blob};
use super::super::{Deadline, QueryError};
use super::runs::SelectedRun;
use gpukill_policy::usage::stretch::StretchBuilder;
use gpukill_proto::audit::UsageStretch;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::time::Duration;

/// The most runs for which stretches are computed, and the most stretches of all: a person reads
/// no more.
pub(super) const MAX_RUNS: usize = 64;
const MAX_STRETCHES: usize = 4_096;

/// The longest time for which minutes are read; hours are read for a longer time.
const MAX_MINUTES_TIME: Duration = Duration::from_secs(3 * 86_400);

/// A stretch of the run at this index, with its start.
pub(super) type RunStretch = (usize, Timestamp, UsageStretch);

/// The stretches of these runs, which are sorted by id, within the requested time. `None` if
/// there are too many.
pub(super) fn read_stretches(
    connection: &Connection,
    runs: &[SelectedRun],
    (since, until): (Timestamp, Timestamp),
    max_pause_ms: u64,
    deadline: Deadline,
) -> Result<Option<Vec<RunStretch>>, QueryError> {
    let first = runs.iter().map(|run| run.first_at).min();
    let last = runs.iter().map(|run| run.ended_at.unwrap_or(until)).max();
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(Some(Vec::new()));
    };
    let (first, last) = (first.max(since), last.min(until));
    let finest = match last.since(first) > MAX_MINUTES_TIME {
        true => RollupLevel::Hours,
        false => RollupLevel::Minutes,
    };
    let mut builders: Vec<StretchBuilder> = Vec::new();
    builders.resize_with(runs.len(), StretchBuilder::default);
    for rows in find_rollup_ranges(connection, finest, first, last)? {
        let time = (rows.level.earliest_start(first), last.0);
        for_each_blob(connection, rows, time, deadline, |_, from, blob| {
            // A corrupt row is logged where the rollup reads it, and skipped here.
            let _ = add_row(blob, from, (first, last), runs, &mut builders, max_pause_ms);
            Ok(())
        })?;
        if builders.iter().map(StretchBuilder::count).sum::<usize>() > MAX_STRETCHES {
            return Ok(None);
        }
    }
    let all = builders.into_iter().enumerate().flat_map(|(at, builder)| {
        let stretches = builder.finish().into_iter();
        stretches.map(move |(from, stretch)| (at, from, stretch))
    });
    Ok(Some(all.collect()))
}

/// Adds the usage of these runs in one row, as far as it lies within the requested time.
fn add_row(
    blob: &[u8],
    from: Timestamp,
    (since, until): (Timestamp, Timestamp),
    runs: &[SelectedRun],
    builders: &mut [StretchBuilder],
    max_pause_ms: u64,
) -> Result<(), BlobError> {
    let packed = BlobReader::open(blob, from)?;
    let row_end = packed.until;
    if row_end < since {
        return Ok(());
    }
    let (_, mut stored) = packed.indices()?;
    let last = runs.last().map_or(0, |run| run.id);
    while let Some(id) = stored.next_id()? {
        if id > last {
            break;
        }
        let Ok(at) = runs.binary_search_by_key(&id, |run| run.id) else {
            stored.skip_usage()?;
            continue;
        };
        let usage = stored.usage()?;
        if let (Some(run), Some(builder)) = (runs.get(at), builders.get_mut(at)) {
            let begin = from.max(run.first_at).max(since);
            let end = row_end.min(run.ended_at.unwrap_or(row_end)).min(until);
            builder.add((begin, end.max(begin)), &usage, max_pause_ms);
        }
    }
    Ok(())
}
