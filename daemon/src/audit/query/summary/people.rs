//! Whose processes used the devices, and which.

use super::super::super::packed::Unpacked;
use super::super::filter::{Extent, RunRow, Scope, each_run};
use super::super::{Deadline, Failure};
use super::{MayRead, civil};
use gpukill_policy::usage::RunUsage;
use gpukill_policy::usage::label::{bounded, label};
use gpukill_proto::audit::{OwnerTime, ProcessTime, Times, UsedBy, WeekTime};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{Owner, OwnerKind};
use gpukill_proto::text::NO_PROCESS;
use gpukill_proto::units::Bytes;
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap, HashSet};

/// So many owners are told of, and so many kinds of processes.
const MOST_TOLD: usize = 50;

/// So many runs are added up before it is asked whose they are: of a week, mostly.
const MOST_AT_ONCE: usize = 1 << 15;

/// The most runs, and the most owners and kinds of processes, that are kept apart:
/// of years. With more there would be no bound to the memory this takes.
const MOST_RUNS: usize = 1 << 20;
const MOST_GROUPS: usize = 1 << 16;

/// Runs of which nobody needs to know are read over where they stand between
/// others, up to so many at a time.
const MOST_BETWEEN: i64 = 64;

/// What to call a process of which not even a name is known.
const NAMELESS: &str = "?";

/// What is added up.
pub(super) struct People<'a> {
    connection: &'a Connection,
    scope: &'a Scope<'a>,
    may_read: MayRead<'a>,
    /// What it said.
    readable: BTreeMap<(Option<u32>, Option<u32>), bool>,
    deadline: Deadline,
    /// The week of what is added up by run, by its Monday.
    week: i64,
    runs: HashMap<i64, Used>,
    /// Runs that are counted.
    counted: HashSet<i64>,
    owners: BTreeMap<Option<Whose>, Group>,
    processes: BTreeMap<String, Group>,
}

/// An owner, by all that tells them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    kind: OwnerKind,
    uid: Option<u32>,
    name: String,
}

/// What an owner used, or a kind of process.
#[derive(Default)]
struct Group {
    used: Used,
    runs: u64,
    /// An owner's device time, week by week.
    weeks: BTreeMap<i64, u64>,
}

#[derive(Default)]
struct Used {
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    /// Bytes × milliseconds.
    memory: u128,
    most: Option<u64>,
}

/// What it comes to.
pub(super) struct UsedByPeople {
    pub(super) owners: Vec<OwnerTime>,
    pub(super) more_owners: u32,
    pub(super) processes: Vec<ProcessTime>,
    pub(super) more_processes: u32,
    /// Who held devices longest in each week.
    most: BTreeMap<i64, (String, u64)>,
}

impl<'a> People<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        scope: &'a Scope<'a>,
        may_read: MayRead<'a>,
        deadline: Deadline,
    ) -> Self {
        Self {
            connection,
            scope,
            may_read,
            readable: BTreeMap::new(),
            deadline,
            week: 0,
            runs: HashMap::new(),
            counted: HashSet::new(),
            owners: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// Adds a row that began in this week.
    pub(super) fn add(&mut self, row: &Unpacked, week: i64) -> Result<(), Failure> {
        if week != self.week || self.runs.len() >= MOST_AT_ONCE {
            self.settle()?;
            self.week = week;
        }
        for (run, usage) in &row.runs {
            self.runs.entry(*run).or_default().add(usage);
        }
        Ok(())
    }

    /// Finds out whose the runs are that are added up by now.
    fn settle(&mut self) -> Result<(), Failure> {
        let mut runs = std::mem::take(&mut self.runs);
        let mut ids: Vec<i64> = runs.keys().copied().collect();
        ids.sort_unstable();
        for stretch in stretches(ids.into_iter()) {
            self.deadline.check()?;
            each_run(
                self.connection,
                self.scope,
                Extent::Who,
                stretch,
                |row| match runs.remove(&row.id()?) {
                    Some(used) => self.take(row, &used),
                    None => Ok(()),
                },
            )?;
        }
        if self.scope.is_all() {
            // Of whom there is no row, which should not be, the time was used.
            for (run, used) in runs {
                self.add_to(run, None, NO_PROCESS.to_owned(), &used)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, row: &RunRow<'_>, used: &Used) -> Result<(), Failure> {
        let owner = row
            .owner()?
            .map(|Owner { name, uid, kind }| Whose { kind, uid, name });
        let (uid, namespace_owner) = (row.uid()?, row.namespace_owner()?);
        let may_read = self.readable.entry((uid, namespace_owner));
        let may_read = *may_read.or_insert_with(|| (self.may_read)(uid, namespace_owner));
        let command = row.command().filter(|_| may_read);
        let name = match (command.and_then(label), row.name()) {
            (Some(label), _) => label,
            (None, Some(name)) => bounded(name),
            (None, None) => program_of(uid).to_owned(),
        };
        self.add_to(row.id()?, owner, name, used)
    }

    fn add_to(
        &mut self,
        run: i64,
        owner: Option<Whose>,
        label: String,
        used: &Used,
    ) -> Result<(), Failure> {
        let is_new = self.counted.insert(run);
        let owner = self.owners.entry(owner).or_default();
        let of_week = owner.weeks.entry(self.week).or_default();
        *of_week = of_week.saturating_add(used.shared_ms());
        owner.add(used, is_new);
        self.processes.entry(label).or_default().add(used, is_new);
        let is_bounded = self.counted.len() <= MOST_RUNS
            && self.owners.len() <= MOST_GROUPS
            && self.processes.len() <= MOST_GROUPS;
        if !is_bounded {
            let what = Refusal::TooSlow("telling so many processes apart".into());
            return Err(Failure::Asked(what));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<UsedByPeople, Failure> {
        self.settle()?;
        let most = most_of_weeks(&self.owners);
        let (owners, more_owners) = longest(self.owners);
        let (processes, more_processes) = longest(self.processes);
        let owner = |(whose, used): (Option<Whose>, UsedBy)| OwnerTime {
            owner: whose.map(|Whose { kind, uid, name }| Owner { name, uid, kind }),
            used,
        };
        let process = |(label, used)| ProcessTime { label, used };
        Ok(UsedByPeople {
            owners: owners.into_iter().map(owner).collect(),
            more_owners,
            processes: processes.into_iter().map(process).collect(),
            more_processes,
            most,
        })
    }
}

/// What to call the program of a process without a name: a pid that a driver lists and
/// no process has is nobody's.
fn program_of(uid: Option<u32>) -> &'static str {
    match uid {
        Some(_) => NAMELESS,
        None => NO_PROCESS,
    }
}

/// Ids as stretches from the first to the last, in which there are few others.
fn stretches(ids: impl Iterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut stretches: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match stretches.last_mut() {
            Some((_, last)) if id.saturating_sub(*last) <= MOST_BETWEEN => *last = id,
            Some(_) | None => stretches.push((id, id)),
        }
    }
    stretches
}

/// Those who used most, and how many others there are.
fn longest<K: Ord>(groups: BTreeMap<K, Group>) -> (Vec<(K, UsedBy)>, u32) {
    let mut sorted: Vec<(K, Group)> = groups.into_iter().collect();
    // Of two that used as much the first by name comes first.
    sorted.sort_indirect_by_key(|(_, group)| std::cmp::Reverse(group.used.shared_ms()));
    let more = sorted.len().saturating_sub(MOST_TOLD);
    let told = sorted.into_iter().take(MOST_TOLD);
    let told = told.map(|(key, group)| (key, group.told())).collect();
    (told, u32::try_from(more).unwrap_or(u32::MAX))
}

fn most_of_weeks(owners: &BTreeMap<Option<Whose>, Group>) -> BTreeMap<i64, (String, u64)> {
    let mut most: BTreeMap<i64, (&str, u64)> = BTreeMap::new();
    for (whose, group) in owners {
        // Of whom it is not known may be several.
        let Some(whose) = whose else { continue };
        for (week, ms) in &group.weeks {
            let before = most.entry(*week).or_insert((whose.name.as_str(), 0));
            if *ms > before.1 {
                *before = (whose.name.as_str(), *ms);
            }
        }
    }
    let held = most.into_iter().filter(|(_, (_, ms))| *ms > 0);
    held.map(|(week, (name, ms))| (week, (name.to_owned(), ms)))
        .into_map()
}

impl UsedByPeople {
    /// The weeks, the oldest first, and who held devices longest in each.
    pub(super) fn weeks(&mut self, times: BTreeMap<i64, Times>) -> Vec<WeekTime> {
        let weeks = times.into_iter();
        weeks
            .map(|(monday, times)| WeekTime {
                monday: civil::date(monday),
                times,
                most: self.most.remove(&monday),
            })
            .collect()
    }
}

impl Group {
    fn add(&mut self, used: &Used, is_new: bool) {
        self.used.merge(used);
        self.runs += u64::from(is_new);
    }

    fn told(&self) -> UsedBy {
        const MIB_SECOND: u128 = (1 << 20) * 1000;
        let memory = self.used.memory.saturating_add(MIB_SECOND / 2) / MIB_SECOND;
        UsedBy {
            busy_ms: self.used.busy_ms,
            idle_ms: self.used.idle_ms,
            unknown_ms: self.used.unknown_ms,
            memory_mib_s: u64::try_from(memory).unwrap_or(u64::MAX),
            memory_most: self.used.most.map(Bytes),
            runs: self.runs,
        }
    }
}

impl Used {
    fn add(&mut self, usage: &RunUsage) {
        self.merge(&Self {
            busy_ms: usage.busy_ms,
            idle_ms: usage.idle_ms,
            unknown_ms: usage.unknown_ms,
            memory: usage.memory.total,
            most: usage.memory.most,
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
        self.most = self.most.max(more.most);
    }

    const fn shared_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }
}
