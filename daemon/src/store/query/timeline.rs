//! One page of a timeline, oldest first, merged from the samples and the record.

mod merge;
mod records;
mod runs;
mod selection;
mod stretches;
#[cfg(test)]
mod tests;

use merge::{SourcePart, merge};
use selection::{EVENT_MARGIN_SECONDS, TimelineSelection, UsePeriod};

use super::filter::QueryScope;
use super::gaps::read_gaps;
use super::{Deadline, QueryError, page_limit, run_query};
use gpukill_proto::audit::{
    AuditFilter, Gap, TimelineEntry, TimelineEvent, TimelinePage, TimelineQuery, TimelineSource,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use records::RecordReader;
use runs::{RunReader, SelectedRun, overlapping_runs};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use stretches::read_stretches;

/// The most selected runs that are looked up, for their starts and ends, their devices and the
/// actions that ended them.
const MAX_SELECTED_RUNS: usize = 4_096;

/// What the caller may see of the past.
pub(crate) struct PastRights {
    /// The command line of a process of this user, in a user namespace of this user.
    pub(crate) may_read_command: Box<dyn Fn(Option<u32>, Option<u32>) -> bool + Send + Sync>,
    /// The request, plan and outcome of an action of this user.
    pub(crate) may_read_action: Box<dyn Fn(Option<u32>) -> bool + Send + Sync>,
    /// A decision of the guard, without what the caller may not see of it.
    pub(crate) redact_decision: Box<dyn Fn(GuardRecord) -> Option<GuardRecord> + Send + Sync>,
}

/// The part of a page that comes from the samples, and what the rest is selected by.
pub(in super::super) struct SamplesPart {
    parts: Vec<SourcePart<TimelineEntry>>,
    /// The ends of runs, without the reboots, and the boots of those that ended unobserved.
    ends: SourcePart<TimelineEntry>,
    boots: BTreeMap<u64, String>,
    selection: TimelineSelection,
    /// The time of the records in the timeline.
    span: (Timestamp, Timestamp),
    stretches_omitted: bool,
    /// The most entries of the page.
    limit: usize,
}

/// Reads the part of a page that comes from the samples. `uids` are the users that the user of
/// the query names.
pub(in super::super) fn timeline_samples(
    connection: &mut Connection,
    query: &TimelineQuery,
    uids: BTreeSet<u32>,
    rights: &PastRights,
    now: Timestamp,
) -> Result<SamplesPart, Refusal> {
    run_query(connection, |connection, deadline| {
        // One transaction, so that all tables are read at one moment.
        let moment = connection.unchecked_transaction()?;
        read_samples(&moment, query, uids, rights, now, deadline)
    })
}

/// Adds the part of the page that comes from the record.
pub(in super::super) fn timeline_page(
    connection: &mut Connection,
    query: &TimelineQuery,
    samples: SamplesPart,
    rights: &PastRights,
) -> Result<TimelinePage, Refusal> {
    run_query(connection, |connection, deadline| {
        let SamplesPart {
            mut parts,
            mut ends,
            boots,
            selection,
            span,
            stretches_omitted,
            limit,
        } = samples;
        let reader = RecordReader {
            moment: connection.unchecked_transaction()?,
            span,
            from: query.from,
            selection: &selection,
            rights,
            limit,
            deadline,
        };
        reader.mark_reboots(&mut ends, &boots)?;
        parts.extend([
            ends,
            reader.events()?,
            reader.decisions()?,
            reader.actions()?,
            reader.findings()?,
        ]);
        let (entries, next) = merge(parts, limit);
        Ok(TimelinePage {
            entries,
            next,
            stretches_omitted,
        })
    })
}

fn read_samples(
    connection: &Connection,
    query: &TimelineQuery,
    uids: BTreeSet<u32>,
    rights: &PastRights,
    now: Timestamp,
    deadline: Deadline,
) -> Result<SamplesPart, QueryError> {
    let limit = page_limit(query.limit)?;
    let filter = AuditFilter {
        user: query.user.clone(),
        gpu: query.gpu.clone(),
        job: query.job.clone(),
        ..AuditFilter::for_period(query.since, query.until)
    };
    let scope = QueryScope::from_filter(connection, &filter, &|_, _| true)?.with_pid(query.pid);
    let is_single = scope.selects_processes || scope.devices.len() == 1;
    let is_selective = is_single || query.gpu.is_some();
    let runs = match is_selective {
        true => overlapping_runs(connection, &scope, MAX_SELECTED_RUNS, deadline)?,
        false => Vec::new(),
    };
    let is_named = query.job.is_some() || query.pid.is_some();
    if is_named && runs.is_empty() {
        let what = "no process run of this selection is recorded in this time";
        return Err(QueryError::Refused(Refusal::NoMatch(what.into())));
    }
    let part = |source| SourcePart::new(source, query.from, limit);
    let reader = RunReader {
        connection,
        scope: &scope,
        selected: (is_selective && runs.len() < MAX_SELECTED_RUNS).then_some(runs.as_slice()),
        rights,
        deadline,
    };
    let mut starts = part(TimelineSource::RunStart);
    reader.starts(&mut starts)?;
    let mut ends = part(TimelineSource::RunEnd);
    let boots = reader.ends(&mut ends)?;
    let span = match is_named {
        true => lifetime(&runs, (filter.since, filter.until)),
        false => (filter.since, filter.until),
    };
    let finder = read_gaps(connection, span, deadline)?;
    let max_pause_ms = finder.max_pause_ms();
    let mut gaps = part(TimelineSource::Gap);
    gaps.extend(gap_entries(finder.finish(span.1, now)?, span));
    let mut parts = vec![starts, gaps];
    let is_shown = is_single && runs.len() <= stretches::MAX_RUNS;
    let period = (filter.since, filter.until);
    let found = match is_shown {
        true => read_stretches(connection, &runs, period, max_pause_ms, deadline)?,
        false => None,
    };
    let stretches_omitted = found.is_none();
    if let Some(found) = found {
        let mut stretches = part(TimelineSource::Stretch);
        stretches.extend(stretch_entries(found, &runs, &scope));
        parts.push(stretches);
    }
    Ok(SamplesPart {
        parts,
        ends,
        boots,
        selection: selection(query, uids, &scope, &runs),
        span,
        stretches_omitted,
        limit,
    })
}

/// The part of a period from the first observation of these runs to shortly after the last one: what
/// happened to the host before and after that is not about them.
fn lifetime(
    runs: &[SelectedRun],
    (since, until): (Timestamp, Timestamp),
) -> (Timestamp, Timestamp) {
    // With more runs than are looked up, others may have begun earlier or ended later.
    if runs.len() >= MAX_SELECTED_RUNS {
        return (since, until);
    }
    // After the clock went back, a run may seem to end before it began.
    let moments = || {
        runs.iter()
            .flat_map(|run| [Some(run.first_at), run.ended_at])
    };
    let first = moments().flatten().min().unwrap_or(since);
    let last = match moments().all(|moment| moment.is_some()) {
        true => moments().flatten().max(),
        false => None,
    };
    let end = last.map_or(until, |last| last.plus_seconds(EVENT_MARGIN_SECONDS));
    (since.max(first), until.min(end))
}

/// The gaps in a period. One that began before the period is shown at its beginning.
fn gap_entries(
    gaps: Vec<Gap>,
    (since, until): (Timestamp, Timestamp),
) -> Vec<(Timestamp, u64, TimelineEntry)> {
    let gaps = gaps.into_iter();
    let gaps = gaps.filter(|gap| gap.from < until && gap.until > since);
    let entry = |gap: Gap| {
        let at = gap.from.max(since);
        let entry = TimelineEntry {
            at,
            gpus: Vec::new(),
            event: TimelineEvent::Gap(gap.until),
        };
        (at, gap.until.0.unsigned_abs(), entry)
    };
    gaps.map(entry).collect()
}

fn stretch_entries(
    stretches: Vec<stretches::RunStretch>,
    runs: &[SelectedRun],
    scope: &QueryScope<'_>,
) -> Vec<(Timestamp, u64, TimelineEntry)> {
    /// More than the stretches of one run.
    const STRETCHES_BITS: u32 = 13;
    let (mut run_before, mut number) = (usize::MAX, 0);
    let entries = stretches.into_iter().filter_map(|(at, from, usage)| {
        let run = runs.get(at)?;
        number = if at == run_before { number + 1 } else { 0 };
        run_before = at;
        let device = scope.all_devices.get(&run.device);
        let entry = TimelineEntry {
            at: from,
            gpus: device.map(|it| it.gpu_index).into_iter().collect(),
            event: TimelineEvent::Stretch {
                pid: run.pid,
                start_ticks: run.start_ticks,
                instance: run.instance,
                usage,
            },
        };
        let id = run.id.unsigned_abs() << STRETCHES_BITS | number;
        (from < scope.filter.until).then_some((from, id, entry))
    });
    entries.collect()
}

fn selection(
    query: &TimelineQuery,
    uids: BTreeSet<u32>,
    scope: &QueryScope<'_>,
    runs: &[SelectedRun],
) -> TimelineSelection {
    let uuid = |device: &i64| Some(scope.all_devices.get(device)?.uuid.clone());
    let devices = scope.devices.iter().filter_map(uuid);
    let devices = query.gpu.is_some().then(|| devices.into_set());
    // With more runs than are looked up, any device may have been used.
    let knows_runs = scope.selects_processes && runs.len() < MAX_SELECTED_RUNS;
    let mut used: BTreeMap<String, Vec<UsePeriod>> = BTreeMap::new();
    for run in runs {
        if let Some(uuid) = uuid(&run.device) {
            let periods = used.entry(uuid).or_default();
            periods.push((run.first_at, run.ended_at));
        }
    }
    let processes = runs.iter().filter_map(|run| {
        let (pid, start_ticks) = (run.pid, run.start_ticks?);
        Some(ProcessKey { pid, start_ticks })
    });
    // Without a filter the selection selects everything, and no owner is compared.
    let owners = runs.iter().filter_map(|run| run.owner.as_ref());
    let owners = owners.map(|owner| (owner.name.clone(), owner.uid));
    TimelineSelection {
        devices,
        user: query.user.clone(),
        uids,
        job: query.job.clone(),
        processes: query.pid.map(|_| processes.into_set()),
        used_devices: knows_runs.then_some(used),
        owners: (runs.len() < MAX_SELECTED_RUNS).then(|| owners.into_set()),
        actions: runs.iter().filter_map(|run| run.action).into_set(),
        known_devices: scope.all_devices.values().cloned().collect(),
    }
}
