//! Sums up usage by owner and by kind of process.

use super::super::super::blob::DecodedUsage;
use super::super::filter::{MayReadCommand, QueryScope, RunColumns, RunRow, for_each_run};
use super::super::{Deadline, QueryError};
use super::local_hours;
use gpukill_policy::usage::RunUsage;
use gpukill_proto::audit::{OwnerTime, ProcessTime, UsageTimes, UsageTotals, WeekTime};
use gpukill_proto::collect::{IntoMap as _, SortIndirect as _};
use gpukill_proto::model::{Owner, OwnerKind};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::text::NO_PROCESS;
use gpukill_proto::units::Bytes;
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most owners, and the most kinds of processes, that are reported.
const MAX_REPORTED: usize = 50;

/// The most runs that are added up before their owners are looked up: mostly those of a week.
const MAX_UNRESOLVED_RUNS: usize = 1 << 15;

/// The most runs, and the most owners and kinds of processes, that are kept apart: enough for
/// years. Without a limit the memory would be unbounded.
const MAX_RUNS: usize = 1 << 20;
const MAX_GROUPS: usize = 1 << 16;

/// Ids of runs that are not needed are read along when they lie between needed ids, up to this many
/// in a row.
const MAX_SKIPPED_IDS: i64 = 64;

/// The sums so far.
pub(super) struct UsageByOwner<'a> {
    connection: &'a Connection,
    scope: &'a QueryScope<'a>,
    may_read: MayReadCommand<'a>,
    /// The cached results of `may_read`.
    may_read_cache: BTreeMap<(Option<u32>, Option<u32>), bool>,
    deadline: Deadline,
    /// The week of the runs in `runs`, by its Monday.
    week: i64,
    runs: HashMap<i64, RunTotals>,
    /// The runs that were counted.
    counted: HashSet<i64>,
    owners: BTreeMap<Option<StoredOwner>, UsageGroup>,
    processes: BTreeMap<String, UsageGroup>,
}

/// An owner, by everything that tells owners apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StoredOwner {
    kind: OwnerKind,
    uid: Option<u32>,
    name: String,
}

/// The usage of an owner or of a kind of process.
#[derive(Default)]
struct UsageGroup {
    used: RunTotals,
    runs: u64,
    /// The device time of an owner by week.
    weeks: BTreeMap<i64, u64>,
}

#[derive(Default)]
struct RunTotals {
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    /// Bytes × milliseconds.
    memory: u128,
    max_memory: Option<u64>,
}

/// The final sums.
pub(super) struct OwnerTotals {
    pub(super) owners: Vec<OwnerTime>,
    pub(super) more_owners: u32,
    pub(super) processes: Vec<ProcessTime>,
    pub(super) more_processes: u32,
    /// The owner with the longest device time in each week.
    top_by_week: BTreeMap<i64, (String, u64)>,
}

impl<'a> UsageByOwner<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        scope: &'a QueryScope<'a>,
        may_read: MayReadCommand<'a>,
        deadline: Deadline,
    ) -> Self {
        Self {
            connection,
            scope,
            may_read,
            may_read_cache: BTreeMap::new(),
            deadline,
            week: 0,
            runs: HashMap::new(),
            counted: HashSet::new(),
            owners: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, row: &DecodedUsage, week: i64) -> Result<(), QueryError> {
        if week != self.week || self.runs.len() >= MAX_UNRESOLVED_RUNS {
            self.resolve_runs()?;
            self.week = week;
        }
        for (run, usage) in &row.runs {
            self.runs.entry(*run).or_default().add(usage);
        }
        Ok(())
    }

    /// Looks up the owners of the runs that were added so far.
    fn resolve_runs(&mut self) -> Result<(), QueryError> {
        let mut runs = std::mem::take(&mut self.runs);
        let mut ids: Vec<i64> = runs.keys().copied().collect();
        ids.sort_indirect();
        for stretch in id_spans(ids.into_iter()) {
            self.deadline.check()?;
            for_each_run(
                self.connection,
                self.scope,
                RunColumns::User,
                stretch,
                |row| match runs.remove(&row.id()?) {
                    Some(used) => self.add_run(row, &used),
                    None => Ok(()),
                },
            )?;
        }
        if self.scope.selects_all() {
            // A run without a row should not exist; its time still counts.
            for (run, used) in runs {
                self.add_usage(run, None, NO_PROCESS.to_owned(), &used)?;
            }
        }
        Ok(())
    }

    fn add_run(&mut self, row: &RunRow<'_>, used: &RunTotals) -> Result<(), QueryError> {
        let owner = row
            .owner()?
            .map(|Owner { name, uid, kind }| StoredOwner { kind, uid, name });
        let (uid, namespace_owner) = (row.uid()?, row.namespace_owner()?);
        let may_read = self.may_read_cache.entry((uid, namespace_owner));
        let may_read = *may_read.or_insert_with(|| (self.may_read)(uid, namespace_owner));
        let label = row.label(may_read)?;
        self.add_usage(row.id()?, owner, label, used)
    }

    fn add_usage(
        &mut self,
        run: i64,
        owner: Option<StoredOwner>,
        label: String,
        used: &RunTotals,
    ) -> Result<(), QueryError> {
        let is_new = self.counted.insert(run);
        let owner = self.owners.entry(owner).or_default();
        let of_week = owner.weeks.entry(self.week).or_default();
        *of_week = of_week.saturating_add(used.device_time_ms());
        owner.add(used, is_new);
        self.processes.entry(label).or_default().add(used, is_new);
        let is_bounded = self.counted.len() <= MAX_RUNS
            && self.owners.len() <= MAX_GROUPS
            && self.processes.len() <= MAX_GROUPS;
        if !is_bounded {
            let what = Refusal::TooSlow("distinguishing this many processes".into());
            return Err(QueryError::Refused(what));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<OwnerTotals, QueryError> {
        self.resolve_runs()?;
        let top_by_week = top_owners_by_week(&self.owners);
        let (owners, more_owners) = top_groups(self.owners);
        let (processes, more_processes) = top_groups(self.processes);
        let owner = |(stored, used): (Option<StoredOwner>, UsageTotals)| OwnerTime {
            owner: stored.map(|StoredOwner { kind, uid, name }| Owner { name, uid, kind }),
            used,
        };
        let process = |(label, used)| ProcessTime { label, used };
        Ok(OwnerTotals {
            owners: owners.into_iter().map(owner).collect(),
            more_owners,
            processes: processes.into_iter().map(process).collect(),
            more_processes,
            top_by_week,
        })
    }
}

/// Groups ids into spans with few unneeded ids between them.
fn id_spans(ids: impl Iterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut stretches: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match stretches.last_mut() {
            Some((_, last)) if id.saturating_sub(*last) <= MAX_SKIPPED_IDS => *last = id,
            Some(_) | None => stretches.push((id, id)),
        }
    }
    stretches
}

/// The groups with the most device time, and the number of the others.
fn top_groups<K: Ord>(groups: BTreeMap<K, UsageGroup>) -> (Vec<(K, UsageTotals)>, u32) {
    let mut sorted: Vec<(K, UsageGroup)> = groups.into_iter().collect();
    // The sort is stable: groups with equal time stay in the order of their keys.
    sorted.sort_indirect_by_key(|(_, group)| std::cmp::Reverse(group.used.device_time_ms()));
    let more = sorted.len().saturating_sub(MAX_REPORTED);
    let reported = sorted.into_iter().take(MAX_REPORTED);
    let reported = reported
        .map(|(key, group)| (key, group.to_used_by()))
        .collect();
    (reported, u32::try_from(more).unwrap_or(u32::MAX))
}

fn top_owners_by_week(
    owners: &BTreeMap<Option<StoredOwner>, UsageGroup>,
) -> BTreeMap<i64, (String, u64)> {
    let mut top_by_week: BTreeMap<i64, (&str, u64)> = BTreeMap::new();
    for (owner, group) in owners {
        // Unknown owners may be several people.
        let Some(owner) = owner else { continue };
        for (week, ms) in &group.weeks {
            let before = top_by_week.entry(*week).or_insert((owner.name.as_str(), 0));
            if *ms > before.1 {
                *before = (owner.name.as_str(), *ms);
            }
        }
    }
    let held = top_by_week.into_iter().filter(|(_, (_, ms))| *ms > 0);
    held.map(|(week, (name, ms))| (week, (name.to_owned(), ms)))
        .into_map()
}

impl OwnerTotals {
    /// The weeks, oldest first, each with the owner with the longest device time.
    pub(super) fn weeks(&mut self, times: BTreeMap<i64, UsageTimes>) -> Vec<WeekTime> {
        let weeks = times.into_iter();
        weeks
            .map(|(monday, times)| WeekTime {
                monday: local_hours::format_date(monday),
                times,
                top_owner: self.top_by_week.remove(&monday),
            })
            .collect()
    }
}

impl UsageGroup {
    fn add(&mut self, used: &RunTotals, is_new: bool) {
        self.used.merge(used);
        self.runs += u64::from(is_new);
    }

    fn to_used_by(&self) -> UsageTotals {
        const MIB_SECOND: u128 = (1 << 20) * 1000;
        let memory = self.used.memory.saturating_add(MIB_SECOND / 2) / MIB_SECOND;
        UsageTotals {
            busy_ms: self.used.busy_ms,
            idle_ms: self.used.idle_ms,
            unknown_ms: self.used.unknown_ms,
            memory_mib_s: u64::try_from(memory).unwrap_or(u64::MAX),
            memory_max: self.used.max_memory.map(Bytes),
            runs: self.runs,
        }
    }
}

impl RunTotals {
    fn add(&mut self, usage: &RunUsage) {
        self.merge(&Self {
            busy_ms: usage.busy_ms,
            idle_ms: usage.idle_ms,
            unknown_ms: usage.unknown_ms,
            memory: usage.memory.total,
            max_memory: usage.memory.max,
        });
    }

    fn merge(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.busy_ms, more.busy_ms),
            (&mut self.idle_ms, more.idle_ms),
            (&mut self.unknown_ms, more.unknown_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.memory = self.memory.saturating_add(more.memory);
        self.max_memory = self.max_memory.max(more.max_memory);
    }

    const fn device_time_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }
}
