//! How many were warned and ended today: in all, and of each user's own.

use chrono::Local;
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, Person, Subject};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Since midnight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Today {
    /// In days since 1970, by the clocks on the wall.
    day: i64,
    /// What is counted was rehearsed, or done.
    #[serde(default)]
    mode: GuardMode,
    pub(crate) all: Counted,
    /// Of each user who was among them.
    pub(crate) of: BTreeMap<u32, Counted>,
}

/// So many, or would have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) warned: u32,
    pub(crate) ended: u32,
}

impl Today {
    /// Adds what was decided now, in this mode. What was rehearsed and what was done are
    /// not added up.
    pub(crate) fn add(&mut self, now: Timestamp, mode: GuardMode, records: &[GuardRecord]) {
        let day = day(now);
        let is_rehearsed = |mode: GuardMode| mode <= GuardMode::DryRun;
        if day != self.day || is_rehearsed(mode) != is_rehearsed(self.mode) {
            *self = Self {
                day,
                mode,
                ..Self::default()
            };
        }
        for record in records {
            let was_rehearsed = is_rehearsed(record.mode);
            if was_rehearsed != is_rehearsed(mode) {
                continue;
            }
            let (warned, ended) = match &record.step {
                // Of several warnings of one violation the first counts.
                GuardStep::Warned { times: 1, .. } => (1, 0),
                // For real, what came of it counts.
                GuardStep::Ended(victim) if was_rehearsed && victim.leave_to.is_none() => (0, 1),
                GuardStep::Acted(acted) if acted.ended > 0 => (0, 1),
                GuardStep::Violated
                | GuardStep::Warned { .. }
                | GuardStep::Ended(_)
                | GuardStep::Spared(_)
                | GuardStep::Over
                | GuardStep::Outdated
                | GuardStep::Snoozed { .. }
                | GuardStep::Acted(_)
                | GuardStep::Tripped { .. } => continue,
            };
            let add = |counted: &mut Counted| {
                counted.warned = counted.warned.saturating_add(warned);
                counted.ended = counted.ended.saturating_add(ended);
            };
            add(&mut self.all);
            for uid in whose(record) {
                add(self.of.entry(uid).or_default());
            }
        }
    }
}

/// The users whom it is about. Who is no user of the box asks for nothing.
fn whose(record: &GuardRecord) -> BTreeSet<u32> {
    let one = |person: &Person| person.uid.into_iter().collect();
    if let GuardStep::Ended(victim) = &record.step {
        return one(&victim.job.owner);
    }
    if let GuardStep::Acted(acted) = &record.step {
        return one(&acted.job.owner);
    }
    match &record.subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => one(person),
        Subject::Job(job) => one(&job.owner),
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) | Subject::Run(_) => {
            let owners = record.evidence.runs.iter();
            owners.filter_map(|told| told.owner.as_ref()?.uid).collect()
        }
    }
}

/// In days since 1970.
fn day(now: Timestamp) -> i64 {
    let utc = chrono::DateTime::from_timestamp_millis(now.0).unwrap_or_default();
    let offset = chrono::Offset::fix(utc.with_timezone(&Local).offset()).local_minus_utc();
    (now.0.div_euclid(1_000) + i64::from(offset)).div_euclid(86_400)
}
