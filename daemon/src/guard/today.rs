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
    /// What was done.
    done: Tally,
    /// What a dry run would have done.
    rehearsed: Tally,
}

/// In all, and of each user's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
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
    /// What was done.
    pub(crate) const fn done(&self) -> &Tally {
        &self.done
    }

    /// What a dry run would have done.
    pub(crate) const fn simulated(&self) -> &Tally {
        &self.rehearsed
    }

    /// Adds what was decided now. What was rehearsed and what was done are not added up.
    /// Of several warnings of one violation the first counts, which `is_first` tells.
    pub(crate) fn add(
        &mut self,
        now: Timestamp,
        records: &[GuardRecord],
        is_first: impl Fn(&GuardRecord) -> bool,
    ) {
        let day = day(now);
        if day != self.day {
            *self = Self {
                day,
                ..Self::default()
            };
        }
        for record in records {
            let was_rehearsed = record.mode <= GuardMode::DryRun;
            let (warned, ended) = match &record.step {
                GuardStep::Warned { .. } if is_first(record) => (1, 0),
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
                | GuardStep::SnoozeVoided { .. }
                | GuardStep::Doubted(_)
                | GuardStep::Tripped { .. } => continue,
            };
            let add = |counted: &mut Counted| {
                counted.warned = counted.warned.saturating_add(warned);
                counted.ended = counted.ended.saturating_add(ended);
            };
            let tally = match was_rehearsed {
                true => &mut self.rehearsed,
                false => &mut self.done,
            };
            add(&mut tally.all);
            for uid in whose(record) {
                add(tally.of.entry(uid).or_default());
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::{Evidence, RuleKind, RuleName, RuleSource};

    fn warned(mode: GuardMode) -> GuardRecord {
        let bob = Person {
            name: "bob".into(),
            uid: Some(1_001),
        };
        GuardRecord {
            at: Timestamp(0),
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject: Subject::Person(bob),
            mode,
            step: GuardStep::Warned {
                times: 1,
                deadline: None,
            },
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs: Vec::new(),
                count: 0,
                unknown: 0,
                threat: None,
                is_spared_service: false,
            },
            message: None,
        }
    }

    #[test]
    fn what_is_done_counts_from_midnight_on_whatever_is_rehearsed_meanwhile() {
        let mut today = Today::default();
        let hour = 3_600_000;
        let soft = |hours| (Timestamp(hours * hour), warned(GuardMode::Soft));
        let dry = |hours| (Timestamp(hours * hour), warned(GuardMode::DryRun));
        for (at, record) in [soft(1), dry(2), dry(3), soft(4), soft(5)] {
            today.add(at, &[record], |_| true);
        }
        let of = |tally: &Tally| (tally.all.warned, tally.of[&1_001].warned);
        assert_eq!(of(today.done()), (3, 3));
        assert_eq!(of(today.simulated()), (2, 2));
        today.add(Timestamp(72 * hour), &[warned(GuardMode::Soft)], |_| true);
        assert_eq!(of(today.done()), (1, 1));
        assert_eq!(today.simulated(), &Tally::default());
    }
}
