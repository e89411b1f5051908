//! Counts the warnings and ends of today: in total, and for each user.

use chrono::Local;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, Person, ViolationSubject};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The counts since midnight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DailyCounts {
    /// The day as days since 1970, in local time.
    day: i64,
    /// Real actions.
    done: CountsByUser,
    /// Actions of dry runs.
    simulated: CountsByUser,
}

/// In total, and for each user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountsByUser {
    pub(crate) all: ActionCounts,
    /// For each user with at least one.
    pub(crate) of: BTreeMap<u32, ActionCounts>,
}

/// The number of warnings and of ended jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActionCounts {
    pub(crate) warned: u32,
    pub(crate) ended: u32,
}

impl DailyCounts {
    /// The counts of real actions.
    pub(crate) const fn done(&self) -> &CountsByUser {
        &self.done
    }

    /// The counts of dry runs.
    pub(crate) const fn simulated(&self) -> &CountsByUser {
        &self.simulated
    }

    /// Adds new decisions; dry runs and real actions are counted separately. Only the first warning
    /// of a violation counts, which `is_first` recognises.
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
            let is_simulated = record.mode <= GuardMode::DryRun;
            let (warned, ended) = match &record.step {
                GuardStep::Warned { .. } if is_first(record) => (1, 0),
                // A real end counts when its outcome is known.
                GuardStep::Ended(victim) if is_simulated && victim.leave_to.is_none() => (0, 1),
                GuardStep::Outcome(outcome) if outcome.ended > 0 && outcome.left == 0 => (0, 1),
                GuardStep::Violated
                | GuardStep::Warned { .. }
                | GuardStep::Ended(_)
                | GuardStep::Exempt(_)
                | GuardStep::Over
                | GuardStep::Outdated
                | GuardStep::Snoozed { .. }
                | GuardStep::Outcome(_)
                | GuardStep::SnoozeVoided { .. }
                | GuardStep::Doubted(_)
                | GuardStep::Tripped { .. } => continue,
            };
            let add = |counted: &mut ActionCounts| {
                counted.warned = counted.warned.saturating_add(warned);
                counted.ended = counted.ended.saturating_add(ended);
            };
            let counts = match is_simulated {
                true => &mut self.simulated,
                false => &mut self.done,
            };
            add(&mut counts.all);
            for uid in affected_users(record) {
                add(counts.of.entry(uid).or_default());
            }
        }
    }
}

/// The users that a step concerns. Persons who are not users of the host are omitted.
fn affected_users(record: &GuardRecord) -> BTreeSet<u32> {
    let one = |person: &Person| person.uid.into_iter().into_set();
    if let GuardStep::Ended(victim) = &record.step {
        return one(&victim.job.owner);
    }
    if let GuardStep::Outcome(outcome) = &record.step {
        return one(&outcome.job.owner);
    }
    match &record.subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => one(person),
        ViolationSubject::Job(job) => one(&job.owner),
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_)
        | ViolationSubject::Run(_) => {
            let owners = record.evidence.runs.iter();
            owners
                .filter_map(|process| process.owner.as_ref()?.uid)
                .into_set()
        }
    }
}

/// Days since 1970, in local time.
fn day(now: Timestamp) -> i64 {
    let utc = chrono::DateTime::from_timestamp_millis(now.0).unwrap_or_default();
    let offset = chrono::Offset::fix(utc.with_timezone(&Local).offset()).local_minus_utc();
    (now.0.div_euclid(1_000) + i64::from(offset)).div_euclid(86_400)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gpukill_proto::guard::{
        EnforcementOutcome, Evidence, OwnedJob, RuleKind, RuleName, RuleSource,
    };

    /// The record of a warning in this mode.
    pub(in crate::guard) fn warned(mode: GuardMode) -> GuardRecord {
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
            subject: ViolationSubject::Person(bob),
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
                is_service_only_warned: false,
            },
            message: None,
        }
    }

    #[test]
    fn job_with_a_survivor_is_not_counted_as_ended() {
        let mut today = DailyCounts::default();
        for (ended, left) in [(1, 1), (0, 1), (0, 0), (2, 0)] {
            let warned = warned(GuardMode::Soft);
            let ViolationSubject::Person(owner) = warned.subject.clone() else {
                panic!("{warned:?}");
            };
            let outcome = EnforcementOutcome {
                job: OwnedJob {
                    owner,
                    id: "one".into(),
                    shown: "one".into(),
                },
                ended,
                left,
                why: None,
            };
            let record = GuardRecord {
                step: GuardStep::Outcome(outcome),
                ..warned
            };
            today.add(Timestamp(0), &[record], |_| true);
        }
        assert_eq!(today.done().all.ended, 1);
    }

    #[test]
    fn counts_from_midnight_dry_runs_apart() {
        let mut today = DailyCounts::default();
        let hour = 3_600_000;
        let soft = |hours| (Timestamp(hours * hour), warned(GuardMode::Soft));
        let dry = |hours| (Timestamp(hours * hour), warned(GuardMode::DryRun));
        for (at, record) in [soft(1), dry(2), dry(3), soft(4), soft(5)] {
            today.add(at, &[record], |_| true);
        }
        let of = |counts: &CountsByUser| (counts.all.warned, counts.of[&1_001].warned);
        assert_eq!(of(today.done()), (3, 3));
        assert_eq!(of(today.simulated()), (2, 2));
        today.add(Timestamp(72 * hour), &[warned(GuardMode::Soft)], |_| true);
        assert_eq!(of(today.done()), (1, 1));
        assert_eq!(today.simulated(), &CountsByUser::default());
    }
}
